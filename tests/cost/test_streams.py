"""A message is what its first and its last frame say together."""

from collections.abc import Iterable
from typing import Any

from anaphora.cost.lines import Ended, Entry, LeftOut, Started
from anaphora.cost.shapes import read_usage
from anaphora.cost.streams import NO_START, REPEATS_START, MessageStreams
from anaphora.cost.usage import TokenSplit
from tests.cost.test_shapes import ANTHROPIC


def start(name: str, **fields: Any) -> Started:
    body = {**ANTHROPIC, "output_tokens": 1, **fields}
    return Started(Entry(read_usage(body), "m", name), body)


def outputs(*frames: Started | Ended) -> list[tuple[str | None, int | None]]:
    """The messages of a file, and their outputs."""
    streams = MessageStreams()
    found: list[Entry | LeftOut] = []
    for frame in frames:
        found += streams.take(frame)
    return [(e.response_id, e.usage.output) for e in entries([*found, *streams.rest()])]


def entries(found: Iterable[Entry | LeftOut]) -> list[Entry]:
    return [each for each in found if isinstance(each, Entry)]


def end(output: int, **fields: Any) -> Ended:
    return Ended({"output_tokens": output, **fields})


def test_the_output_is_that_of_the_last_frame() -> None:
    """message_start has 1 in its place: the tokens there were by then."""
    assert outputs(start("a"), end(250)) == [("a", 250)]
    assert outputs(start("a"), end(250), start("b"), end(9), end(10)) == [("a", 250), ("b", 10)]


def test_a_message_without_its_last_frame_has_no_output() -> None:
    assert outputs(start("a")) == [("a", None)]


def test_what_the_last_frame_says_of_the_prompt_goes_over_the_first() -> None:
    """A tool that ran on the provider's side gave the model more to read; null says nothing."""
    streams = MessageStreams()
    list(streams.take(start("a")))
    left_out = list(streams.take(end(9, input_tokens=5000, cache_read_input_tokens=None)))
    (entry,) = streams.rest()
    assert left_out == [LeftOut(REPEATS_START)]
    assert entry.usage.split == TokenSplit(fresh=5000, read=1920, write_short=48, write_long=16)


def test_messages_that_are_under_way_at_once_have_no_output() -> None:
    """No last frame says whose it is, the late one of the second message no more than the first."""
    frames = (start("a"), start("b"), end(5), start("c"), end(6), end(7), start("d"), end(8))
    assert outputs(*frames) == [("a", None), ("b", None), ("c", None), ("d", 8)]


def test_a_last_frame_alone_is_a_request_if_it_has_the_counts_of_a_prompt() -> None:
    (entry,) = entries(MessageStreams().take(Ended(ANTHROPIC)))
    assert entry.usage.split and entry.usage.split.total == 2006
    (entry,) = entries(MessageStreams("server").take(Ended(ANTHROPIC)))
    assert entry.usage.provider == "server"
    assert list(MessageStreams().take(end(3))) == [LeftOut(NO_START)]
