"""Progress bars on standard error, so that standard output stays for results."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from anaphora.models.pull import PullProgress


@contextmanager
def pull_progress(name: str) -> Iterator[PullProgress]:
    """Show how far a pull is; nothing appears when there is nothing to fetch."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True)
    tasks: dict[str, TaskID] = {}

    def show(stage: str, done_bytes: int, total_bytes: int) -> None:
        if not tasks:
            bars.start()
        if stage not in tasks:
            tasks[stage] = bars.add_task(f"{stage} {name}", total=total_bytes)
        bars.update(tasks[stage], completed=done_bytes)

    try:
        yield show
    finally:
        if tasks:
            bars.stop()


@contextmanager
def work_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show how far work with several stages is, on a terminal only; each stage has its own count."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield show
