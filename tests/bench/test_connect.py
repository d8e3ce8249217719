"""What is found out about a server, and what is said when it is not usable."""

import asyncio
from typing import Any

import pytest

from anaphora.bench.client import open_http
from anaphora.bench.connect import connect
from anaphora.bench.target import Access, Target
from anaphora.errors import ConfigError, TargetError
from tests.bench.fakes import URL, FakeServer, run


def _connect(server: FakeServer, **access: Any) -> Target:
    async def go() -> Target:
        wanted = Access(**{"base_url": URL, **access})
        async with open_http(wanted, server) as http:
            return await connect(http, wanted)

    return run(go())


def test_everything_is_found_from_the_url_alone() -> None:
    """Model, version, context, block size, tokenizer, and a cache that was reset."""
    found = _connect(FakeServer(models=("tiny", "alias"), gives_ids=True))
    assert (found.model, found.name, found.version, found.max_model_len) == ("tiny", "fake", "1.2", 8192)
    assert (found.block_size, found.block_size_from, found.tokenize, found.reset) == (
        16,
        "/metrics",
        "vllm",
        "yes",
    )
    assert (found.api, found.gives_token_ids, found.has_metrics) == ("completions", True, True)
    assert dict(found.extra) == {"stream_options": {"include_usage": True}, "ignore_eos": True}


@pytest.mark.parametrize("url", [URL, f"{URL}/", f"{URL}/v1", f"{URL}/v1/"])
def test_the_url_may_end_as_people_write_it(url: str) -> None:
    """With or without /v1."""
    assert _connect(FakeServer(), base_url=url).root == URL


@pytest.mark.parametrize(
    ("refused", "extra"),
    [
        (("ignore_eos",), {"stream_options": {"include_usage": True}}),
        (("ignore_eos", "stream_options"), {}),
    ],
)
def test_optional_fields_that_are_refused_are_left_out(
    refused: tuple[str, ...], extra: dict[str, Any]
) -> None:
    """As hosted servers refuse what they do not know."""
    assert dict(_connect(FakeServer(refused=refused)).extra) == extra


def test_a_server_without_completions_is_asked_by_chat() -> None:
    """Unless the API was chosen."""
    assert _connect(FakeServer(apis=("chat",))).api == "chat"
    with pytest.raises(TargetError, match="does not complete a prompt for model 'tiny': status 404"):
        _connect(FakeServer(apis=("chat",)), api="completions")


@pytest.mark.parametrize(
    ("reset", "said"),
    [
        ((200, {"success": True}), "yes"),
        ((200, {"success": False, "reason": "busy"}), "no (status 200: busy)"),
        ((409, {"success": False, "reason": "busy"}), "no (status 409: busy)"),
        ((403, {"error": {"message": "admins only"}}), "no (status 403: admins only)"),
        (None, "unsupported"),
    ],
)
def test_a_reset_is_believed_by_its_body(reset: tuple[int, Any] | None, said: str) -> None:
    """A status of 200 may still say that nothing was reset."""
    assert _connect(FakeServer(reset=reset)).reset == said


def test_the_cache_is_left_alone_when_that_is_asked() -> None:
    """For a server that others use."""
    assert _connect(FakeServer(), may_reset=False).reset == "not tried (--no-reset)"


def test_llama_cpp_tokenizes_another_field() -> None:
    """Its answer to the wrong field is an empty list, not an error."""
    assert _connect(FakeServer(tokenize="llama.cpp")).tokenize == "llama.cpp"
    assert _connect(FakeServer(tokenize=None)).tokenize is None
    assert _connect(FakeServer(tokenize="llama.cpp"), api="chat").tokenize is None  # it renders no chats


def test_what_is_given_wins_over_what_is_found() -> None:
    """A block size of the user's own."""
    found = _connect(FakeServer(), block_size=64)
    assert (found.block_size, found.block_size_from) == (64, "--block-size; /metrics says 16")
    assert _connect(FakeServer(), block_size=16).block_size_from == "--block-size"
    assert _connect(FakeServer(counts="nothing")).unit == 1


@pytest.mark.parametrize(
    ("settings", "access", "words"),
    [
        ({}, {"model": "gpt-7"}, "serves no model 'gpt-7'; it serves tiny: choose one of them"),
        (
            {"models": ()},
            {},
            "names no model (status 200: {'data': []}); check --base-url, or name the model with --model",
        ),
        ({"api_key": "k"}, {}, "refuses the API key (status 401); give one with --api-key"),
        ({"drips": ["/v1/models"]}, {"timeout_s": 5.0}, "(no full answer in 5 s)"),
        ({"trouble": {0: "down"}}, {}, "does not complete a prompt for model 'tiny': no connection"),
        ({"trouble": {0: "html"}}, {}, "the answer is text/html, not a stream of events"),
    ],
)
def test_a_server_that_cannot_be_measured_is_one_clear_line(
    settings: dict[str, Any], access: dict[str, Any], words: str
) -> None:
    """With what to do."""
    with pytest.raises(TargetError) as caught:
        _connect(FakeServer(**settings), **access)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://[bad", "http://127.0.0.1:port", "http://"])
def test_a_url_that_is_none_is_one_clear_line(url: str) -> None:
    """Whether it cannot be read or leads nowhere."""
    with pytest.raises((ConfigError, TargetError), match=r"is no URL of a server|no server answers"):
        _connect_for_real(Access(base_url=url))


def _connect_for_real(access: Access) -> None:
    async def go() -> None:
        async with open_http(access) as http:
            await connect(http, access)

    asyncio.run(go())


def test_a_key_is_sent_and_never_shown() -> None:
    """Not even in a traceback."""
    assert _connect(FakeServer(api_key="secret"), api_key="secret").model == "tiny"
    assert "secret" not in repr(Access(base_url=URL, api_key="secret", admin_api_key="secret"))


@pytest.mark.parametrize(
    "pages",
    [
        {"/props": ("application/json", '{"default_generation_settings": [1]}')},
        {"/props": ("application/json", '{"default_generation_settings": {"n_ctx": -1}}')},
        {"/version": ("application/json", "[" * 100_000)},
        {
            "/v1/models": (
                "application/json",
                '{"data": [{"id": "tiny", "meta": "x", "max_model_len": true}]}',
            )
        },
    ],
)
def test_facts_of_odd_shapes_are_passed_over(pages: dict[str, tuple[str, str]]) -> None:
    """A context that is no length is unknown."""
    assert _connect(FakeServer(max_model_len=None, pages=pages)).max_model_len is None


@pytest.mark.parametrize("path", ["/metrics", "/version", "/props", "/tokenize", "/reset_prefix_cache"])
def test_an_answer_that_comes_drop_by_drop_is_done_without(path: str) -> None:
    """Each drop is in time, the whole never is."""
    assert _connect(FakeServer(drips=[path]), timeout_s=5.0).model == "tiny"


@pytest.mark.parametrize(
    ("kind", "text", "reset"),
    [
        ("text/html", "<html>welcome</html>", "unsupported"),
        ("application/json", '{"success": "false"}', "no (status 200: "),
        ("application/json", '{"success": null}', "no (status 200: "),
        ("text/plain", "", "yes"),
    ],
)
def test_only_a_server_that_says_so_was_reset(kind: str, text: str, reset: str) -> None:
    """A page for people, which some servers give for any path, says nothing."""
    found = _connect(FakeServer(pages={"/reset_prefix_cache": (kind, text)}))
    assert found.reset.startswith(reset)


def test_a_key_that_is_only_asked_for_by_prompts_is_asked_for_here() -> None:
    """Some servers list their models to anybody."""
    listed = {"/v1/models": ("application/json", '{"data": [{"id": "tiny"}]}')}
    with pytest.raises(TargetError, match=r"refuses the API key \(status 401.*give one with --api-key"):
        _connect(FakeServer(api_key="k", pages=listed))


def test_a_password_in_the_url_does_not_get_into_reports() -> None:
    """The host and the path do."""
    assert Access(base_url="https://me:secret@example.org/llm/v1").shown_root == "https://example.org/llm"
    assert _connect(FakeServer(), base_url="http://me:secret@127.0.0.1:1").root == URL
