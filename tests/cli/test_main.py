"""The command line: help, exit codes, one clear line for every error."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from anaphora.cli.main import main
from anaphora.cli.numbers import count


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("4G", 4 * 2**30),
        ("0.5M", 2**19),
        ("2g", 2 * 10**9),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_numbers_may_have_units(text: str, number: int) -> None:
    """Small letters count in thousands, capital letters in 1,024s."""
    assert count(text) == number


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["COMMAND"]),
        (["fly"], ["fly"]),
        (["serve", "--disable-prefix-caching"], ["--disable-prefix-caching"]),
        (["serve", "--no\nsuch"], ["--no\\nsuch"]),
        (["serve", "--block-size", "many"], ["'many' is not a number such as 8192, 8k or 4G"]),
        (["serve", "--max-num-seqs", "1.5"], ["'1.5' is not a whole number"]),
        (["simulate", "t", "--pages", "9" * 400], ["is too large"]),
        (["simulate", "t", "--pages", "9" * 9000], ["is too large"]),
        (["simulate", "no\nsuch\x1b[31m\udcff"], ["no\\nsuch\\x1b[31m\\udcff cannot be read"]),
        (["serve", "--prefix-caching-hash-algo", "md5"], ["md5", "sha256"]),
        (["serve", "--dtype", "int4"], ["int4", "bfloat16"]),
        (["serve", "--port", "70000"], ["--port is 70000", "65535"]),
        (["serve", "--max-num-seqs", "0"], ["--max-num-seqs is 0", "at least 1"]),
        (["serve", "--watermark", "1"], ["--watermark is 1", "below 1"]),
        (
            ["serve", "--max-num-batched-tokens", "8"],
            ["--max-num-batched-tokens is 8", "--max-num-seqs, which is 32"],
        ),
        (["serve", "--api-key", ""], ["--api-key is empty"]),
        (["serve", "--tenant-salt-secret-file", "/no/such/file"], ["/no/such/file", "cannot be read"]),
        (["serve", "--port", "0", "gpt-7"], ["there is no model, file or folder gpt-7"]),
        (["serve", "--port", "0", "Qwen/Qwen2.5-0.5B"], ["Qwen/Qwen2.5-0.5B", "Hugging Face id"]),
        (["pull", "gpt-7"], ["no model is named 'gpt-7'", "smollm2-135m"]),
    ],
)
def test_a_wrong_command_line_is_one_clear_message_and_exit_code_1(
    argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and nothing on standard output."""
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else -1
    captured = capsys.readouterr()
    assert (code, captured.out) == (1, "")
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert captured.err.count("\n") == (2 if "see `" in captured.err else 1)
    for word in words:
        assert word in captured.err


@pytest.mark.parametrize(
    "argv", [["--help"], ["serve", "--help"], ["pull", "--help"], ["explain", "--help"], ["--version"]]
)
def test_help_is_printed_with_exit_code_0(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command has an example."""
    with pytest.raises(SystemExit) as stop:
        main(argv)
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "anaphora" in out
    if len(argv) == 2:
        assert "example:" in out


@pytest.mark.model
def test_pull_prints_where_the_model_lies(capsys: pytest.CaptureFixture[str]) -> None:
    """For people a path, for machines JSON."""
    assert main(["pull", "smollm2-135m", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "smollm2-135m"
    assert found["path"].endswith("SmolLM2-135M-Instruct.Q4_1.gguf")


def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path) -> None:
    """As with `| head`."""
    usage = tmp_path / "usage.jsonl"
    usage.write_text(
        '{"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}}\n', "utf-8"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        told = subprocess.run(
            [sys.executable, "-m", "anaphora", "cost", str(usage), "--json"],
            stdout=output,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (told.returncode, told.stderr) == (1, b"")


def usage_command(tmp_path: Path, *options: str) -> list[str]:
    usage = tmp_path / "usage\udcff.jsonl"
    usage.write_text('{"usage": {"prompt_tokens": 9}}\n', "utf-8")
    return [sys.executable, "-m", "anaphora", "cost", str(usage), *options]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_full_disk_is_one_line(tmp_path: Path, options: tuple[str, ...]) -> None:
    """It was a traceback."""
    with Path("/dev/full").open("wb") as output:
        told = subprocess.run(
            usage_command(tmp_path, *options), stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert told.returncode == 1
    assert told.stderr == b"error: the output cannot be written: No space left on device\n"


def test_a_terminal_that_knows_few_characters_gets_escapes_for_the_others(tmp_path: Path) -> None:
    """A table, or the name of a file, ended in a traceback."""
    told = subprocess.run(
        usage_command(tmp_path),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (told.returncode, told.stderr) == (0, b"")
    assert told.stdout.isascii()


def test_signs_that_the_terminal_lacks_are_escaped() -> None:
    """A result is not lost for the sake of a dash."""
    told = subprocess.run(
        [sys.executable, "-m", "anaphora", "bench", "--help"],
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, b"")
    assert b"15, 16, 17, \\u2026 tokens" in told.stdout


def test_a_closed_output_is_no_traceback(tmp_path: Path) -> None:
    """As with `>&-`."""
    usage = tmp_path / "usage.jsonl"
    usage.write_text(
        '{"usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 3}}}\n', "utf-8"
    )
    told = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -m anaphora cost "$1" --json >&-', sys.executable, str(usage)],
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, b"")
