"""Files, compressed or not, whole or damaged."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from anaphora.cli.trace_files import ReadOptions, read_trace
from anaphora.errors import ConfigError, TraceError
from anaphora.ids import TokenId
from anaphora.sim.chats import Tokenize

LINE = '{"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [7, 8, 9]}\n'


def tokenizer() -> Tokenize:
    def tokenize(body: dict[str, Any]) -> list[TokenId]:
        return [ord(character) for character in body["prompt"]]

    return tokenize


def no_tokenizer() -> Tokenize:
    raise AssertionError("this trace needs none")


def write(tmp_path: Path, data: bytes | str) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def test_a_compressed_file_is_read_as_it_is_whatever_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress((LINE * 3).encode()))
    assert len(read_trace(path, ReadOptions(block_size=4), no_tokenizer).requests) == 3


def test_only_so_many_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, LINE * 3 + "rubbish")
    trace = read_trace(path, ReadOptions(block_size=4, limit=2), no_tokenizer)
    assert (len(trace.requests), trace.error) == (2, None)


def test_what_was_read_before_a_malformed_line_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, LINE * 3 + '{"input_length": 3}\n' + LINE)
    trace = read_trace(path, ReadOptions(block_size=4), no_tokenizer)
    assert len(trace.requests) == 3
    assert trace.error == "line 4 has no output_length"


def test_a_file_that_was_cut_is_partial(tmp_path: Path) -> None:
    lines = "".join(
        json.dumps({"timestamp": n, "input_length": 9, "output_length": n * n, "hash_ids": [7, 8, n + 9]})
        + "\n"
        for n in range(3000)
    )
    data = gzip.compress(lines.encode())
    trace = read_trace(write(tmp_path, data[: len(data) // 2]), ReadOptions(block_size=4), no_tokenizer)
    assert 0 < len(trace.requests) < 3000
    assert trace.error is not None
    assert "damaged" in trace.error


def test_a_line_that_is_no_utf_8_is_named_and_costs_none_of_those_before(tmp_path: Path) -> None:
    """The file was decoded in large pieces: all lines of the piece were lost, and no number was said."""
    data = LINE.encode() * 3 + b'{"timestamp": "\xff"}\n'
    trace = read_trace(write(tmp_path, data), ReadOptions(block_size=4), no_tokenizer)
    assert len(trace.requests) == 3
    assert trace.error == "line 4 is not UTF-8 text: invalid start byte at byte 16"


def test_what_stands_before_a_wrong_checksum_is_kept(tmp_path: Path) -> None:
    data = gzip.compress(LINE.encode() * 3)[:-8] + b"rubbish."
    trace = read_trace(write(tmp_path, data), ReadOptions(block_size=4), no_tokenizer)
    assert (len(trace.requests), "damaged" in (trace.error or "")) == (3, True)


@pytest.mark.parametrize("text", [LINE, f"[{LINE}]"])
def test_a_byte_order_mark_and_the_line_ends_of_windows_are_no_harm(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert len(read_trace(path, ReadOptions(block_size=4), no_tokenizer).requests) == 1


def test_texts_take_the_engines_defaults(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps({"prompt": "a" * 40}) + "\n")
    trace = read_trace(path, ReadOptions(), tokenizer)
    assert (trace.block_size, trace.page_size, trace.min_prefill_tokens) == (16, 32, 2)
    assert len(trace.requests[0].block_ids) == 2


@pytest.mark.parametrize(
    "data, message",
    [
        ("", "holds no request"),
        ("\n\n", "holds no request"),
        ("{", "line 1 is not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\x1f\x8bxx", "damaged"),
        (
            '{"TIMESTAMP": 1, "ContextTokens": 3}\n',
            "line 1 has no hash_ids, messages, prompt or conversations",
        ),
    ],
)
def test_a_file_of_which_nothing_can_be_read_is_an_error(
    tmp_path: Path, data: bytes | str, message: str
) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, data), ReadOptions(), no_tokenizer)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none", ReadOptions(), no_tokenizer)


def test_a_page_must_hold_whole_blocks(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="--page-size is 6, but must be a multiple of the trace's block of 4"
    ):
        read_trace(write(tmp_path, LINE), ReadOptions(block_size=4, page_size=6), no_tokenizer)
    trace = read_trace(write(tmp_path, LINE), ReadOptions(block_size=4, page_size=8), no_tokenizer)
    assert trace.page_size == 8
