"""Files of usage: compressed, broken, none at all, and not logs."""

import gzip
import json
from pathlib import Path

import pytest

from anaphora.cli.usage_files import MAX_BAD_LINES, MAX_LINE_BYTES, OF_SEVERAL_LINES, UsageReader
from anaphora.cost.tally import Log
from tests.cost.test_server_metrics import VLLM
from tests.cost.test_shapes import OPENAI_CHAT

LINE = json.dumps({"usage": OPENAI_CHAT}).encode() + b"\n"


def read(tmp_path: Path, *contents: bytes) -> UsageReader:
    """Read files with these contents, called 0, 1, …"""
    reader = UsageReader(Log())
    for number, content in enumerate(contents):
        path = tmp_path / str(number)
        path.write_bytes(content)
        reader.read(path)
    return reader


def num_requests(reader: UsageReader) -> int:
    return sum(tally.num_requests or 0 for tally in reader.log.finish())


def reasons(reader: UsageReader) -> list[tuple[int | None, str]]:
    return [(problem.line, problem.reason) for problem in reader.problems]


@pytest.mark.parametrize(
    "content", [LINE * 2, b"\xef\xbb\xbf" + LINE.replace(b"\n", b"\r\n") * 2, gzip.compress(LINE * 2)]
)
def test_a_log_may_be_compressed_or_come_from_another_system(tmp_path: Path, content: bytes) -> None:
    reader = read(tmp_path, content)
    assert (num_requests(reader), reader.problems) == (2, [])


def test_of_a_damaged_compressed_file_counts_what_could_be_read(tmp_path: Path) -> None:
    content = b"".join(json.dumps({"n": n, "usage": OPENAI_CHAT}).encode() + b"\n" for n in range(50_000))
    reader = read(tmp_path, gzip.compress(content)[:-2000])
    ((line, reason),) = reasons(reader)
    assert line is None and reason.startswith("the compressed file is damaged: ")
    assert 0 < num_requests(reader) < 50_000


@pytest.mark.parametrize("content", [b'{\n"usage": {}\n}\n', b"[\n{}\n]\n"])
def test_a_text_of_several_lines_is_one_error_that_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    assert reasons(read(tmp_path, content)) == [(1, OF_SEVERAL_LINES)]


def test_a_file_that_is_no_log_is_given_up(tmp_path: Path) -> None:
    """A log with many bad lines is read to its end all the same."""
    found = reasons(read(tmp_path, b"\xff\n" * (MAX_BAD_LINES + 50)))
    assert len(found) == MAX_BAD_LINES + 1
    assert found[-1] == (None, "none of its first 100 lines can be read; is it a log of usage?")
    reader = read(tmp_path, LINE + b"x\n" * (MAX_BAD_LINES + 50) + LINE)
    assert len(reader.problems) == MAX_BAD_LINES + 50
    assert num_requests(reader) == 2


def test_a_line_without_an_end_is_not_read_for_ever() -> None:
    reader = UsageReader(Log())
    reader.read(Path("/dev/zero"))
    assert reasons(reader) == [(1, f"is longer than {MAX_LINE_BYTES:,} bytes; it must hold one JSON object")]


def test_a_second_scrape_is_refused_and_one_that_tells_nothing_is_an_error(tmp_path: Path) -> None:
    first, second = b"# HELP x y\n", b"vllm:prompt_tokens_total 1\n"
    reader = read(tmp_path, first, VLLM.encode(), second)
    assert [reason.split(",")[0] for _, reason in reasons(reader)] == [
        "it has none of the counters of a vLLM or anaphora server",
        "is a second file of metrics",
    ]
    assert reader.metrics_path == tmp_path / "1"
