"""A report as tables for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anaphora.bench.client import NUM_RETRIES
from anaphora.bench.report import Report
from anaphora.bench.statistics import Spread
from anaphora.bench.summary import ArmSummary
from anaphora.bench.whole_table import print_whole


def show(report: Report, console: Console) -> None:
    """Print who was measured, the arms, what was found, and whether it may be compared."""
    console.print(_facts(report))
    console.print()
    if report.arms:
        print_whole(_times(report), console)
        console.print()
        print_whole(_reuse(report), console)
        console.print()
    for line in lines(report):
        console.print(Text(line))


def lines(report: Report) -> list[str]:
    """Return the sentences below the tables; the last one is the exit line."""
    conclusion = report.conclusion
    found = [f"PARTIAL: {report.partial}"] if report.partial else []
    found += report.findings
    found += [f"disagreement: {text}" for text in conclusion.disagreements]
    if conclusion.equality and conclusion.equality.compared:
        found.append(
            f"outputs at temperature 0, cached against uncached: {conclusion.equality.different} of "
            f"{conclusion.equality.compared} differ"
        )
    return [*found, *_load(report), _sent(report), report.exit_line]


def _load(report: Report) -> list[str]:
    """Say that a client on a busy machine measures that machine too."""
    load, cores = report.client["load"], report.client["cores"]
    if load is None or cores is None or load <= cores:
        return []
    return [f"note: load {load} on {cores} cores when the run began: what else ran is in these times"]


def _sent(report: Report) -> str:
    failed = sum(not entry.is_good for entry in report.log)
    cut = sum(entry.answer.is_cut for entry in report.log)
    failures = f"{failed} failed ({report.timeouts} by time-out), {cut} cut short"
    return f"requests: {len(report.log)} sent, {failures}, {NUM_RETRIES} retries"


def _facts(report: Report) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for target in report.targets:
        name = " ".join(filter(None, (target.name, target.version)))
        table.add_row("server", Text(f"{name} at {target.root}, model {target.model}"))
        table.add_row(
            "cache",
            Text(f"block size {target.block_size or '?'} ({target.block_size_from}); reset: {target.reset}"),
        )
    client = report.client
    table.add_row(
        "client", Text(f"{client['client']}, commit {client['git_commit'] or 'unknown'}, {client['time']}")
    )
    table.add_row("machine", Text(f"{client['machine']}, load {client['load']}"))
    table.add_row(
        "prompts", Text(f"seed {report.seed}, set {report.log.prompt_set}, lengths {report.lengths}")
    )
    table.add_row("loop", Text(report.loop))
    return table


def _times(report: Report) -> Table:
    table = Table(title=f"{report.experiment}: times in ms, median [95 % interval]", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name in ("n", "failed", "first token", "p90", "p99", "per token", "end to end"):
        table.add_column(name, justify="right", no_wrap=True)
    has_queue = any(arm.queue and arm.queue.p99 for arm in report.arms)
    if has_queue:
        table.add_column("queue p99", justify="right", no_wrap=True)
    for arm in report.arms:
        table.add_row(*_time_cells(arm), *([_p99(arm.queue)] if has_queue else []))
    return table


def _time_cells(arm: ArmSummary) -> list[str]:
    p90 = _number(arm.ttft.p90 if arm.ttft else None)
    tail = [p90, _p99(arm.ttft), _median(arm.tpot), _median(arm.e2e)]
    return [arm.arm, str(arm.sent), str(arm.failed), _middle(arm.ttft), *tail]


def _reuse(report: Report) -> Table:
    table = Table(title="prompt tokens of all requests of an arm", title_justify="left")
    table.add_column("arm", no_wrap=True)
    for name in ("sent", "achievable", "usage says", "/metrics says", "achieved ÷ achievable"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in report.arms:
        table.add_row(
            arm.arm,
            f"{arm.prompt_tokens:,}",
            f"{arm.achievable:,}",
            _count(arm.reported),
            _count(arm.counted),
            _achieved(arm),
        )
    return table


def _middle(found: Spread | None) -> str:
    if found is None:
        return "–"
    if found.low is None or found.high is None:
        return _number(found.median)
    return f"{_number(found.median)} [{_number(found.low)}–{_number(found.high)}]"


def _median(found: Spread | None) -> str:
    return _number(found.median if found else None)


def _p99(found: Spread | None) -> str:
    return _number(found.p99 if found else None)


def _number(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1000:,.1f}"


def _count(tokens: int | None) -> str:
    return "not said" if tokens is None else f"{tokens:,}"


def _achieved(arm: ArmSummary) -> str:
    return "–" if arm.achieved is None else f"{arm.achieved:.3f}"
