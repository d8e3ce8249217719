"""The command before anything else is read in."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any

import pytest

from anaphora.__main__ import main


class Interrupted(MetaPathFinder):
    """Stands for a user who presses Ctrl-C while the command line is read in."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Interrupt the import of the command line, and leave all others alone."""
        if fullname == "anaphora.cli.main":
            raise KeyboardInterrupt


def test_ctrl_c_while_the_command_line_is_read_in_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback of half a page."""
    monkeypatch.delitem(sys.modules, "anaphora.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert main() == 1
    assert capsys.readouterr().err == "interrupted\n"


def test_the_entry_runs_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["anaphora", "simulate", "/no/such/file"])
    assert main() == 1
    assert capsys.readouterr().err == "error: /no/such/file cannot be read: No such file or directory\n"
