"""The answers of /v1/completions, /v1/chat/completions and /v1/models."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from anaphora.config import ServerConfig
from anaphora.engine.protocols import GenerateInput
from anaphora.request import FinishReason
from tests.server.fakes import MODEL, ByteTokenizer, FakeEngine, Say, call, chat, complete, events, make_app


def usage(prompt: int, completion: int, cached: int = 0, written: int = 0) -> dict[str, Any]:
    """The usage object with these counts."""
    details = {"cached_tokens": cached, "cache_write_tokens": written, "created_cache_tokens": written}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": details,
    }


def by_prompt(**says: Say) -> Callable[[GenerateInput], Say]:
    """A script that goes by the text of the prompt."""
    return lambda request: says[ByteTokenizer().decode(request.prompt_token_ids)]


def test_a_completion_has_the_documented_shape() -> None:
    """Nothing is missing, and nothing is there that clients do not know, but `stop_reason`, as in vLLM."""
    engine = FakeEngine(Say(stop_reason="\n", cached_tokens=1, cache_write_tokens=0))
    response = complete(make_app(engine), model=MODEL)
    assert response.status_code == 200
    assert response.headers["x-anaphora-cache"] == "hit=1; of=2"
    body = response.json()
    assert body.pop("id").startswith("cmpl-")
    assert isinstance(body.pop("created"), int)
    assert body == {
        "object": "text_completion",
        "model": MODEL,
        "system_fingerprint": None,
        "choices": [
            {
                "index": 0,
                "text": "Hello, world",
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": "\n",
            }
        ],
        "usage": usage(2, 3, cached=1),
    }


def test_a_chat_completion_has_the_documented_shape() -> None:
    """The messages are rendered, and the answer is a message."""
    engine = FakeEngine(Say(finish_reason=FinishReason.LENGTH, cache_write_tokens=16))
    response = chat(make_app(engine), model="small")
    body = response.json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    message = {"role": "assistant", "content": "Hello, world", "refusal": None}
    assert body == {
        "object": "chat.completion",
        "model": "small",
        "system_fingerprint": None,
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": "length", "stop_reason": None}
        ],
        "usage": usage(len("<user>hi<assistant>"), 3, written=16),
    }
    assert bytes(engine.requests[0].prompt_token_ids) == b"<user>hi<assistant>"


def test_counts_of_zero_are_sent_as_zero() -> None:
    """Absent would mean that we do not say."""
    body = complete(make_app()).json()
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert complete(make_app()).headers["x-anaphora-cache"] == "hit=0; of=2"


def test_without_a_model_the_served_one_is_meant() -> None:
    """As in vLLM; the answer names it."""
    assert complete(make_app()).json()["model"] == MODEL


@pytest.mark.parametrize(
    "prompt, ids",
    [
        ("ab", [[97, 98]]),
        (["ab", "c"], [[97, 98], [99]]),
        ([97, 98], [[97, 98]]),
        ([[97, 98], [99]], [[97, 98], [99]]),
    ],
)
def test_a_prompt_has_four_forms(prompt: Any, ids: list[list[int]]) -> None:
    """Text, texts, ids, lists of ids."""
    engine = FakeEngine()
    body = complete(make_app(engine), prompt=prompt).json()
    assert [list(request.prompt_token_ids) for request in engine.requests] == ids
    assert [choice["index"] for choice in body["choices"]] == list(range(len(ids)))


def test_text_gets_special_tokens_unless_told_otherwise() -> None:
    """vLLM's default; ids are never touched."""
    engine = FakeEngine()
    app = make_app(engine)
    call(app, "POST", "/v1/completions", json={"prompt": "a"})
    call(app, "POST", "/v1/completions", json={"prompt": "a", "add_special_tokens": False})
    call(app, "POST", "/v1/completions", json={"prompt": [97]})
    assert [list(request.prompt_token_ids) for request in engine.requests] == [[256, 97], [97], [97]]


def test_usage_of_several_prompts_is_their_sum() -> None:
    """Every field sums over the same prompts, so hits never exceed prompt tokens."""
    script = by_prompt(
        abc=Say(["x"], cached_tokens=2, cache_write_tokens=1), d=Say(["y", "z"], cache_write_tokens=1)
    )
    response = complete(make_app(FakeEngine(script)), prompt=["abc", "d"])
    assert response.json()["usage"] == usage(4, 3, cached=2, written=2)
    assert response.headers["x-anaphora-cache"] == "hit=2; of=4"


def test_the_prompt_counts_once_for_n_answers() -> None:
    """The engine computes each prompt once, and so it is in the books once."""
    engine = FakeEngine(Say(["x"], cache_write_tokens=16))
    body = complete(make_app(engine), prompt=["a" * 20, "b" * 30], n=3).json()
    assert [request.params.n for request in engine.requests] == [3, 3]
    assert body["usage"] == usage(50, 6, cached=0, written=32)


def test_choices_stand_in_the_order_of_prompts_and_answers() -> None:
    """Whichever ends first: choice i belongs to prompt i // n."""
    script = by_prompt(a=Say(["long", "er"]), b=Say(["b"]))
    body = complete(make_app(FakeEngine(script)), prompt=["a", "b"], n=2).json()
    assert [choice["text"] for choice in body["choices"]] == ["longer", "longer", "b", "b"]
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]


def test_sampling_fields_reach_the_engine() -> None:
    """Every field that is honoured, by the name and type of SamplingParams."""
    fields = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 4,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "repetition_penalty": 1.5,
        "min_tokens": 2,
        "seed": 11,
        "ignore_eos": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
    }
    engine = FakeEngine()
    more = {"stop": "\n", "stop_token_ids": [3], "logit_bias": {"5": -100, "06": 1.5}, "max_tokens": 9}
    assert complete(make_app(engine), **fields, **more, cache_salt="s").status_code == 200
    params = engine.requests[0].params
    assert {name: getattr(params, name) for name in fields} == fields
    assert (params.stop, params.stop_token_ids, params.max_tokens) == (("\n",), (3,), 9)
    assert params.logit_bias == {5: -100.0, 6: 1.5}
    assert engine.requests[0].cache_salt == "s"


def test_a_priority_reaches_an_engine_that_heeds_it() -> None:
    """And 0 reaches every engine."""
    engine = FakeEngine()
    for send in (complete, chat):
        assert send(make_app(engine, has_priorities=True), priority=-3).status_code == 200
        assert send(make_app(engine), priority=0).status_code == 200
    assert [request.priority for request in engine.requests] == [-3, 0, -3, 0]


def test_null_means_absent() -> None:
    """Clients send null for what they leave to the server."""
    names = [
        "temperature",
        "n",
        "stop",
        "seed",
        "max_tokens",
        "logit_bias",
        "stream",
        "tools",
        "response_format",
    ]
    engine = FakeEngine()
    assert chat(make_app(engine), **dict.fromkeys(names)).status_code == 200
    assert engine.requests[0].params.temperature == 1.0


@pytest.mark.parametrize("send, expected", [(complete, 16), (chat, 200 - len("<user>hi<assistant>"))])
def test_length_without_max_tokens(send: Callable[..., httpx.Response], expected: int) -> None:
    """16 tokens for completions, as the API says; the rest of the context for a chat."""
    engine = FakeEngine()
    send(make_app(engine))
    assert engine.requests[0].params.max_tokens == expected


def test_the_default_length_shrinks_to_what_fits() -> None:
    """Nobody asked for 16 tokens, so there is nothing to refuse."""
    engine = FakeEngine()
    assert complete(make_app(engine), prompt=[1] * 190).status_code == 200
    assert engine.requests[0].params.max_tokens == 10


@pytest.mark.parametrize("send", [complete, chat])
@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_a_length_of_zero_is_passed_on_as_zero(send: Callable[..., httpx.Response], field: str) -> None:
    """It is no default to be filled in, and a prompt that fills the context is welcome."""
    engine = FakeEngine(max_model_len=len("<user>hi<assistant>"))
    assert send(make_app(engine), **{field: 0}).status_code == 200
    assert engine.requests[0].params.max_tokens == 0


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_length_has_two_names(field: str) -> None:
    """Old and new clients."""
    engine = FakeEngine()
    chat(make_app(engine), **{field: 5})
    chat(make_app(engine), max_tokens=5, max_completion_tokens=5)
    assert [request.params.max_tokens for request in engine.requests] == [5, 5]


def test_echo_puts_the_prompt_before_the_answer() -> None:
    """As it was given, or decoded from ids."""
    app = make_app(FakeEngine(Say(["!"])))
    body = complete(app, prompt=["hä", "yo"], n=2, echo=True).json()
    assert [choice["text"] for choice in body["choices"]] == ["hä!", "hä!", "yo!", "yo!"]
    body = complete(app, prompt=[256, 104, 105], echo=True).json()
    assert body["choices"][0]["text"] == "hi!"
    body = complete(app, prompt=[256, 104, 105], echo=True, skip_special_tokens=False).json()
    assert body["choices"][0]["text"] == "<bos>hi!"


def test_messages_reach_the_template_as_they_came() -> None:
    """Parts, tool calls and fields that only some templates know, but no nulls."""
    seen: list[Any] = []

    class Renderer:
        def render(self, messages: Any, *, tools: Any, add_generation_prompt: bool = True) -> Any:
            seen.append((messages, add_generation_prompt))
            return [1], None

    part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    refusal = {"type": "refusal", "refusal": "no"}
    tool_call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": [part, refusal]},
        {"role": "assistant", "content": None, "tool_calls": [tool_call], "refusal": None, "audio": None},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "assistant", "content": "so", "reasoning_content": "hm", "tool_calls": None},
    ]
    response = chat(make_app(renderer=Renderer()), messages=messages, add_generation_prompt=False)
    assert response.status_code == 200
    assert seen == [
        (
            [
                {"role": "developer", "content": [part, refusal]},
                {"role": "assistant", "content": None, "tool_calls": [tool_call]},
                {"role": "tool", "tool_call_id": "1", "content": "42"},
                {"role": "assistant", "content": "so", "reasoning_content": "hm"},
            ],
            False,
        )
    ]


def test_a_long_text_is_tokenised_like_a_short_one() -> None:
    """From some length on it happens in another thread."""
    engine = FakeEngine(max_model_len=300_000)
    app = make_app(engine)
    assert complete(app, prompt="x" * 100_000).json()["usage"]["prompt_tokens"] == 100_000
    messages = [{"role": "user", "content": "x" * 100_000}]
    assert chat(app, messages=messages, max_tokens=5).json()["usage"]["prompt_tokens"] == 100_017


@pytest.mark.parametrize("send", [complete, chat])
@pytest.mark.parametrize(
    "say",
    [
        Say(fail_at=0),
        Say(fail_at=2),
        Say(finish_reason=FinishReason.ERROR),
        Say(finish_reason=FinishReason.ABORT),
    ],
)
def test_a_failure_of_the_engine_is_an_error_of_ours(send: Callable[..., httpx.Response], say: Say) -> None:
    """Clients may repeat it, and learn nothing of our insides."""
    response = send(make_app(FakeEngine(say)))
    assert response.status_code == 500
    error = response.json()["error"]
    assert error["type"] == "server_error"
    assert "internal error" in error["message"]
    assert "secret" not in response.text


def test_a_failure_of_one_sequence_aborts_the_others() -> None:
    """Nobody will read what they say."""
    engine = FakeEngine(by_prompt(a=Say(wait_at=1), b=Say(fail_at=1), c=Say(wait_at=0)))
    assert complete(make_app(engine), prompt=["a", "b", "c"]).status_code == 500
    assert sorted(request_id[-1] for request_id in engine.aborted) == ["0", "1", "2"]
    assert engine.finished == []


def test_a_finished_request_is_not_aborted() -> None:
    """The engine ends its generators itself."""
    engine = FakeEngine()
    complete(make_app(engine), prompt=["a", "b"], n=2)
    assert len(engine.finished) == 2
    assert engine.aborted == []


# --- streams


def chunks(app: Starlette, send: Callable[..., httpx.Response] = chat, **body: Any) -> list[Any]:
    """Return the events of a stream without the fields that all of them share."""
    found = events(send(app, stream=True, **body))
    shared = {
        (event.pop("id"), event.pop("created"), event.pop("model")) for event in found if event != "[DONE]"
    }
    assert len(shared) == 1
    return found


def test_a_chat_stream_has_a_role_contents_an_end_and_done() -> None:
    """The frames of the wire contract, in their order."""
    found = chunks(make_app(FakeEngine(Say(["Hel", "", "lo"], stop_reason=257))))

    def chunk(delta: dict[str, str], **ending: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **ending}
        return {"object": "chat.completion.chunk", "system_fingerprint": None, "choices": [choice]}

    assert found == [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, finish_reason="stop", stop_reason=257),
        "[DONE]",
    ]


def test_a_completion_stream_has_text_completions() -> None:
    """There is no role, and the last text comes with the end."""
    found = chunks(make_app(FakeEngine(Say(["Hel", "lo"]))), complete)

    def chunk(text: str, finish_reason: str | None) -> dict[str, Any]:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
        }
        return {"object": "text_completion", "system_fingerprint": None, "choices": [choice]}

    assert found == [chunk("Hel", None), chunk("lo", "stop"), "[DONE]"]


@pytest.mark.parametrize("send", [complete, chat])
def test_usage_comes_last_when_asked_for(send: Callable[..., httpx.Response]) -> None:
    """Before it every chunk says null."""
    found = chunks(make_app(FakeEngine(Say(cached_tokens=1))), send, stream_options={"include_usage": True})
    *before, last, done = found
    assert done == "[DONE]"
    assert all(event["usage"] is None and event["choices"] for event in before)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 1


def test_usage_is_not_sent_unasked_unless_the_operator_says_so() -> None:
    """LangChain turns usage off for servers like ours."""
    assert all("usage" not in event for event in chunks(make_app())[:-1])
    forced = make_app(config=ServerConfig(enable_force_include_usage=True))
    found = chunks(forced)
    assert found[-2]["usage"]["completion_tokens"] == 3
    assert found[0]["usage"] is None


def test_usage_grows_with_the_stream_when_asked_for() -> None:
    """vLLM's continuous_usage_stats."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    found = chunks(make_app(), complete, stream_options=options)
    assert [event["usage"]["completion_tokens"] for event in found[:-1]] == [1, 2, 3, 3]


def test_a_stream_of_several_sequences_tells_them_apart() -> None:
    """Each has its own role, contents and end under its index."""
    found = chunks(make_app(FakeEngine(Say(["a", "b"]))), n=2, stream_options={"include_usage": True})
    choices = [choice for event in found[:-1] for choice in event["choices"]]
    assert [choice["index"] for choice in choices[:2]] == [0, 1]
    for index in (0, 1):
        own = [choice for choice in choices if choice["index"] == index]
        assert [choice["delta"].get("content") for choice in own] == ["", "a", "b", None]
        assert [choice["finish_reason"] for choice in own] == [None, None, None, "stop"]
    assert found[-2]["usage"]["completion_tokens"] == 4
    assert found[-2]["usage"]["prompt_tokens"] == len("<user>hi<assistant>")


def test_a_stream_echoes_the_prompt_first() -> None:
    """As text of its own, once per choice."""
    found = chunks(make_app(FakeEngine(Say(["!"]))), complete, prompt=["a", "b"], echo=True)
    texts = [(choice["index"], choice["text"]) for event in found[:-1] for choice in event["choices"]]
    assert texts == [(0, "a"), (1, "b"), (0, "!"), (1, "!")]


def test_a_stream_tells_its_hits_in_the_head() -> None:
    """They are fixed at admission, so they are known before the first chunk."""
    response = chat(make_app(FakeEngine(Say(cached_tokens=16))), stream=True)
    assert response.headers["x-anaphora-cache"] == "hit=16; of=19"
    assert response.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("send", [complete, chat])
def test_an_error_before_the_first_output_of_a_stream_has_its_own_status(
    send: Callable[..., httpx.Response],
) -> None:
    """A 200 with an error in it is missed by clients that look at the status."""
    response = send(make_app(FakeEngine(Say(fail_at=0))), stream=True)
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["type"] == "server_error"


@pytest.mark.parametrize("send", [complete, chat])
def test_an_error_within_a_stream_is_its_last_event(send: Callable[..., httpx.Response]) -> None:
    """Not even [DONE] follows, so a client cannot take the part for the whole."""
    response = send(make_app(FakeEngine(Say(fail_at=1))), stream=True, stream_options={"include_usage": True})
    assert response.status_code == 200
    assert "secret" not in response.text
    last = events(response)[-1]
    assert list(last) == ["error"]
    assert last["error"]["type"] == "server_error"
    assert sorted(last["error"]) == ["code", "message", "param", "type"]


def test_frames_are_ascii() -> None:
    """Some clients split lines at U+2028, which JSON allows inside a string."""
    response = chat(make_app(FakeEngine(Say(["a\u2028b\n\nc\N{GRINNING FACE}"]))), stream=True)
    assert response.text.isascii()
    assert events(response)[1]["choices"][0]["delta"]["content"] == "a\u2028b\n\nc\N{GRINNING FACE}"


# --- models


def test_all_names_of_the_model_are_listed() -> None:
    """Most user interfaces refuse to connect without this list."""
    body = call(make_app(), "GET", "/v1/models").json()
    assert body["object"] == "list"
    assert [entry["id"] for entry in body["data"]] == [MODEL, "small"]
    created = body["data"][0].pop("created")
    assert isinstance(created, int)
    assert body["data"][0] == {"id": MODEL, "object": "model", "owned_by": "anaphora", "max_model_len": 200}


@pytest.mark.parametrize(
    "path", [f"/v1/models/{MODEL}", "/v1/models/Qwen%2FQwen2.5-0.5B-Instruct", "/v1/models/small"]
)
def test_one_model_is_found_by_its_name_slashes_included(path: str) -> None:
    """Names from Hugging Face have a slash, and clients send it escaped or not."""
    response = call(make_app(), "GET", path)
    assert response.status_code == 200
    assert response.json()["id"] in {MODEL, "small"}


@pytest.mark.parametrize("path", ["/v1/models/other", "/v1/models/"])
def test_an_unknown_name_of_a_model_is_not_found(path: str) -> None:
    """The known ones are told."""
    response = call(make_app(), "GET", path)
    assert response.status_code == 404
    assert MODEL in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, (0.2, 0.9)),
        ({"temperature": None}, (0.2, 0.9)),
        ({"temperature": 0.7}, (0.7, 0.9)),
        ({"top_p": 1}, (0.2, 1.0)),
    ],
)
def test_the_models_sampling_holds_where_the_request_says_nothing(
    sent: dict[str, Any], expected: tuple[float, float]
) -> None:
    """What is sent wins, field by field; null means not sent."""
    engine = FakeEngine(Say())
    app = make_app(engine, default_sampling={"temperature": 0.2, "top_p": 0.9})
    assert complete(app, **sent).status_code == 200
    params = engine.requests[0].params
    assert (params.temperature, params.top_p) == expected
