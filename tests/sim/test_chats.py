"""Logs of texts, read with a tokenizer that makes a token of each character."""

from typing import Any

import pytest

from anaphora.errors import InvalidRequestError, TraceError
from anaphora.ids import TokenId
from anaphora.sim.chats import TextReader
from anaphora.sim.trace import Trace


def tokenize(body: dict[str, Any]) -> list[TokenId]:
    if "messages" in body:
        text = "".join(f"<{message['role'][0]}>{message['content']}" for message in body["messages"]) + "<a>"
    else:
        text = body["prompt"]
    if "bad" in text:
        raise InvalidRequestError("messages[0].content is bad")
    return [ord(character) for character in text]


def read(*entries: dict[str, Any]) -> Trace:
    reader = TextReader(tokenize, block_size=4, page_size=8, min_prefill_tokens=2)
    for number, entry in enumerate(entries, 1):
        reader.add(f"line {number}", entry)
    return reader.trace(None)


def test_equal_beginnings_are_equal_blocks() -> None:
    trace = read(
        {"prompt": "abcdefghij"}, {"body": {"prompt": "abcdefgXYZ"}}, {"request": {"prompt": "abcd"}}
    )
    assert [request.block_ids for request in trace.requests] == [(0, 1), (0, 2), (0,)]
    assert [request.num_prompt_tokens for request in trace.requests] == [10, 10, 4]
    assert (trace.format, trace.page_size, trace.min_prefill_tokens) == ("request log", 8, 2)


def test_another_salt_or_model_shares_nothing() -> None:
    trace = read(
        {"prompt": "abcd"},
        {"prompt": "abcd", "cache_salt": "s"},
        {"prompt": "abcd", "model": "m"},
        {"prompt": "abcd"},
    )
    assert [request.block_ids for request in trace.requests] == [(0,), (1,), (2,), (0,)]


def test_a_log_may_say_when_and_how_much_was_answered() -> None:
    trace = read(
        {"created": 9, "request": {"prompt": "abcd"}, "response": {"usage": {"completion_tokens": 5}}},
        {"timestamp": 7.5, "prompt": "abcd"},
    )
    assert [(request.arrival_s, request.num_output_tokens) for request in trace.requests] == [
        (7.5, 0),
        (9.0, 5),
    ]


def test_a_conversation_is_a_request_for_each_reply() -> None:
    turns = [
        {"from": "system", "value": "S"},
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi!"},
        {"from": "human", "value": "Bye"},
        {"from": "gpt", "value": "Bye bye"},
    ]
    trace = read({"id": "x", "conversations": turns})
    first, second = trace.requests
    assert first.num_prompt_tokens == len("<s>S<u>Hello<a>")
    assert second.num_prompt_tokens == len("<s>S<u>Hello<a>Hi!<u>Bye<a>")
    assert (first.num_output_tokens, second.num_output_tokens) == (3, 7)
    assert second.block_ids[:3] == first.block_ids
    assert (trace.format, trace.has_times) == ("ShareGPT", False)


@pytest.mark.parametrize(
    "entry, message",
    [
        ({"answer": "x"}, "line 1 holds neither messages nor a prompt"),
        ({"prompt": "bad"}, r"line 1: messages\[0\].content is bad"),
        ({"prompt": ""}, "line 1 has an empty prompt"),
        ({"prompt": "abc", "cache_salt": 3}, "line 1: cache_salt is 3, but must be a text"),
        ({"prompt": "abc", "timestamp": "noon"}, "line 1: the time is 'noon'"),
        ({"prompt": "abc", "timestamp": float("nan")}, "line 1: the time is nan, but must be finite"),
        ({"prompt": "abc", "created": 10**400}, "line 1: the time is 1000"),
        ({"conversations": "x"}, "line 1: conversations is 'x', but must be a list"),
        ({"conversations": [{"from": "tool", "value": "x"}]}, "is no turn of a human"),
    ],
)
def test_what_cannot_be_read_is_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read(entry)
