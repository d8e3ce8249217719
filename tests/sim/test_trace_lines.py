"""The formats, and what is said of lines that are none."""

import json
from typing import Any

import pytest

from anaphora.errors import ConfigError, TraceError
from anaphora.sim.trace import Trace
from anaphora.sim.trace_lines import PublicReader, RecordingReader, entries
from tests.sim.recorded import RecordedRun
from tests.sim.test_steps import LAYOUTS

LINE = {"timestamp": 1500, "input_length": 9, "output_length": 2, "hash_ids": [7, 8, 9]}


def read(*lines: Any, block_size: int | None = 4) -> Trace:
    reader = PublicReader(block_size)
    for where, entry in entries(line if isinstance(line, str) else json.dumps(line) for line in lines):
        reader.add(where, entry)
    return reader.trace(None)


def test_a_mooncake_line() -> None:
    trace = read(LINE, {**LINE, "timestamp": 2000, "input_length": 12})
    assert (trace.format, trace.block_size, trace.counts_tail) == ("Mooncake", 4, True)
    first, second = trace.requests
    assert (first.num_prompt_tokens, first.num_output_tokens, first.arrival_s) == (9, 2, 1.5)
    assert first.block_ids == second.block_ids == (0, 1, 2)


def test_a_bailian_line_counts_seconds() -> None:
    line = {**LINE, "timestamp": 61.5, "chat_id": 3, "parent_chat_id": -1, "turn": 1, "type": "text"}
    trace = read(line)
    assert (trace.format, trace.requests[0].arrival_s) == ("Qwen-Bailian", 61.5)


def test_requests_are_put_in_order_of_arrival() -> None:
    trace = read(LINE, {**LINE, "timestamp": 3, "input_length": 10})
    assert [request.num_prompt_tokens for request in trace.requests] == [10, 9]


def test_a_list_of_objects_is_read_as_well() -> None:
    assert len(read(json.dumps([LINE, LINE])).requests) == 2


@pytest.mark.parametrize(
    "rest, message",
    [
        (', {"input', "entry 3 is not JSON"),
        (", 3]", "entry 3 is 3, but must be a JSON object"),
        (",]", "entry 3 is not JSON"),
        ("", "behind entry 2 stands neither a comma nor the end of the list"),
        ("] {}", "behind the end of the list stands something else"),
    ],
)
def test_what_stands_in_a_list_before_its_damage_is_read(rest: str, message: str) -> None:
    """A list that had been cut was refused as a whole, with all that could be read."""
    found = []
    with pytest.raises(TraceError, match=message):
        for _, entry in entries([json.dumps([LINE, LINE])[:-1], rest]):
            found.append(entry)
    assert found == [LINE, LINE]


def test_namespaces_keep_equal_ids_apart() -> None:
    trace = read({**LINE, "namespace": "a"}, {**LINE, "namespace": "b"})
    assert [request.block_ids for request in trace.requests] == [(0, 1, 2), (3, 4, 5)]


def test_the_block_size_is_what_fits_every_line_if_only_one_power_of_two_does() -> None:
    long = {"input_length": 4000, "output_length": 1, "hash_ids": list(range(8))}
    trace = read(long, block_size=None)
    assert trace.block_size == 512
    assert "512 tokens a block" in trace.notes[0]


def test_an_open_block_size_must_be_given() -> None:
    with pytest.raises(ConfigError, match="Give --block-size"):
        read({**LINE, "input_length": 9, "hash_ids": [1]}, block_size=None)


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2 is not JSON"),
        ("3", "line 2 is 3, but must be a JSON object"),
        ({**LINE, "hash_ids": None}, "line 2: hash_ids is None, but must be a list"),
        ({**LINE, "input_length": "9"}, "line 2: input_length is '9', but must be a whole number"),
        ({**LINE, "input_length": True}, "line 2: input_length is True"),
        ({**LINE, "input_length": 0}, "line 2: input_length is 0, but must be at least 1"),
        ({**LINE, "output_length": -1}, "line 2: output_length is -1"),
        ({**LINE, "timestamp": "now"}, "line 2: timestamp is 'now', but must be a number"),
        (
            '{"input_length": 9, "output_length": 1, "hash_ids": [7, 8, 9], "timestamp": NaN}',
            "must be finite",
        ),
        (
            {**LINE, "hash_ids": [7, 8]},
            "line 2 has 2 blocks for 9 tokens, but with --block-size 4 it must have 3",
        ),
        ({**LINE, "hash_ids": []}, "line 2 has no block for 9 tokens"),
        ({**LINE, "hash_ids": [7, 9, 8]}, "line 2: block id 9 does not follow what it followed before"),
        ({**LINE, "hash_ids": [7, 8, 7]}, "line 2: block id 7 does not follow"),
        ({**LINE, "hash_ids": [7, 8, 1.5]}, "line 2: the block id 1.5 is neither a whole number nor a text"),
        ({"input_length": 9, "output_length": 1}, "line 2 has no hash_ids"),
        ({**LINE, "namespace": []}, "line 2: namespace is [], but must be a text or a whole number"),
        ({**LINE, "timestamp": 10**400}, "line 2: timestamp is 1000"),
        ({**LINE, "output_length": 10**30}, "but must be at most 2,147,483,648"),
        ("[1, 2]", "line 2 is [1, 2], but must be a JSON object"),
    ],
)
def test_a_malformed_line_is_named_with_the_reason(line: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message.replace("[", r"\[")):
        read(LINE, line)


def test_a_line_that_fits_no_size_of_those_before_is_named() -> None:
    first = {"input_length": 4000, "output_length": 1, "hash_ids": list(range(8))}
    with pytest.raises(
        TraceError, match="line 2 has 3 blocks for 9 tokens, but the lines before say 500 to 571"
    ):
        read(first, LINE, block_size=None)


def recorded_lines() -> list[str]:
    run = RecordedRun(LAYOUTS[1])
    run.add("a", range(10), 9)
    run.add("b", range(30, 50), 2)
    run.run()
    return run.lines


def read_recording(*lines: str, block_size: int | None = None) -> Trace:
    reader = RecordingReader(block_size)
    for where, entry in entries(lines):
        reader.add(where, entry)
    return reader.trace(None)


def test_a_recording_comes_back_in_order_of_arrival_with_the_servers_settings() -> None:
    lines = recorded_lines()
    assert [json.loads(line)["input_length"] for line in lines] == [20, 10]  # in order of ending
    trace = read_recording(*lines)
    assert [request.num_prompt_tokens for request in trace.requests] == [10, 20]
    assert trace.engine is not None
    assert trace.engine.layout == LAYOUTS[1]
    assert trace.layout(LAYOUTS[1].num_usable_pages) == LAYOUTS[1]
    assert [len(request.output_block_ids) for request in trace.requests] == [2, 0]


def changed(line: str, **changes: Any) -> str:
    entry = json.loads(line)
    for path, value in changes.items():
        *outer, name = path.split("__")
        target = entry
        for key in outer:
            target = target[key]
        target[name] = value
    return json.dumps(entry)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hash_ids": []}, "has 0 block ids for 10 tokens"),
        ({"engine__eviction_policy": "mru"}, "eviction_policy is 'mru', which this version does not know"),
        ({"engine__scheduler": {}}, "recorded by another version"),
        ({"engine__page_size": 6}, "must divide the runner's page"),
        ({"engine__max_model_len": 9}, "was recorded with other settings than the lines before"),
        ({"turn_record": {}}, "has no number"),
        ({"cached_tokens": None}, "cached_tokens is None"),
        ({"cached_tokens": 11}, "cached_tokens is 11, but the prompt has 10"),
        ({"output_length": 90}, "has 2 block ids for 90 output tokens behind 10 of a prompt"),
        ({"engine__num_pages": 10**9}, "num_pages is 1,000,000,000, but must be at most"),
        ({"engine__scheduler__max_num_seqs": 1.5}, "max_num_seqs is 1.5, but must be a whole number"),
        ({"engine__scheduler__scheduling_policy": []}, "scheduling_policy is [], but must be a text"),
        ({"turn_record__number": 1}, "has the number 1 of line 1; a recording is of one run"),
    ],
)
def test_a_damaged_recording_is_refused(changes: dict[str, Any], message: str) -> None:
    first, second = recorded_lines()
    with pytest.raises(TraceError, match=message.replace("[", r"\[")):
        read_recording(first, changed(second, **changes))


def test_another_block_size_than_was_recorded_is_refused() -> None:
    with pytest.raises(TraceError, match="recorded in blocks of 4, but --block-size is 8"):
        read_recording(*recorded_lines(), block_size=8)
