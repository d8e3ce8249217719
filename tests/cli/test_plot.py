import sys
from pathlib import Path

import pytest

from anaphora.cli.main import main
from anaphora.cli.plot import check_can_plot, tick_labels
from anaphora.errors import ConfigError
from tests.cli.test_simulate import write_trace

pytest.importorskip("matplotlib")


def test_a_curve_is_drawn(tmp_path: Path) -> None:
    path = write_trace(tmp_path)
    assert main(["simulate", str(path), "--plot", str(tmp_path / "c.png")]) == 0
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    assert main(["simulate", str(path), "--plot", str(tmp_path / "c.svg")]) == 0
    assert "<svg" in (tmp_path / "c.svg").read_text()


def test_sizes_that_lie_close_are_not_written_over_each_other() -> None:
    assert tick_labels([3000, 3100, 3200, 20_000]) == ["3,000", "", "", "20,000"]
    assert tick_labels([1756, 3513, 7027]) == ["1,756", "3,513", "7,027"]
    assert tick_labels([8]) == ["8"]
    assert tick_labels([]) == []


@pytest.mark.parametrize("name", ["a$b^{$c.gz", "half\udcff.gz", "漢字.gz"])
def test_the_name_of_a_trace_is_no_formula(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """It was read as one, and ended in a traceback after all had been measured."""
    path = write_trace(tmp_path).rename(tmp_path / name)
    assert main(["simulate", str(path), "--pages", "20", "--plot", str(tmp_path / "c.PNG")]) == 0
    assert (tmp_path / "c.PNG").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "name, message",
    [
        ("c.doc", "must end in one of .png, .svg, .pdf"),
        ("c.pgf", "must end in one of .png, .svg, .pdf"),
        ("no/c.png", "there is no folder"),
    ],
)
def test_what_cannot_be_drawn_is_said_before_anything_is_measured(
    tmp_path: Path, name: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_can_plot(tmp_path / name)


def test_without_matplotlib_the_command_to_run_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["simulate", str(write_trace(tmp_path)), "--plot", str(tmp_path / "c.png")]) == 1
    captured = capsys.readouterr()
    assert captured.err == "error: --plot needs matplotlib; run: pip install 'anaphora[plot]'\n"
    assert captured.out == ""
