"""The capacity curve as a picture; matplotlib is loaded only here."""

from pathlib import Path

from anaphora.bench.plot import load_matplotlib
from anaphora.errors import ConfigError
from anaphora.sim.order import BELADY
from anaphora.sim.report import Report


def check_can_plot(path: Path) -> None:
    """Raise MissingExtraError or ConfigError before anything is measured in vain."""
    load_matplotlib().use("agg")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    if path.suffix.lstrip(".") not in known:
        raise ConfigError(f"--plot {path} must end in one of {', '.join('.' + name for name in known)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"--plot {path}: there is no folder {path.absolute().parent}")


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
        style = "k--" if policy == BELADY else "o-"
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
    axes.set_xticks(ticks, [f"{pages:,}" for pages in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, max(5.0, 1.12 * ceiling))
    axes.set_xlabel(f"pages of {report.trace.page_size} tokens")
    axes.set_ylabel("hit rate in % of prompt tokens, last half")
    partial = " (partial)" if report.partial else ""
    axes.set_title(f"{Path(report.file).name}: {len(report.trace.requests):,} requests{partial}", fontsize=10)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise ConfigError(f"--plot {path} cannot be written: {error.strerror}") from error
