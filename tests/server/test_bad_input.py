"""Every mistake a caller can make gets a clear answer: the status, the field, and words that help."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.config import ServerConfig
from anaphora.server.bodies import ChatBody, CompletionBody, PinBody
from tests.server.fakes import FakeEngine, call, make_app

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
USER = [{"role": "user", "content": "hi"}]

Row = tuple[str, Any, str, list[str]]
# The field, its value, what `param` must be, and words of the message.
BAD_FIELDS_OF_BOTH: list[Row] = [
    ("temperature", 2.1, "temperature", ["2.1", "between 0 and 2"]),
    ("temperature", -0.1, "temperature", ["-0.1", "between 0 and 2"]),
    ("temperature", "hot", "temperature", ['"hot"', "a number"]),
    ("temperature", True, "temperature", ["true", "a number"]),
    ("temperature", [1], "temperature", ["a list of 1", "a number"]),
    ("top_p", 0, "top_p", ["0", "over 0 and at most 1"]),
    ("top_p", 1.5, "top_p", ["1.5", "at most 1"]),
    ("top_k", -2, "top_k", ["-2", "at least 1"]),
    ("top_k", 1.5, "top_k", ["1.5", "an integer"]),
    ("top_k", 10**30, "top_k", ["at most 9223372036854775807"]),
    ("min_p", 2, "min_p", ["between 0 and 1"]),
    ("presence_penalty", 3, "presence_penalty", ["between -2 and 2"]),
    ("frequency_penalty", -3, "frequency_penalty", ["between -2 and 2"]),
    ("repetition_penalty", 0, "repetition_penalty", ["between 0.01 and 10"]),
    ("n", 0, "n", ["n is 0", "between 1 and 128"]),
    ("n", 129, "n", ["129", "between 1 and 128"]),
    ("n", True, "n", ["true", "an integer"]),
    ("n", "2", "n", ['"2"', "an integer"]),
    ("max_tokens", -1, "max_tokens", ["max_tokens is -1", "at least 0", "0 fills the cache"]),
    ("max_tokens", 1.0, "max_tokens", ["1.0", "an integer"]),
    ("max_completion_tokens", -2, "max_completion_tokens", ["max_completion_tokens is -2", "at least 0"]),
    ("min_tokens", 500, "min_tokens", ["500", "max_tokens"]),
    ("min_tokens", -1, "min_tokens", ["-1", "at least 0"]),
    ("seed", 2**63, "seed", ["at most"]),
    ("seed", "x", "seed", ["an integer"]),
    ("stop", 5, "stop", ["5", "a string or a list of strings"]),
    ("stop", ["a", 5], "stop[1]", ["5", "a string"]),
    ("stop", "", "stop", ["empty string"]),
    ("stop", ["x"] * 17, "stop", ["17", "limit is 16"]),
    ("stop_token_ids", [1, 258], "stop_token_ids[1]", ["258", "from 0 to 257"]),
    ("stop_token_ids", 3, "stop_token_ids", ["3", "a list"]),
    ("logit_bias", {"258": 1}, "logit_bias", ['"258"', "from 0 to 257"]),
    ("logit_bias", {"-1": 1}, "logit_bias", ['"-1"', "token ids"]),
    ("logit_bias", {"x": 1}, "logit_bias", ['"x"', "token ids"]),
    ("logit_bias", {"9" * 30: 1}, "logit_bias", ["token ids"]),
    ("logit_bias", {"5": 101}, "logit_bias", ["101", "between -100 and 100"]),
    ("logit_bias", {"5": "x"}, "logit_bias.5", ['"x"', "a number"]),
    ("logit_bias", [5], "logit_bias", ["a list of 1", "an object"]),
    ("ignore_eos", 1, "ignore_eos", ["1", "true or false"]),
    ("stream", "yes", "stream", ['"yes"', "true or false"]),
    ("stream_options", {"include_usage": True}, "stream_options", ["unless stream is true"]),
    ("stream_options", 7, "stream_options", ["7", "an object"]),
    ("cache_salt", "", "cache_salt", ["empty", "leave it out"]),
    ("cache_salt", "é" * 129, "cache_salt", ["258 bytes", "limit is 256"]),
    ("cache_salt", 5, "cache_salt", ["5", "a string"]),
    ("model", 5, "model", ["5", "a string"]),
    ("response_format", {"type": "json_object"}, "response_format", ["not supported", "leave it out"]),
    ("response_format", {"type": "json_schema", "json_schema": {}}, "response_format", ["not supported"]),
    ("prompt_logprobs", -1, "prompt_logprobs", ["-1", "between 0 and 20"]),
    ("prompt_logprobs", 21, "prompt_logprobs", ["21", "between 0 and 20"]),
    ("prompt_logprobs", True, "prompt_logprobs", ["true", "an integer"]),
    ("structured_outputs", {"regex": "a"}, "structured_outputs", ["not supported"]),
    ("guided_json", {}, "guided_json", ["not supported"]),
    ("use_beam_search", True, "use_beam_search", ["not supported", "use n"]),
    ("priority", 1, "priority", ["1", "must be 0", "--scheduling-policy priority"]),
    ("priority", "high", "priority", ['"high"', "an integer"]),
    ("cache_control", "ephemeral", "cache_control", ['"ephemeral"', "an object such as"]),
    ("cache_control", {}, "cache_control.type", ["null", '"ephemeral"']),
    ("cache_control", {"type": "forever"}, "cache_control.type", ['"forever"', '"ephemeral"']),
    ("cache_control", {"type": "ephemeral", "ttl": "2h"}, "cache_control.ttl", ['"2h"', '"5m" or "1h"']),
    ("cache_control", {"type": "ephemeral", "ttl": 300}, "cache_control.ttl", ["300", '"5m" or "1h"']),
    ("cache_control", {"type": "ephemeral", "ttl": ["1h"]}, "cache_control.ttl", ["a list", '"5m" or "1h"']),
    ("return_token_ids", True, "return_token_ids", ["not supported"]),
    ("anaphora", {"explain": True}, "anaphora.explain", ["--explain-requests 0"]),
    ("anaphora", {"explain": 1}, "anaphora.explain", ["1", "true or false"]),
    ("anaphora", {"explain": []}, "anaphora.explain", ["list", "true or false"]),
    ("anaphora", {"explain": 0}, "anaphora.explain", ["0", "true or false"]),
    ("anaphora", True, "anaphora", ["true", '{"explain": true}']),
    ("prompt_cache_options", "on", "prompt_cache_options", ["on", "an object"]),
    (
        "prompt_cache_options",
        {"comparison_response_id": 7},
        "prompt_cache_options.comparison_response_id",
        ["7", "the id of a response"],
    ),
]
BAD_FIELDS_OF_COMPLETIONS: list[Row] = [
    ("prompt", "", "prompt", ["empty", "send some text"]),
    ("prompt", None, "prompt", ["missing"]),
    ("prompt", [], "prompt", ["empty list"]),
    ("prompt", [[]], "prompt[0]", ["empty list"]),
    ("prompt", ["a", ""], "prompt[1]", ["empty"]),
    ("prompt", 5, "prompt", ["5", "a string, a list of strings"]),
    ("prompt", {"text": "x"}, "prompt", ["an object", "a string"]),
    ("prompt", [1, 2, 258], "prompt[2]", ["258", "from 0 to 257"]),
    ("prompt", [1, -1], "prompt[1]", ["-1", "from 0 to 257"]),
    ("prompt", [1, True], "prompt[1]", ["true", "a token id"]),
    ("prompt", [True, 1], "prompt[0]", ["true", "a token id"]),
    ("prompt", [1.0], "prompt[0]", ["1.0", "a token id"]),
    ("prompt", [None], "prompt[0]", ["null", "a token id"]),
    ("prompt", [1, "a"], "prompt[1]", ['"a"', "a token id"]),
    ("prompt", ["a", 1], "prompt[1]", ["1", "a string"]),
    ("prompt", [[1], "a"], "prompt[1]", ['"a"', "a list of token ids"]),
    ("prompt", [[1], [1, 999]], "prompt[1][1]", ["999", "from 0 to 257"]),
    ("prompt", [[1]] * 1025, "prompt", ["1025", "limit is 1024"]),
    ("best_of", 0, "best_of", ["0", "at least n, which is 1"]),
    ("best_of", 21, "best_of", ["21", "at most 20"]),
    ("best_of", 2.5, "best_of", ["2.5", "an integer"]),
    ("suffix", "end", "suffix", ["not supported"]),
    ("logprobs", -1, "logprobs", ["-1", "between 0 and 20"]),
    ("logprobs", 21, "logprobs", ["21", "between 0 and 20"]),
    ("logprobs", True, "logprobs", ["true", "an integer"]),
    ("logprobs", "5", "logprobs", ['"5"', "an integer"]),
    ("echo", "yes", "echo", ['"yes"', "true or false"]),
]
BAD_FIELDS_OF_CHAT: list[Row] = [
    ("messages", None, "messages", ["missing"]),
    ("messages", [], "messages", ["empty list"]),
    ("messages", "hi", "messages", ['"hi"', "a list of messages"]),
    ("messages", ["hi"], "messages[0]", ['"hi"', "an object"]),
    (
        "messages",
        [*USER, {"role": "wizard", "content": "x"}],
        "messages[1].role",
        ['"wizard"', "system, developer"],
    ),
    ("messages", [{"role": [], "content": "x"}], "messages[0].role", ["a list", "one of"]),
    ("messages", [{"content": "x"}], "messages[0].role", ["null", "one of"]),
    ("messages", [{"role": "user"}], "messages[0].content", ["null", "a string or a list"]),
    ("messages", [{"role": "user", "content": None}], "messages[0].content", ["null"]),
    ("messages", [{"role": "user", "content": 5}], "messages[0].content", ["5", "a string"]),
    ("messages", [{"role": "user", "content": []}], "messages[0].content", ["a list without entries"]),
    ("messages", [{"role": "user", "content": ["x"]}], "messages[0].content[0]", ['"x"', "an object"]),
    (
        "messages",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "messages[0].content[0].type",
        ['"image_url"', "text only"],
    ),
    ("messages", [{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text", ["null"]),
    ("messages", [{"role": "user", "content": "x", "name": 5}], "messages[0].name", ["5", "a string"]),
    (
        "messages",
        [{"role": "user", "content": "x", "tool_calls": 5}],
        "messages[0].tool_calls",
        ["5", "a list"],
    ),
    (
        "messages",
        [{"role": "user", "content": "x", "tool_calls": [{}]}],
        "messages[0].role",
        ['"user"', '"assistant"'],
    ),
    ("messages", [{"role": "assistant", "tool_calls": [5]}], "messages[0].tool_calls[0]", ["5", "an object"]),
    (
        "messages",
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}],
        "messages[0].tool_calls[0].function.arguments",
        ["an object", "a string"],
    ),
    (
        "messages",
        [{"role": "assistant", "content": "x", "function_call": {"name": "f"}}],
        "messages[0].function_call",
        ["not supported", "tool_calls"],
    ),
    (
        "messages",
        [{"role": "user", "content": "x", "cache_control": {"type": "ephemeral", "ttl": "1d"}}],
        "messages[0].cache_control.ttl",
        ['"1d"', '"5m" or "1h"'],
    ),
    (
        "messages",
        [*USER, {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": True}]}],
        "messages[1].content[0].cache_control",
        ["true", "an object such as"],
    ),
    ("messages", [{"role": "user", "content": "refuse me"}], "messages", ["template refuses"]),
    ("functions", [{"name": "f"}], "functions", ["not supported"]),
    ("logprobs", 1, "logprobs", ["1", "true or false"]),
    ("top_logprobs", 3, "top_logprobs", ["3", "unless logprobs is true"]),
    ("top_logprobs", 21, "top_logprobs", ["21", "between 0 and 20"]),
    ("top_logprobs", -1, "top_logprobs", ["-1", "between 0 and 20"]),
    ("top_logprobs", True, "top_logprobs", ["true", "an integer"]),
    ("audio", {"voice": "x"}, "audio", ["not supported"]),
    ("modalities", ["text", "audio"], "modalities", ["not supported", "text only"]),
    ("prediction", {"type": "content", "content": "x"}, "prediction", ["not supported"]),
    ("reasoning_effort", "high", "reasoning_effort", ["not supported"]),
    ("web_search_options", {}, "web_search_options", ["not supported"]),
    ("chat_template", "{{ x }}", "chat_template", ["not supported", "--chat-template"]),
    ("chat_template_kwargs", {"enable_thinking": False}, "chat_template_kwargs", ["not supported"]),
    ("continue_final_message", True, "continue_final_message", ["not supported", "/v1/completions"]),
    ("echo", True, "echo", ["not supported", "/v1/completions"]),
    ("add_generation_prompt", "no", "add_generation_prompt", ["true or false"]),
]
FIELD_ROWS = [
    *((CHAT, *row) for row in BAD_FIELDS_OF_BOTH + BAD_FIELDS_OF_CHAT),
    *((COMPLETIONS, *row) for row in BAD_FIELDS_OF_BOTH + BAD_FIELDS_OF_COMPLETIONS),
]


def refusal(path: str, status: int, **request: Any) -> dict[str, Any]:
    """Send a bad request; return its error after checking that the engine never saw it."""
    engine = FakeEngine()
    response = call(make_app(engine), "POST", path, **request)
    assert response.status_code == status, response.text
    assert engine.requests == []
    assert list(response.json()) == ["error"]
    error: dict[str, Any] = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert "Traceback" not in error["message"]
    return error


@pytest.mark.parametrize("path, field, value, param, words", FIELD_ROWS)
def test_a_bad_field_is_refused_with_its_value_and_what_is_allowed(
    path: str, field: str, value: Any, param: str, words: list[str]
) -> None:
    """The message holds the value as the caller wrote it, and `param` is the path to it."""
    body = {"prompt": "hi"} if path == COMPLETIONS else {"messages": USER}
    error = refusal(path, 400, json=body | {field: value})
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    for word in words:
        assert word in error["message"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "content, words",
    [
        (b"", ["empty", "a JSON object"]),
        (b"  \n", ["empty"]),
        (b'{"prompt": "hi"', ["not valid JSON", "line 1, column 16"]),
        (b"{'prompt': 1}", ["not valid JSON", "column 2"]),
        (b"[1, 2]", ["a list of 2", "a JSON object"]),
        (b'"text"', ['"text"', "a JSON object"]),
        (b"null", ["null", "a JSON object"]),
        (b'{"temperature": NaN}', ["NaN", "finite"]),
        (b'{"temperature": -Infinity}', ["-Infinity", "finite"]),
        (
            b'{"prompt": "hi", "messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
            ["finite number"],
        ),
        (b'{"prompt": "\xff"}', ["UTF-8", "0xff", "position 12"]),
        (b'{"prompt": "\\ud83d"}', ["lone surrogate", "ud83d"]),
        (b'{"\\uDEAD": 1}', ["lone surrogate", "udead"]),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ["nested deeper than 200 levels"]),
        (b'{"metadata": ' + b"[" * 200 + b"]" * 200 + b"}", ["nested deeper than 200 levels"]),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ["nested deeper than 200 levels"]),
        (b'{"n": ' + b"9" * 5_000 + b"}", ["digits"]),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(path: str, content: bytes, words: list[str]) -> None:
    """The position of the mistake is told, and no input ends in an internal error."""
    error = refusal(path, 400, content=content)
    for word in words:
        assert word in error["message"]


def test_any_content_type_is_read_as_json() -> None:
    """curl -d sends a form's content type, and its users mean JSON."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    response = call(make_app(), "POST", COMPLETIONS, content=b'{"prompt": "hi"}', headers=headers)
    assert response.status_code == 200


def test_escaped_pairs_of_surrogates_are_whole_characters() -> None:
    """Python's json.dumps writes an emoji as two escapes, which together are fine."""
    engine = FakeEngine()
    body = json.dumps({"prompt": "\N{GRINNING FACE}", "add_special_tokens": False}).encode()
    assert b"\\ud83d" in body
    assert call(make_app(engine), "POST", COMPLETIONS, content=body).status_code == 200
    assert bytes(engine.requests[0].prompt_token_ids) == "\N{GRINNING FACE}".encode()


def test_a_body_over_the_limit_is_refused_by_its_declared_length() -> None:
    """It is not even read."""
    app = make_app(config=ServerConfig(max_body_bytes=1024))
    response = call(app, "POST", COMPLETIONS, json={"prompt": "x" * 2000})
    assert response.status_code == 413
    assert "the limit is 1024" in response.json()["error"]["message"]


def test_a_body_over_the_limit_is_refused_while_it_is_read() -> None:
    """A chunked body declares no length."""
    pulled = []

    async def chunks() -> Any:
        for i in range(1000):
            pulled.append(i)
            yield b"x" * 512

    app = make_app(config=ServerConfig(max_body_bytes=1024))
    response = call(app, "POST", COMPLETIONS, content=chunks())
    assert response.status_code == 413
    assert len(pulled) < 10


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/tokenize"])
def test_an_unknown_model_is_answered_with_the_known_names(path: str) -> None:
    """The caller need not ask /v1/models."""
    error = refusal(path, 404, json={"model": "gpt-9", "prompt": "hi", "messages": USER})
    assert error["type"] == "not_found_error"
    assert error["param"] == "model"
    assert error["code"] == "model_not_found"
    assert '"gpt-9"' in error["message"]
    assert "Qwen/Qwen2.5-0.5B-Instruct, small" in error["message"]


@pytest.mark.parametrize(
    "prompt, max_tokens, numbers",
    [
        ([1] * 150, 51, ["150", "51", "201", "200", "at most 50"]),
        ([1] * 200, None, ["200", "201", "shorten the prompt"]),
        ([1] * 5000, 10, ["5000", "10", "5010", "200", "shorten the prompt"]),
        ([1] * 201, 0, ["201 tokens", "0 more", "200", "shorten the prompt"]),
    ],
)
def test_a_prompt_that_cannot_fit_is_refused_with_all_numbers(
    prompt: list[int], max_tokens: int | None, numbers: list[str]
) -> None:
    """A request that can never fit is 400, since clients would repeat a 429 or 503."""
    error = refusal(COMPLETIONS, 400, json={"prompt": prompt, "max_tokens": max_tokens})
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "prompt"
    for number in [*numbers, "--max-model-len"]:
        assert number in error["message"]


def test_a_chat_that_cannot_fit_names_its_messages() -> None:
    """The same for a rendered prompt."""
    error = refusal(CHAT, 400, json={"messages": [{"role": "user", "content": "x" * 300}]})
    assert error["code"] == "context_length_exceeded"
    assert error["param"] == "messages"


def test_two_different_lengths_are_refused() -> None:
    """max_tokens and max_completion_tokens mean the same."""
    error = refusal(CHAT, 400, json={"messages": USER, "max_tokens": 3, "max_completion_tokens": 4})
    assert error["param"] == "max_completion_tokens"
    assert "3" in error["message"] and "4" in error["message"]


@pytest.mark.parametrize("path, own", [(CHAT, {"messages": USER}), (COMPLETIONS, {"prompt": "hi"})])
@pytest.mark.parametrize(
    "field, value, words",
    [("n", 2, ["n is 2", "must be 1"]), ("min_tokens", 3, ["3", "max_tokens, which is 0"])],
)
def test_a_warm_up_generates_nothing_so_nothing_may_be_asked_of_it(
    path: str, own: dict[str, Any], field: str, value: int, words: list[str]
) -> None:
    error = refusal(path, 400, json=own | {"max_tokens": 0, field: value})
    assert error["param"] == field
    for word in words:
        assert word in error["message"]


def test_a_stream_may_not_be_obfuscated() -> None:
    """Padding that hides the size of chunks is a protection; leaving it out in silence would lie."""
    options = {"include_usage": True, "include_obfuscation": True}
    error = refusal(CHAT, 400, json={"messages": USER, "stream": True, "stream_options": options})
    assert error["param"] == "stream_options.include_obfuscation"
    assert error["code"] == "unsupported_parameter"


def test_chat_without_a_template_is_refused_with_the_flag_to_set() -> None:
    """Base models have none."""
    response = call(make_app(renderer=None), "POST", CHAT, json={"messages": USER})
    assert response.status_code == 400
    assert "--chat-template" in response.json()["error"]["message"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, 1, -1, 2**63, 10**100, 1e308, "", "user", "text", "5"])
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "tool_calls", "function", "name", "arguments", "5"]
            ),
            inner,
        )
    ),
    max_leaves=12,
)
NAMES = sorted(
    {name for kind in (ChatBody, CompletionBody, PinBody) for name in [*kind.model_fields, *kind.refused]}
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "x"]), "content": JSON}, optional={"tool_calls": JSON}
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    path=st.sampled_from([CHAT, COMPLETIONS, "/tokenize", "/detokenize", "/v1/cache/pin"]),
    body=st.dictionaries(st.sampled_from([*NAMES, "tokens"]), JSON, max_size=4),
    prompt=st.just("hi") | JSON,
    messages=st.just(USER) | st.lists(MESSAGE, max_size=3) | JSON,
)
def test_no_body_is_an_internal_error(path: str, body: dict[str, Any], prompt: Any, messages: Any) -> None:
    """Whatever stands in whichever field: it is served, or refused with a reason."""
    own = {CHAT: {"messages": messages}, COMPLETIONS: {"prompt": prompt}}.get(
        path, {"prompt": prompt, "tokens": [1]}
    )
    response = call(make_app(), "POST", path, content=json.dumps(own | body).encode())
    # The fake engine pins nothing, so 409 is its answer to every pin that is asked for rightly.
    assert response.status_code in {200, 400, 404, *([409] if path == "/v1/cache/pin" else [])}, response.text
    if response.status_code != 200:
        assert response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
def test_a_text_that_cannot_fit_is_refused_before_it_is_split(path: str) -> None:
    """Splitting megabytes would hold up everybody else."""
    app = make_app(FakeEngine(max_model_len=200))
    response = call(app, "POST", path, json={"prompt": " " * 1_000_000})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")
    assert "1000000 bytes" in error["message"]


def test_a_chat_that_cannot_fit_is_refused_before_it_is_rendered() -> None:
    """The same for messages."""
    app = make_app(FakeEngine(max_model_len=200))
    messages = [{"role": "user", "content": "x" * 1_000_000}]
    response = call(app, "POST", "/v1/chat/completions", json={"messages": messages})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "messages")


def test_an_encoded_body_is_refused_by_its_encoding() -> None:
    """Rather than as broken UTF-8."""
    response = call(
        make_app(), "POST", "/v1/completions", content=b"{}", headers={"content-encoding": "gzip"}
    )
    assert response.status_code == 400
    assert 'content-encoding is "gzip"' in response.json()["error"]["message"]
