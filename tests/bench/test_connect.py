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
