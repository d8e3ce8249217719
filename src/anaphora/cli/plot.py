"""The capacity curve as a picture; matplotlib is loaded only here."""

import warnings
from collections.abc import Sequence
from math import log
from pathlib import Path

from anaphora.bench.plot import load_matplotlib
from anaphora.cli.targets import check_can_write
from anaphora.errors import ConfigError
from anaphora.sim.order import BELADY
from anaphora.sim.report import Report

FORMATS = (".png", ".svg", ".pdf")
_LEAST_GAP = 0.1
"""How far labels are apart at least, as a share of the axis."""


def check_can_plot(path: Path, *sources: Path) -> None:
    """Raise MissingExtraError or ConfigError before anything is measured in vain; `sources` are files that are read."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {path} must end in one of {', '.join(FORMATS)}")
    check_can_write("--plot", path, *sources)
    load_matplotlib().use("agg")


def tick_labels(ticks: Sequence[int]) -> list[str]:
    """Return a label for each of some ascending sizes: none where it would cover the one before (logarithmic axis)."""
    labels, gap = [], _LEAST_GAP * log(ticks[-1] / ticks[0]) if ticks else 0.0
    last: int | None = None
    for tick in ticks:
        has_room = last is None or log(tick / last) >= gap
        labels.append(f"{tick:,}" if has_room else "")
        last = tick if has_room else last
    return labels


def plot(report: Report, path: Path) -> None:
    """Draw the hit rate of the last half against the pages, for each policy, with Belady's bound and the ceiling."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for policy in dict.fromkeys(point.policy for point in report.points):
        curve = sorted(
            (point.pages, 100 * point.hits.rate_last_half)
            for point in report.points
            if point.policy == policy
        )
        style = "o-"
        if policy == BELADY:
            style = "k--" if len(curve) > 1 else "kx"  # a line of one point cannot be seen
        axes.plot(
            [pages for pages, _ in curve],
            [rate for _, rate in curve],
            style,
            label=policy,
            linewidth=1.4,
            markersize=4,
        )
    ceiling = 100 * report.unbounded.rate_last_half
    axes.axhline(ceiling, color="grey", linestyle=":", label=f"pages without end ({ceiling:.1f} %)")
    axes.set_xscale("log", base=2)
    ticks = sorted({point.pages for point in report.points})
    axes.set_xticks(ticks, tick_labels(ticks))
    axes.minorticks_off()
    axes.set_ylim(0, max(5.0, 1.12 * ceiling))
    axes.set_xlabel(f"pages of {report.trace.page_size} tokens")
    axes.set_ylabel("hit rate in % of prompt tokens, last half")
    partial = " (partial)" if report.partial else ""
    # A name is no formula, and half a character is none that a font has.
    name = Path(report.file).name.encode("utf-8", "replace").decode()
    title = f"{name}: {len(report.trace.requests):,} requests{partial}"
    axes.set_title(title, fontsize=10, parse_math=False)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
    try:
        with warnings.catch_warnings(action="ignore"):  # of characters that the font has not
            figure.savefig(path, dpi=110)
    except OSError as error:
        raise ConfigError(f"--plot {path} cannot be written: {error.strerror}") from error
