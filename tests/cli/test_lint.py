"""`anaphora lint`: exit codes, both outputs, what happens to lines that hold no request, and the fix."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from anaphora.cli.lint import is_failing, show
from anaphora.cli.log_file import read_log, show_errors, write_log
from anaphora.cli.main import main
from anaphora.errors import ConfigError
from tests.lint.support import QUESTIONS, STORY, chat, lint_bodies, renderer

GOOD = json.dumps(chat("Hi."))


def _no_tick(what: str, done: int, total: int) -> None:
    return


def _write(folder: Path, *lines: str | bytes | dict[str, Any]) -> Path:
    path = folder / "log.jsonl"
    texts = [json.dumps(line) if isinstance(line, dict) else line for line in lines]
    path.write_bytes(b"\n".join(text.encode() if isinstance(text, str) else text for text in texts))
    return path


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON that can be read: "),
        ("[1]", "a JSON array, but must be an object"),
        (b'{"a": "\xff"}', "not UTF-8: "),
        ("[" * 100_000, "nested deeper than 200 levels"),
        ({"messages": []}, "messages is an empty list"),
        ({"level": "info"}, "neither messages nor prompt"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content is of type int"),
    ],
)
def test_a_line_that_is_no_request_has_its_number_and_the_rest_is_read(
    line: Any, reason: str, tmp_path: Path
) -> None:
    log = read_log(_write(tmp_path, GOOD, line, "", GOOD), renderer(), _no_tick)
    assert [request.line for request in log.requests] == [1, 4]
    (error,) = log.errors
    assert error.line == 2 and reason in error.reason and "\n" not in error.reason


def test_what_is_no_file_of_lines_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder was said not to be there, and each piece of a compressed file to be no request."""
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    for path, message in (
        (tmp_path, "is a folder; give a file with one request a line"),
        (tmp_path / "none", "cannot be read: there is no such file"),
        (packed, "is compressed; unpack it first, as with `gunzip --keep`"),
    ):
        assert main(["lint", str(path)]) == 1
        assert capsys.readouterr() == ("", f"error: {path} {message}\n")


def test_many_errors_are_counted() -> None:
    log = [(number, "no") for number in range(1, 31)]
    from anaphora.cli.log_file import LineError

    lines = list(show_errors([LineError(*error) for error in log], 20))
    assert (lines[0], len(lines), lines[-1]) == (
        "line 1: no",
        21,
        "and 10 more lines that could not be processed",
    )


def test_a_log_is_written_again_line_by_line(tmp_path: Path) -> None:
    """Lines that do not change are kept byte by byte, also those that hold no request."""
    odd = '{"messages":[ {"role":"user", "content":"\\u00e5"}]}'
    wrapped = {"time": 1.50, "request": chat("Hi."), "status": 200}
    path = _write(tmp_path, odd, "{", "", wrapped, "")
    log = read_log(path, renderer(), _no_tick)
    sources = [request.source for request in log.requests]
    out = tmp_path / "out.jsonl"
    write_log(out, log, sources)
    assert out.read_bytes() == path.read_bytes()
    write_log(out, log, [sources[0], {**sources[1], "messages": [{"role": "user", "content": "\ud800 Ho."}]}])
    lines = out.read_text().split("\n")
    assert lines[:3] == [odd, "{", ""]
    made = json.loads(lines[3])
    assert list(made) == ["time", "request", "status"]
    assert made["request"]["messages"][0]["content"] == "\ud800 Ho."


def test_findings_fail_from_the_severity_that_was_asked_for() -> None:
    low = lint_bodies([chat("Hi.", system=f"It is 12:01:31. {STORY}")])
    high = lint_bodies([chat(q, system=f"It is 12:0{i}:31. {STORY}") for i, q in enumerate(QUESTIONS)])
    assert [is_failing(low, level) for level in ("high", "medium", "low")] == [False, False, True]
    assert [is_failing(high, level) for level in ("high", "medium", "low")] == [True, True, True]


def test_people_get_a_table_and_markup_in_prompts_stays_text() -> None:
    bodies = [chat(q, system=f"[bold]It is 12:0{i}:31.[/oops] {STORY}") for i, q in enumerate(QUESTIONS)]
    console = Console(width=100)
    with console.capture() as captured:
        show(lint_bodies(bodies), console, has_template=False)
    shown = captured.get()
    assert "volatile_value" in shown and "L7 did not run" in shown and "stand-in" in shown
    with console.capture() as captured:
        show(lint_bodies([chat("Hi.")], is_own=True), console, has_template=True)
    assert "nothing found" in captured.get() and "did not run" not in captured.get().replace("L10", "")[:80]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.jsonl"], "there is no such file"),
        (["nowhere.jsonl", "--fix", "{log}"], "there is no such file"),
        (["{log}", "--fix", "{log}"], "is the file that is read"),
        (["{log}", "--pages", "0"], "must be at least"),
        (["{log}", "--model", "nothing-like-it"], "anaphora pull smollm2-135m"),
        (["{log}", "--chat-template", "nowhere.jinja"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _write(tmp_path, GOOD)
    assert main(["lint", *(argument.replace("{log}", str(log)) for argument in arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and words in captured.err and captured.err.count("\n") == 1


def test_a_fix_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    log = read_log(_write(tmp_path, GOOD), renderer(), _no_tick)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_log(tmp_path / "no" / "out.jsonl", log, [log.requests[0].source])


@pytest.mark.model
def test_a_log_with_a_clock_is_linted_and_fixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 for findings, 0 without, 1 when a line could not be processed."""
    bodies = [chat(q, system=f"It is 12:0{i}:31 now. {STORY}") for i, q in enumerate(QUESTIONS)]
    path, out = _write(tmp_path, *bodies), tmp_path / "fixed.jsonl"
    assert main(["lint", str(path), "--fix", str(out), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in found["findings"]] == ["L1"]
    assert found["fix"]["reused_tokens"] - found["reused_tokens"] == found["findings"][0]["tokens_lost"] > 0
    assert main(["lint", str(out), "--fail-on", "low"]) == 0
    assert "nothing found" in capsys.readouterr().out
    broken = _write(tmp_path, *bodies, "{")
    assert main(["lint", str(broken)]) == 1
    captured = capsys.readouterr()
    assert "volatile_value" in captured.out and "line 5: not JSON" in captured.err
    assert main(["lint", str(out), "--model", "smollm2-135m", "--pages", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_run"] == []
