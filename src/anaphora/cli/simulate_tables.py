"""A simulation's report for people: what was counted, the curve, times, and what to set."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from anaphora.bench.whole_table import print_whole
from anaphora.sim.order import BELADY, Hits, Point
from anaphora.sim.report import Costs, Report, advice, spread
from anaphora.sim.timed import TimedPoint


def show(report: Report, console: Console) -> None:
    """Print a report."""
    if report.partial:
        console.print(Text(f"PARTIAL: {report.partial}", style="bold red"))
    console.print(_facts(report))
    if report.points:
        print_whole(_curve(report), console)
    timed = [point for point in report.points if isinstance(point, TimedPoint)]
    if timed:
        print_whole(_times(timed), console)
    elif report.costs:
        print_whole(_ttfts(report, report.costs), console)
    if report.recommendation:
        console.print(Text("recommendation", style="bold"))
        for line in advice(report.recommendation, report.trace):
            console.print(Text(f"  {line}"))


def _facts(report: Report) -> Table:
    trace, means = report.trace, report.definitions()
    sizes = ", ".join(f"{size}: {rate:.1%}" for size, rate in report.block_sizes.items())
    rows = [
        ("trace", f"{report.file} ({trace.format})"),
        (
            "requests",
            (
                f"{len(trace.requests):,}, {trace.num_prompt_tokens:,} prompt tokens, "
                f"{trace.num_unique_blocks:,} different blocks of {trace.block_size}"
            ),
        ),
        ("mode", _mode(report)),
        ("hit rate", means["hit_rate"]),
        ("counted", means["numerator"]),
        ("denominator", means["denominator"]),
        ("warm-up", means["warm_up"]),
        ("as recorded", _rates(report.recorded)),
        ("pages without end", _rates(report.unbounded)),
        ("by block size", f"{sizes} (pages without end, last half)"),
        ("cost model", _cost(report)),
        *(("note", note) for note in trace.notes),
    ]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, Text(value))
    return table


def _rates(hits: Hits | None) -> str:
    return f"{hits.rate_all:.1%} all, {hits.rate_last_half:.1%} last half" if hits else ""


def _mode(report: Report) -> str:
    if report.mode == "order":
        return "order: one request after another, through the engine's own cache"
    return "timed: arrivals and the engine's own scheduler, on a simulated clock"


def _cost(report: Report) -> str:
    costs = report.costs
    if costs is None:
        return ""
    model = costs.model
    text = (
        f"{costs.source}: {1e3 * model.step_s:.3g} ms a step, {1e6 * model.prefill_token_s:.3g} µs a prefilled token, "
        f"{1e3 * model.decode_s:.3g} ms a decoded one; {1e9 * model.prefill_pair_s:.3g} and "
        f"{1e9 * model.decode_pair_s:.3g} ns for each token that these attend to"
    )
    if costs.fit:
        text += (
            f"; {costs.fit.num_samples} samples, off by {costs.fit.mean_residual:.1%} on average and "
            f"{costs.fit.worst_residual:.1%} at worst"
        )
    return text


def _curve(report: Report) -> Table:
    """Return hit rates by pages: all requests / last half."""
    policies = list(dict.fromkeys(point.policy for point in report.points))
    table = Table(title="hit rate in %, all/last half", title_justify="left", box=SIMPLE_HEAD)
    for name in ("pages", "tokens", *policies):
        table.add_column(name, justify="right")
    by_place: dict[tuple[int, str], Point | TimedPoint] = {(p.pages, p.policy): p for p in report.points}
    for pages in sorted({point.pages for point in report.points}):
        cells = [_cell(by_place.get((pages, policy))) for policy in policies]
        table.add_row(f"{pages:,}", _short(pages * report.trace.page_size), *cells)
    refused = {point.pages: point.num_refused for point in report.points if point.num_refused}
    if refused:
        table.caption = "never fit, and count as not found: " + ", ".join(
            f"{number:,} requests with {pages:,} pages" for pages, number in refused.items()
        )
    return table


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.{1 if value >= 10 else 3}f}"


def _short(number: int) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number:,}"


def _cell(point: Point | TimedPoint | None) -> str:
    if point is None:
        return "-"
    return f"{100 * point.hits.rate_all:.1f}/{100 * point.hits.rate_last_half:.1f}"


def _ttfts(report: Report, costs: Costs) -> Table:
    """Return the times to first token of requests that are alone, by pages and policy."""
    table = Table(
        title="time to first token in s, each request alone (no queue)", title_justify="left", box=SIMPLE_HEAD
    )
    for name in ("pages", "policy", "mean", "p50", "p90", "p99"):
        table.add_column(name, justify="right")
    for point in report.points:
        if point.policy != BELADY:
            times = spread(costs.ttfts_s(point.hits))
            table.add_row(f"{point.pages:,}", point.policy, *(map(_seconds, times.values())))
    return table


def _times(points: list[TimedPoint]) -> Table:
    table = Table(title="in time; TTFT and queue in s", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    columns = ("pages", "policy", "TTFT\np50", "p90", "p99", "queue\np90", "max\nqueue", "coal-\nesced")
    for name in (*columns, "pre-\nempts", "end"):
        table.add_column(name, justify="right")
    for point in points:
        ttft, queue = spread(point.ttfts_s), spread(point.queueing_s)
        table.add_row(
            f"{point.pages:,}",
            point.policy,
            *(_seconds(ttft[name]) for name in ("p50", "p90", "p99")),
            _seconds(queue["p90"]),
            f"{point.most_waiting:,}",
            f"{point.num_coalesced:,}",
            f"{point.num_preemptions:,}",
            _seconds(point.end_s),
        )
    return table
