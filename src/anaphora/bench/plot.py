"""A report as a picture, by matplotlib, which is an extra and imported only here.

The picture shows what the table says: medians with their intervals, and what was reused beside what could have been.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anaphora.bench.report import Report
from anaphora.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
BLUE, ORANGE, GREY = "#2b6cb0", "#c05621", "#a0aec0"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "anaphora",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
}


def check_plot(path: Path) -> None:
    """Refuse, before anything is measured, a picture that could not be drawn."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {path} ends in {path.suffix or 'nothing'}, but must end in .png or .svg")
    load_matplotlib()


def load_matplotlib() -> Any:
    """Return matplotlib; raises MissingExtraError when it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("--plot needs matplotlib; run: pip install 'anaphora[plot]'") from error
    return mpl


def draw(report: Report, path: Path) -> None:
    """Draw a report into a file."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        _DRAWERS.get(report.experiment, _draw_arms)(figure, report)
        figure.suptitle(_title(report), fontsize=9, x=0.01, ha="left", parse_math=False)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {}
        figure.savefig(path, dpi=130, metadata=metadata)


def _title(report: Report) -> str:
    target = report.targets[0]
    state = " · PARTIAL" if report.partial else ""
    verdict = "comparable" if report.is_comparable else "not comparable, see the table"
    what = f"{target.name} {target.version or ''} · {target.model} · {report.loop}"
    title = f"{report.experiment} · {what} · {verdict}{state}"
    return "".join(sign if sign.isprintable() else "?" for sign in title)


def _draw_arms(figure: "Figure", report: Report) -> None:
    """Bars for arms: time to first token, and tokens of prompts."""
    times, tokens = figure.subplots(1, 2)
    arms = [arm for arm in report.arms if arm.ttft]
    names, is_crowded = [arm.arm for arm in arms], len(arms) > 4
    medians = [arm.ttft.median * 1000 for arm in arms if arm.ttft]
    spans = [_span(arm.ttft.median, arm.ttft.low, arm.ttft.high) for arm in arms if arm.ttft]
    times.bar(names, medians, color=BLUE, yerr=list(zip(*spans, strict=True)), capsize=4, ecolor="black")
    for place, arm in enumerate(arms):
        times.annotate(
            f"{medians[place]:,.0f}" + ("" if is_crowded else f" (n={arm.sent - arm.failed})"),
            (place, medians[place] + spans[place][1]),
            ha="center",
            va="bottom",
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
        )
    times.set(title="time to first token, median and 95 % interval", ylabel="ms")
    times.margins(y=0.15)
    _token_bars(tokens, report)
    if is_crowded:
        for axes in (times, tokens):
            axes.tick_params(axis="x", rotation=20)


def _token_bars(axes: "Axes", report: Report) -> None:
    """What each arm reused per request beside what it could have, and beside its whole prompt."""
    arms = [arm for arm in report.arms if arm.sent > arm.failed]
    series: list[tuple[str, str, Sequence[float | None]]] = [
        ("prompt", "#e2e8f0", [arm.prompt_tokens / (arm.sent - arm.failed) for arm in arms]),
        ("achievable", GREY, [arm.achievable / (arm.sent - arm.failed) for arm in arms]),
        ("usage says", BLUE, [_each(arm.reported, arm.sent - arm.failed) for arm in arms]),
        ("/metrics says", ORANGE, [_each(arm.counted, arm.sent - arm.failed) for arm in arms]),
    ]
    width = 0.8 / len(series)
    for number, (name, colour, values) in enumerate(series):
        places = [place + (number - 1.5) * width for place in range(len(arms))]
        label = name if any(value is not None for value in values) else f"{name} (nothing)"
        axes.bar(places, [value or 0 for value in values], width, label=label, color=colour)
    axes.set_xticks(range(len(arms)), [arm.arm for arm in arms])
    axes.set(title="tokens per request", ylabel="tokens")
    below = -0.12 if len(arms) <= 4 else -0.22
    axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, below), ncols=4)


def _each(total: int | None, number: int) -> float | None:
    return None if total is None else total / number


def _span(middle: float, low: float | None, high: float | None) -> tuple[float, float]:
    """Return how far an interval reaches below and above, in milliseconds."""
    if low is None or high is None:
        return 0.0, 0.0
    return (middle - low) * 1000, (high - middle) * 1000


def _draw_boundary(figure: "Figure", report: Report) -> None:
    """The staircase by cached tokens, and the time to first token below the same lengths."""
    stairs, times = figure.subplots(1, 2)
    details = report.conclusion.details
    steps, unit = details.get("steps", []), details.get("block_size", report.targets[0].unit)
    lengths = range(max((step["shared"] for step in steps), default=0) + unit)
    stairs.step(
        lengths, [n // unit * unit for n in lengths], where="post", color=GREY, label=f"blocks of {unit}"
    )
    seen = [(step["shared"], value) for step in steps for value in step["seen"]]
    stairs.plot(
        [x for x, _ in seen], [y for _, y in seen], "o", color=BLUE, markersize=4, label="cached_tokens"
    )
    stairs.set(title="tokens reused", xlabel="tokens that the prompts share", ylabel="tokens")
    stairs.legend(frameon=False, fontsize=8)
    timed = [step for step in steps if step["ttft_ms"] is not None]
    spans = [
        (
            s["ttft_ms"] - (s["ttft_low_ms"] or s["ttft_ms"]),
            (s["ttft_high_ms"] or s["ttft_ms"]) - s["ttft_ms"],
        )
        for s in timed
    ]
    if timed:
        times.errorbar(
            [step["shared"] for step in timed],
            [step["ttft_ms"] for step in timed],
            yerr=list(zip(*spans, strict=True)),
            fmt="o",
            color=BLUE,
            markersize=4,
            capsize=2,
            elinewidth=0.8,
        )
    for edge in range(unit, lengths.stop, unit):
        times.axvline(edge, color=GREY, linewidth=0.5, zorder=0)
    times.set(
        title="time to first token, median and 95 % interval",
        xlabel="tokens that the prompts share",
        ylabel="ms",
    )
    times.set_ylim(bottom=0)


def _draw_multiturn(figure: "Figure", report: Report) -> None:
    """By turn: what was reused, and the time to first token beside a never-seen prompt of that length."""
    tokens, times = figure.subplots(1, 2)
    rows = report.conclusion.details.get("turns", [])
    for arm, colour in (("text", BLUE), ("ids", ORANGE), ("control", GREY)):
        own = [row for row in rows if row["arm"] == arm]
        if not own:
            continue
        turns = [row["turn"] for row in own]
        times.plot(turns, [row["ttft_ms"] for row in own], "o-", color=colour, label=arm)
        if arm != "control":
            tokens.plot(
                turns, [row["cached_tokens"] for row in own], "o-", color=colour, label=f"{arm}: cached"
            )
            tokens.plot(
                turns,
                [row["achievable"] for row in own],
                color=colour,
                linewidth=6,
                alpha=0.25,
                label=f"{arm}: achievable",
            )
        if arm == "text":
            tokens.plot(turns, [row["prompt_tokens"] for row in own], ":", color="black", label="prompt")
    tokens.set(title="tokens of the prompt", xlabel="turn", ylabel="tokens")
    times.set(title="time to first token, median", xlabel="turn", ylabel="ms")
    for axes in (tokens, times):
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
        axes.xaxis.get_major_locator().set_params(integer=True)


def _draw_replay(figure: "Figure", report: Report) -> None:
    """Request by request: reuse beside the ceiling, and the time to first token by tokens computed."""
    reuse, times = figure.subplots(1, 2)
    unit = report.targets[0].unit
    good = sorted(report.log.good(), key=lambda entry: entry.number)
    numbers = [entry.number for entry in good]
    reuse.bar(numbers, [e.prompt_tokens for e in good], color="#e2e8f0", label="prompt", width=0.9)
    reuse.step(
        numbers,
        [e.planned // unit * unit for e in good],
        where="mid",
        color="black",
        linewidth=0.8,
        label="achievable",
    )
    reuse.bar(
        numbers, [e.answer.cached_tokens or 0 for e in good], color=BLUE, label="cached_tokens", width=0.9
    )
    reuse.set(title="tokens, request by request", xlabel="request", ylabel="tokens")
    reuse.legend(frameon=False, fontsize=8)
    computed = [(e.prompt_tokens - (e.answer.cached_tokens or 0), e.answer.ttft_s) for e in good]
    times.plot(
        [x for x, y in computed if y], [y * 1000 for _, y in computed if y], "o", color=BLUE, markersize=4
    )
    times.set(title="time to first token", xlabel="prompt tokens computed", ylabel="ms")
    times.set_ylim(bottom=0)


_DRAWERS: dict[str, Callable[["Figure", Report], None]] = {
    "boundary": _draw_boundary,
    "multiturn": _draw_multiturn,
    "replay": _draw_replay,
}
