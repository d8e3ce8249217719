"""Streams as several servers write them."""

import json
from typing import Any

import pytest

from anaphora.bench.frames import cached_tokens_of, read_stream


def _data(event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def _choice(**choice: Any) -> bytes:
    return _data({"choices": [choice]})


def test_content_comes_when_its_frame_is_complete_and_roles_are_no_content() -> None:
    """A frame in two chunks came with the second one."""
    first, second = _choice(delta={"content": "Hi"}), _choice(delta={"content": "!"}, finish_reason="stop")
    said = read_stream(
        [
            (1.0, _choice(delta={"role": "assistant", "content": ""}) + first[:9]),
            (2.0, first[9:]),
            (3.0, second + b"data: [DONE]\n\n"),
        ]
    )
    assert (said.content_at, said.text, said.finish_reason, said.is_complete) == (
        [2.0, 3.0],
        "Hi!",
        "stop",
        True,
    )


def test_an_output_without_text_came_when_it_ended() -> None:
    """Such as one that is an end-of-text token alone."""
    said = read_stream([(1.0, _choice(text="")), (2.0, _choice(text="", finish_reason="length"))])
    assert (said.content_at, said.first_at, said.is_complete) == ([], 2.0, False)


def test_line_ends_of_both_kinds_and_comments_are_read() -> None:
    """As the standard allows."""
    said = read_stream([(1.0, b': ping\r\ndata: {"choices": [{"text": "a"}]}\r\n\r\ndata: [DONE]')])
    assert (said.text, said.is_complete) == ("a", True)


@pytest.mark.parametrize(
    ("chunk", "words"),
    [(b"data: {oops\n\n", "not JSON"), (_data({"error": {"message": "engine lost"}}), "engine lost")],
)
def test_what_went_wrong_is_kept(chunk: bytes, words: str) -> None:
    """Behind what had come."""
    said = read_stream([(1.0, _choice(text="a")), (2.0, chunk)])
    assert said.text == "a" and words in (said.error or "")


def test_odd_shapes_are_passed_over() -> None:
    """A server of another make must not end the run with a traceback."""
    odd: list[Any] = [[], {"choices": {}}, {"choices": [3, {"delta": "x", "text": 4}]}, {"usage": 5}]
    said = read_stream(
        [(1.0, b"".join(map(_data, [*odd, {"choices": [{"text": "a", "token_ids": [1, "2"]}]}])))]
    )
    assert (said.text, said.token_ids, said.usage) == ("a", [1], None)


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        (None, None),
        ({"prompt_tokens": 9}, None),
        ({"prompt_tokens_details": None}, None),
        ({"prompt_tokens_details": [1]}, None),
        ({"prompt_tokens_details": {"cached_tokens": "7"}}, None),
        ({"prompt_tokens_details": {"cached_tokens": -7}}, None),
        ({"prompt_tokens_details": {"cached_tokens": 10**30}}, None),
        ({"prompt_tokens_details": {"cached_tokens": True}}, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
        ({"input_tokens_details": {"cached_tokens": 5}}, 5),
        ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}, 7),
    ],
)
def test_nothing_said_is_not_zero(usage: dict[str, Any] | None, cached: int | None) -> None:
    """Three spellings, and silence."""
    assert cached_tokens_of(usage) == cached
