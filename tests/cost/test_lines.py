"""Where a line has its usage, and what is no request of its own."""

import json
from typing import Any

import pytest

from anaphora.cost.lines import (
    FAILED,
    FRAME_WITHOUT_USAGE,
    IS_NULL,
    NOT_IN_STREAM,
    Ended,
    Entry,
    LeftOut,
    Started,
    Stopped,
    read_line,
)
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
        ({"usageMetadata": GEMINI, "modelVersion": "g", "responseId": "x"}, "gemini", "g", "x"),
        (OPENAI_CHAT, "openai", None, None),
        ({**TRACE, "model": "m"}, "server", "m", None),
        ({"model": "m", "response": {"id": "c", "usage": OPENAI_CHAT}}, "openai", "m", "c"),
        ({"response": {"body": {"id": "c", "model": "m", "usage": OPENAI_CHAT}}}, "openai", "m", "c"),
        ({"response_body": json.dumps({"model": "m", "usage": ANTHROPIC})}, "anthropic", "m", None),
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
        ({"type": "ping"}, FRAME_WITHOUT_USAGE),
        (
            {"type": "response.created", "response": {"object": "response", "usage": None}},
            FRAME_WITHOUT_USAGE,
        ),
        ({"candidates": [{}], "usageMetadata": {"trafficType": "ON_DEMAND"}}, FRAME_WITHOUT_USAGE),
        ({"error": {"message": "too long"}}, FAILED),
        ({"response": {"error": {"message": "too long"}}}, FAILED),
        (
            {"response": {"status_code": 400, "body": {"error": {"message": "too long"}}}, "error": None},
            FAILED,
        ),
        ({"response": None, "error": {"code": "batch_expired"}}, FAILED),
        ({"custom_id": "c", "result": {"type": "expired"}}, FAILED),
        ({"custom_id": "c", "result": {"type": "canceled"}}, FAILED),
    ],
)
def test_what_is_no_request_of_its_own_is_left_out(value: Any, reason: str) -> None:
    assert read_line(json.dumps(value)) == LeftOut(reason)


@pytest.mark.parametrize(
    "text", ["event: message_start", ": keep-alive", "id: 7", "retry: 100", "data: [DONE]"]
)
def test_a_stream_may_be_logged_as_it_came(text: str) -> None:
    assert read_line(text) == LeftOut(FRAME_WITHOUT_USAGE)
    entry = read_line(
        "data: " + json.dumps({"object": "chat.completion.chunk", "id": "c", "usage": OPENAI_CHAT})
    )
    assert isinstance(entry, Entry) and entry.usage.split and entry.usage.split.total == 2006


def test_the_frames_of_an_anthropic_stream_are_told_apart_also_in_an_envelope() -> None:
    start = {
        "type": "message_start",
        "message": {"id": "a", "model": "m", "type": "message", "usage": ANTHROPIC},
    }
    delta = {"type": "message_delta", "usage": {"output_tokens": 9}}
    for frame in (start, {"time": 1, "data": start}):
        found = read_line(json.dumps(frame))
        assert isinstance(found, Started) and found.body == ANTHROPIC
        assert (found.entry.model, found.entry.response_id) == ("m", "a")
    for frame in (delta, {"time": 1, "data": json.dumps(delta)}):
        assert read_line(json.dumps(frame)) == Ended({"output_tokens": 9})


def test_the_stop_of_an_anthropic_stream_is_known_also_in_an_envelope() -> None:
    for frame in ({"type": "message_stop"}, {"time": 1, "data": {"type": "message_stop"}}):
        assert read_line(json.dumps(frame)) == Stopped()


def test_the_end_of_a_stream_without_usage_is_a_request_that_was_not_reported() -> None:
    """Unless a chunk with the same id has the usage."""
    entry = read({"object": "chat.completion.chunk", "id": "c", "choices": [{"finish_reason": "stop"}]})
    assert (entry.usage.not_said, entry.response_id, entry.is_empty) == (NOT_IN_STREAM, "c", True)


def test_only_the_chunks_of_gemini_grow() -> None:
    assert read({"usageMetadata": GEMINI, "responseId": "x"}).is_growing
    assert read({"usageMetadata": GEMINI, "responseId": "x"}, "server").is_growing
    assert not read({"usage": OPENAI_CHAT, "id": "x"}).is_growing


def test_a_response_whose_usage_is_null_is_a_request_that_was_not_reported() -> None:
    entry = read({"object": "chat.completion", "model": "m", "usage": None})
    assert (entry.usage.provider, entry.model) == ("openai", "m")
    assert (entry.usage.not_said, entry.is_empty) == (IS_NULL, True)


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
