"""Where a line has its usage, and what is no request of its own."""

import json
from typing import Any

import pytest

from anaphora.cost.lines import FAILED, FRAME_WITHOUT_USAGE, REPEATS_START, Entry, LeftOut, read_line
from anaphora.cost.usage import TokenSplit, UsageShapeError
from tests.cost.test_shapes import ANTHROPIC, BARE, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES, TRACE


def read(value: Any, provider: str | None = None) -> Entry:
    entry = read_line(json.dumps(value), provider)
    assert isinstance(entry, Entry)
    return entry


@pytest.mark.parametrize(
    ("value", "provider", "model", "response_id"),
    [
        ({"id": "c", "object": "chat.completion", "model": "m", "usage": OPENAI_CHAT}, "openai", "m", "c"),
        ({"id": "r", "object": "response", "model": "m", "usage": OPENAI_RESPONSES}, "openai", "m", "r"),
        ({"id": "a", "type": "message", "model": "m", "usage": ANTHROPIC}, "anthropic", "m", "a"),
        ({"usageMetadata": GEMINI, "modelVersion": "g", "responseId": "x"}, "gemini", "g", None),
        (OPENAI_CHAT, "openai", None, None),
        ({**TRACE, "model": "m"}, "server", "m", None),
        ({"model": "m", "response": {"id": "c", "usage": OPENAI_CHAT}}, "openai", "m", "c"),
        ({"response": {"body": {"id": "c", "model": "m", "usage": OPENAI_CHAT}}}, "openai", "m", "c"),
        ({"response_body": json.dumps({"model": "m", "usage": ANTHROPIC})}, "anthropic", "m", None),
        (
            {"type": "message_start", "message": {"id": "a", "model": "m", "usage": ANTHROPIC}},
            "anthropic",
            "m",
            "a",
        ),
        ({"type": "response.completed", "response": {"usage": OPENAI_RESPONSES}}, "openai", None, None),
    ],
)
def test_a_usage_is_found_in_its_envelope(
    value: Any, provider: str, model: str | None, response_id: str | None
) -> None:
    entry = read(value)
    assert (entry.usage.provider, entry.model, entry.response_id) == (provider, model, response_id)
    assert entry.usage.split and entry.usage.split.total == 2006


def test_a_copy_of_the_usage_further_in_is_not_counted_again() -> None:
    entry = read({"usage": TRACE, "response": {"usage": OPENAI_CHAT}})
    assert entry.usage.provider == "server"


def test_a_null_beside_the_envelope_does_not_hide_the_usage_inside() -> None:
    """Nor do bare counts of a log's entry, which say less than the response."""
    assert read({"usage": None, "response": {"usage": OPENAI_CHAT}}).usage.split
    assert read({"prompt_tokens": 2006, "response": {"usage": OPENAI_CHAT}}).usage.split


def test_what_a_response_says_of_itself_settles_whose_input_tokens_it_has() -> None:
    """Against the choice for the whole log, even."""
    assert read({"type": "message", "usage": BARE}, "openai").usage.provider == "anthropic"
    assert read({"object": "response", "usage": BARE}, "anthropic").usage.provider == "openai"


def test_a_response_does_not_settle_fields_of_two_providers() -> None:
    mixed = {**OPENAI_CHAT, "cache_read_input_tokens": 1920}
    with pytest.raises(UsageShapeError, match="--provider openai or --provider anthropic"):
        read({"object": "chat.completion", "usage": mixed})


def test_a_server_of_ones_own_speaks_the_shapes_of_others() -> None:
    entry = read({"object": "chat.completion", "usage": OPENAI_CHAT}, "server")
    assert (entry.usage.provider, entry.usage.split) == (
        "server",
        TokenSplit(fresh=22, read=1920, write_short=64),
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"object": "chat.completion.chunk", "usage": None, "choices": [{}]}, FRAME_WITHOUT_USAGE),
        ({"object": "chat.completion.chunk", "choices": [{}]}, FRAME_WITHOUT_USAGE),
        ({"type": "content_block_delta", "delta": {}}, FRAME_WITHOUT_USAGE),
        ({"type": "message_stop"}, FRAME_WITHOUT_USAGE),
        ({"type": "ping"}, FRAME_WITHOUT_USAGE),
        (
            {"type": "response.created", "response": {"object": "response", "usage": None}},
            FRAME_WITHOUT_USAGE,
        ),
        ({"type": "message_delta", "usage": {"output_tokens": 9}}, REPEATS_START),
        ({"type": "message_delta", "usage": ANTHROPIC}, REPEATS_START),
        ({"error": {"message": "too long"}}, FAILED),
        ({"response": {"error": {"message": "too long"}}}, FAILED),
    ],
)
def test_what_is_no_request_of_its_own_is_left_out(value: Any, reason: str) -> None:
    assert read_line(json.dumps(value)) == LeftOut(reason)


def test_a_response_whose_usage_is_null_is_a_request_that_was_not_reported() -> None:
    entry = read({"object": "chat.completion", "model": "m", "usage": None})
    assert (entry.usage.provider, entry.model) == ("openai", "m")
    assert entry.usage.not_said == "the provider did not report the usage of the response: it is null"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON: "),
        ("[" * 100_000, "is not JSON: "),
        ("[1]", "holds list, but must hold a JSON object"),
        ("{}", "holds no usage object; its fields are: none at all"),
        ('{"a": 1}', "holds no usage object; its fields are: a"),
        ('{"usage": 3}', "usage is '3', but must be an object"),
        ('{"usage": {"tokens": 3}}', "the usage object has no known field; it has: tokens"),
    ],
)
def test_a_line_that_cannot_be_read_says_why(text: str, words: str) -> None:
    with pytest.raises(UsageShapeError) as caught:
        read_line(text)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
