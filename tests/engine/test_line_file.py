"""The file that requests are recorded in."""

import os
import stat
import threading
from pathlib import Path

import pytest

from anaphora.engine import line_file
from anaphora.engine.line_file import LineFile
from anaphora.errors import ConfigError


def line_of(item: int) -> str:
    return f"{item}\n"


def test_what_was_put_in_is_there_in_order_after_close(tmp_path: Path) -> None:
    lines = LineFile(tmp_path / "f", line_of)
    for number in range(1000):
        lines.put(number)
    lines.close()
    assert (tmp_path / "f").read_text() == "".join(map(line_of, range(1000)))


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """Whatever the mask of the process."""
    mask = os.umask(0)
    try:
        LineFile(tmp_path / "f", line_of).close()
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_nothing_is_written_over(tmp_path: Path) -> None:
    """Not even through a link."""
    (tmp_path / "f").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("f", "link"):
        with pytest.raises(ConfigError, match="exists already"):
            LineFile(tmp_path / name, line_of)
    assert (tmp_path / "f").read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be made: No such file"):
        LineFile(tmp_path / "no" / "f", line_of)


def test_who_puts_in_never_waits_and_what_is_dropped_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(line_file, "MOST_WAITING", 2)
    gate, is_writing = threading.Event(), threading.Event()

    def slow(item: int) -> str:
        is_writing.set()
        gate.wait(10)
        return line_of(item)

    lines = LineFile(tmp_path / "f", slow)
    lines.put(0)
    assert is_writing.wait(10)
    for number in range(1, 6):
        lines.put(number)
    gate.set()
    lines.close()
    assert (tmp_path / "f").read_text() == "0\n1\n2\n"
    assert "3 lines are missing" in caplog.text


def test_a_full_disk_ends_the_file_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fails(item: int) -> str:
        raise OSError(28, "No space left on device")

    lines = LineFile(tmp_path / "f", fails)
    for number in range(100):
        lines.put(number)
    lines.close()
    assert "No space left on device" in caplog.text
