"""What `anaphora bench` shows while it runs, and where its report goes: a table, a JSON line, a picture."""

import argparse
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anaphora.bench.experiment import Experiment
from anaphora.bench.plot import check_plot, draw
from anaphora.bench.report import Report
from anaphora.bench.table import show
from anaphora.cli.targets import check_can_write
from anaphora.errors import ConfigError

_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def check_files(options: argparse.Namespace) -> None:
    """Refuse, before anything is measured, a file that could not be written, or that another is."""
    trace = getattr(options, "trace", None)
    sources = () if trace is None else (trace,)
    if options.plot is not None:
        check_plot(options.plot)
        check_can_write("--plot", options.plot, *sources)
    if options.json in {None, "-"}:
        return
    path = Path(options.json)
    check_can_write("--json", path, *sources)
    if options.plot is not None and options.plot.resolve() == path.resolve():
        raise ConfigError(f"--json {path} would overwrite the plot; name another file")


@contextmanager
def ending_like_ctrl_c() -> Iterator[None]:
    """Take a request to end (a closed terminal, `kill`) as Ctrl-C: results are kept, and own servers are stopped.

    What whoever started us ignores on purpose, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signs = [sign for sign in _ENDINGS if signal.getsignal(sign) is signal.SIG_DFL]
    for sign in signs:
        signal.signal(sign, _interrupt)
    try:
        yield
    finally:
        for sign in signs:
            signal.signal(sign, signal.SIG_DFL)


def _interrupt(*_: object) -> None:
    """Do what Ctrl-C does, also in the background, where shells have Ctrl-C ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


@contextmanager
def progress_of(experiment: Experiment) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many requests were sent."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console, least = Console(stderr=True), experiment.num_requests
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(f"bench {experiment.name}", total=least)
        yield lambda done: bars.update(task, completed=done, total=max(done, least))


def write(report: Report, options: argparse.Namespace) -> None:
    """Write the files first, since whoever reads the table may stop reading; one that fails keeps no other back."""
    line, failed = json.dumps(report.as_json()), []
    if options.json not in {None, "-"}:
        failed += _kept("--json", options.json, lambda: Path(options.json).write_text(line + "\n", "utf-8"))
    if options.plot is not None:
        failed += _kept("--plot", options.plot, lambda: draw(report, options.plot))
    if options.json == "-":
        print(line)
    else:
        show(report, _console())
    if failed:
        raise ConfigError("; ".join(failed))


def _kept(flag: str, path: str | Path, write: Callable[[], object]) -> list[str]:
    """Write a file, and return what went wrong."""
    try:
        write()
    except OSError as error:
        return [f"{flag} {path} cannot be written: {error.strerror or error}"]
    return []


def _console() -> Console:
    """Return a console whose tables are not squeezed where nobody says how wide it is."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, 130))
