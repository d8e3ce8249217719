"""A message is what its first and its last frame say together."""

from collections.abc import Iterable
from typing import Any

from anaphora.cost.lines import FRAME_WITHOUT_USAGE, Ended, Entry, Found, LeftOut, Started, Stopped
from anaphora.cost.shapes import read_usage
from anaphora.cost.streams import MAX_IN_TURN, NO_START, REPEATS_START, MessageStreams
from anaphora.cost.usage import TokenSplit
from tests.cost.test_shapes import ANTHROPIC


def start(name: str, **fields: Any) -> Started:
    body = {**ANTHROPIC, "output_tokens": 1, **fields}
    return Started(Entry(read_usage(body), "m", name), body)


STOP = Stopped()


def outputs(*frames: Found) -> list[tuple[str | None, int | None]]:
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


def in_turn(num: int) -> list[Found]:
    """Messages one after another, called 0, 1, … with outputs 100, 101, …"""
    return [frame for n in range(num) for frame in (start(str(n)), end(100 + n))]


def test_a_stream_that_was_cut_off_does_not_take_the_outputs_of_all_later_messages() -> None:
    """It and those that may have overlapped it have none; with stops in the file too."""
    unknown = {"cut", *map(str, range(MAX_IN_TURN))}
    for stops in ([], [STOP]):
        frames = [
            each
            for frame in in_turn(MAX_IN_TURN + 20)
            for each in (frame, *(stops if isinstance(frame, Ended) else []))
        ]
        found = outputs(start("cut"), *frames)
        assert len(found) == MAX_IN_TURN + 21
        assert {name for name, output in found if output is None} == unknown
        assert found[-1] == (str(MAX_IN_TURN + 19), 119 + MAX_IN_TURN)


def test_streams_that_are_cut_off_while_it_is_waited_for_turns_do_not_put_these_off() -> None:
    half = in_turn(MAX_IN_TURN // 2)
    found = outputs(start("cut"), *half, start("cut"), *half, start("a"), end(7))
    assert [each for each in found if each[1] is not None] == [("a", 7)]


def test_messages_that_end_in_pairs_did_not_come_in_turn() -> None:
    """Two clients at work, of which now and then one ends before the next message of the other has begun."""
    pairs = [*in_turn(MAX_IN_TURN - 1), start("a"), end(1), end(2), start("b")]
    found = outputs(start("x"), start("y"), start("z"), *pairs, end(3), start("c"), end(4))
    assert [output for _, output in found] == [None] * len(found)


def test_what_may_overlap_is_not_held_back() -> None:
    """However long the log is."""
    streams = MessageStreams()
    given = [len(entries(streams.take(start(str(n))))) for n in range(1000)]
    assert given == [0, 2, *[1] * 998]
    assert list(streams.rest()) == []


def test_a_stop_ends_a_message_for_good() -> None:
    """A last frame behind it is of a message whose first one is not in the file."""
    streams = MessageStreams()
    frames = (start("a"), end(5), STOP, end(9), STOP)
    found = [each for frame in frames for each in streams.take(frame)]
    (entry,) = entries(found)
    assert (entry.response_id, entry.usage.output) == ("a", 5)
    rest = [each for each in found if isinstance(each, LeftOut)]
    assert rest == [
        LeftOut(each) for each in (REPEATS_START, FRAME_WITHOUT_USAGE, NO_START, FRAME_WITHOUT_USAGE)
    ]


def test_a_stop_that_comes_late_does_not_end_the_next_message() -> None:
    assert outputs(start("a"), end(5), start("b"), STOP, end(9), STOP) == [("a", 5), ("b", 9)]


def test_with_stops_a_message_that_tells_its_counts_twice_has_ended_once() -> None:
    """Or else of two that are under way both would seem to have ended."""
    frames = (
        start("x"),
        end(0),
        STOP,
        start("a"),
        start("b"),
        end(5),
        end(6),
        STOP,
        start("c"),
        end(7),
        STOP,
    )
    assert outputs(*frames) == [("x", 0), ("a", None), ("b", None), ("c", None)]


def test_a_last_frame_alone_is_a_request_if_it_has_the_counts_of_a_prompt() -> None:
    (entry,) = entries(MessageStreams().take(Ended(ANTHROPIC)))
    assert entry.usage.split and entry.usage.split.total == 2006
    (entry,) = entries(MessageStreams("server").take(Ended(ANTHROPIC)))
    assert entry.usage.provider == "server"
    assert list(MessageStreams().take(end(3))) == [LeftOut(NO_START)]
