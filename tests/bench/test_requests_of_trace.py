"""Traces, and lines that are none."""

import gzip
import json
from pathlib import Path

import pytest

from anaphora.bench.requests_of_trace import TracedRequest, read_trace
from anaphora.errors import ConfigError

GOOD = {"timestamp": 1500, "input_length": 20, "output_length": 3, "hash_ids": [0, 1]}


def _write(folder: Path, *lines: object) -> Path:
    path = folder / "trace.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines), "utf-8"
    )
    return path


def test_requests_come_in_order_of_arrival_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    """The first two requests stand on lines 1 and 3."""
    path = _write(tmp_path, GOOD, "", GOOD | {"timestamp": 0}, GOOD)
    assert read_trace(path, 16, 2) == [TracedRequest(0.0, 20, 3, (0, 1)), TracedRequest(1.5, 20, 3, (0, 1))]


def test_a_packed_trace_is_read_as_it_is(tmp_path: Path) -> None:
    """As the public ones come."""
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(GOOD).encode()))
    assert len(read_trace(path, 16, 10)) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{oops", "line 2 is not JSON"),
        ([1], "line 2 holds no JSON object"),
        (GOOD | {"timestamp": "now"}, "line 2: timestamp is 'now'"),
        (GOOD | {"timestamp": -1}, "line 2: timestamp is -1"),
        (GOOD | {"hash_ids": None}, "line 2: hash_ids is None"),
        (GOOD | {"input_length": 0}, "line 2: input_length is 0, but must be a whole number of at least 1"),
        (GOOD | {"output_length": 1.5}, "line 2: output_length is 1.5"),
        (
            GOOD | {"hash_ids": [0, 1, 2]},
            "line 2: 3 hash_ids do not fit 20 tokens in blocks of 16; give the trace's own",
        ),
    ],
)
def test_a_malformed_line_is_named_with_its_number_and_the_reason(
    tmp_path: Path, line: object, words: str
) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError) as caught:
        read_trace(_write(tmp_path, GOOD, line), 16, 10)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_no_trace_is_named(tmp_path: Path) -> None:
    """Absent, empty, or packed only by name."""
    empty, fake = _write(tmp_path, ""), tmp_path / "fake.gz"
    fake.write_text("plain")
    for path, words in (
        (tmp_path / "none", "cannot be read"),
        (empty, "holds no request"),
        (fake, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=words):
            read_trace(path, 16, 10)
