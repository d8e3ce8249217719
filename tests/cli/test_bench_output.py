"""Where the report of `anaphora bench` goes, and that it gets there."""

import json
import signal
from argparse import Namespace
from pathlib import Path

import pytest

from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.report import Report
from anaphora.cli.bench_output import check_files, ending_like_ctrl_c, write
from anaphora.errors import ConfigError
from tests.bench.fakes import FakeServer, bench


def _options(json_path: object = None, plot: Path | None = None, **more: object) -> Namespace:
    return Namespace(json=None if json_path is None else str(json_path), plot=plot, **more)


def _report() -> Report:
    return bench(PrefixExperiment(tokens=40, rounds=3, output_tokens=2), FakeServer(models=("é$a$b$",)))


def test_files_that_could_not_be_written_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    """A folder, a folder that is not there, and a file that something else is."""
    trace, drawn = tmp_path / "trace.jsonl", tmp_path / "trace.svg"
    trace.touch()
    drawn.touch()
    (tmp_path / "link.json").symlink_to(trace)
    (tmp_path / "hard.json").hardlink_to(trace)
    for options, words in (
        (_options(tmp_path), r"--json .* is a folder"),
        (_options(""), r"--json .* is a folder"),
        (_options(None, tmp_path), "must end in"),
        (_options(None, tmp_path / "no" / "x.svg"), r"--plot .*there is no folder"),
        (_options(tmp_path / "no" / "x.json"), "there is no folder"),
        (_options(tmp_path / "x.svg", tmp_path / "x.svg"), "would overwrite the plot"),
        (_options(tmp_path / "." / "trace.jsonl", trace=trace), r"--json .* is the file that is read"),
        (_options(tmp_path / "link.json", trace=trace), r"--json .* is the file that is read"),
        (_options(tmp_path / "hard.json", trace=trace), r"--json .* is the file that is read"),
        (_options(None, drawn, trace=drawn), r"--plot .* is the file that is read"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_files(options)
    folder = tmp_path / "folder.png"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"--plot .* is a folder"):
        check_files(_options(None, folder))
    check_files(_options("-"))


def test_a_file_that_cannot_be_written_loses_neither_the_table_nor_the_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder took its name while the run was under way, say."""
    picture = tmp_path / "p.png"
    with pytest.raises(ConfigError, match=r"^--json .* cannot be written: Is a directory$"):
        write(_report(), _options(tmp_path, picture))
    assert "comparable: yes" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_files_are_there_before_the_table_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the table, such as `head`, may end the command."""
    path = tmp_path / "r.json"
    options, seen = _options(path), []
    report = _report()

    class Watched(Report):
        @property
        def exit_line(self) -> str:
            seen.append(path.exists())
            return "watched"

    write(Watched(**{name: getattr(report, name) for name in Report.__slots__}), options)
    assert seen == [True]
    assert "watched" in capsys.readouterr().out
    assert path.read_text("utf-8").isascii()
    assert json.loads(path.read_text("utf-8"))["targets"][0]["model"] == "é$a$b$"


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_a_request_to_end_is_ctrl_c_also_in_the_background(
    sign: signal.Signals, ctrl_c: signal.Handlers
) -> None:
    """Where shells have Ctrl-C ignored; afterwards all is as it was."""
    before = signal.signal(signal.SIGINT, ctrl_c)
    try:
        with pytest.raises(KeyboardInterrupt), ending_like_ctrl_c():
            signal.raise_signal(sign)
    finally:
        signal.signal(signal.SIGINT, before)
    assert signal.getsignal(sign) is signal.SIG_DFL


def test_what_is_ignored_on_purpose_stays_ignored() -> None:
    """As by `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_like_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
