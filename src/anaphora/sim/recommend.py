"""What to set, from what was measured, and how sure that is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from anaphora.sim.order import BELADY, Hits
from anaphora.sim.trace import Trace, ceiling

WORTH = 0.01
"""The gain in hit rate for which it is worth to have more pages."""
POLICY_WORTH = 0.005
"""The gain in hit rate for which it is worth to leave the default policy."""
BLOCK_WORTH = 0.001
"""The loss in hit rate for which it is not worth to have smaller blocks."""
MOST_DRIFT = 0.05
FEW_REQUESTS, MANY_REQUESTS = 100, 1000
BLOCK_FACTORS = (1, 2, 4, 8)

Confidence = Literal["high", "medium", "low"]


class Measured(Protocol):
    """One point of a curve, of order mode or of timed mode."""

    @property
    def policy(self) -> str:
        """Its policy."""
        ...

    @property
    def pages(self) -> int:
        """Its pages."""
        ...

    @property
    def hits(self) -> Hits:
        """What was found."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The settings, the hit rate to expect of them (last half), and what that is worth.

    `gain_over_lru` is at the same number of pages; `missing_to_unbounded` is what pages without end would add.
    """

    pages: int
    policy: str
    block_size: int
    hit_rate: float
    gain_over_lru: float
    missing_to_unbounded: float
    confidence: Confidence
    reasons: tuple[str, ...]


def block_size_ceilings(trace: Trace) -> dict[int, float]:
    """Return the hit rate without bounds (last half) by block size: the trace's own and coarser ones."""
    lengths = [request.num_prompt_tokens for request in trace.requests]
    sizes = {}
    for factor in BLOCK_FACTORS:
        if (
            factor == 1
            or trace.page_size == trace.block_size
            or trace.page_size % (trace.block_size * factor) == 0
        ):
            coarser = trace.coarser(factor)
            sizes[coarser.block_size] = Hits(ceiling(coarser), lengths).rate_last_half
    return sizes


def recommend(
    trace: Trace,
    points: Sequence[Measured],
    unbounded: Hits,
    block_sizes: Mapping[int, float],
    *,
    partial: str | None = None,
) -> Recommendation | None:
    """Return what to set, or None when nothing was measured that can be set; `partial` is why that is not all."""
    real = [point for point in points if point.policy != BELADY]
    if not real:
        return None
    chosen = {
        pages: _choose_policy([p for p in real if p.pages == pages]) for pages in {p.pages for p in real}
    }
    best = max(point.hits.rate_last_half for point in chosen.values())
    pages = min(pages for pages, p in chosen.items() if p.hits.rate_last_half >= best - WORTH)
    point = chosen[pages]
    plain = next((p for p in real if p.pages == pages and p.policy == "lru"), None)
    confidence, reasons = _confidence(trace, real, point, unbounded, partial)
    return Recommendation(
        pages=pages,
        policy=point.policy,
        block_size=_choose_block_size(block_sizes),
        hit_rate=point.hits.rate_last_half,
        gain_over_lru=point.hits.rate_last_half - plain.hits.rate_last_half if plain else 0.0,
        missing_to_unbounded=unbounded.rate_last_half - point.hits.rate_last_half,
        confidence=confidence,
        reasons=reasons,
    )


def _quarters(hits: Hits) -> tuple[float, float]:
    """Return the hit rates of the third and of the fourth quarter."""
    size = len(hits.prompt_tokens)
    return hits.rate(size // 2, 3 * size // 4), hits.rate(3 * size // 4)


def _choose_policy(points: Sequence[Measured]) -> Measured:
    """Return the best of the policies; the default unless another one is clearly better, and in both quarters."""
    best = max(points, key=lambda point: point.hits.rate_last_half)
    default = next((point for point in points if point.policy == "lru"), None)
    if default is None or best is default:
        return best
    gain = best.hits.rate_last_half - default.hits.rate_last_half
    is_steady = all(new > old for new, old in zip(_quarters(best.hits), _quarters(default.hits), strict=True))
    return best if gain >= POLICY_WORTH and is_steady else default


def _choose_block_size(ceilings: Mapping[int, float]) -> int:
    """Return the largest that loses little; where nothing is ever found it is the trace's own."""
    finest = min(ceilings)
    return max(
        (size for size, rate in ceilings.items() if 0 < rate >= ceilings[finest] - BLOCK_WORTH),
        default=finest,
    )


def _confidence(
    trace: Trace, points: Sequence[Measured], point: Measured, unbounded: Hits, partial: str | None
) -> tuple[Confidence, tuple[str, ...]]:
    """Return how sure it is that the next traffic will do as well, and best with that; with the reasons against."""
    doubts = [*_doubts_of_range(trace, points, unbounded), *_doubts_of_traffic(point, unbounded, partial)]
    levels: tuple[Confidence, ...] = ("high", "medium", "low")
    return levels[max((level for level, _ in doubts), default=0)], tuple(reason for _, reason in doubts)


def _doubts_of_range(trace: Trace, points: Sequence[Measured], unbounded: Hits) -> Iterator[tuple[int, str]]:
    """Yield why another number of pages than those measured may be the right one, with the level it costs."""
    possible = unbounded.rate_last_half
    best = max(point.hits.rate_last_half for point in points)
    most = -(-trace.num_unique_blocks * trace.block_size // trace.page_size)
    if not possible:
        yield 0, "no prompt of the last half begins like an earlier one: no setting gains anything"
    elif best < possible - WORTH and max(point.pages for point in points) < most:
        found = f"only {best:.1%}" if best else "nothing"
        yield (
            1 if best else 2,
            (
                f"the pages measured find {found} of the {possible:.1%} that can be found: "
                f"measure more with --pages, up to {most:,}"
            ),
        )


def _doubts_of_traffic(point: Measured, unbounded: Hits, partial: str | None) -> Iterator[tuple[int, str]]:
    """Yield why other traffic may do otherwise, with the level it costs."""
    num_requests = len(point.hits.prompt_tokens)
    num_counted = num_requests - num_requests // 2
    if partial is not None:
        yield 2, f"not everything was measured: {partial}"
    if num_counted < FEW_REQUESTS:
        yield 2, f"only {num_counted:,} requests are counted"
    elif num_counted < MANY_REQUESTS:
        yield 1, f"{num_counted:,} requests are counted; {MANY_REQUESTS:,} would say more"
    third, fourth = _quarters(point.hits)
    if abs(fourth - third) > MOST_DRIFT:
        yield 1, f"the hit rate drifts: {third:.1%} in the third quarter, {fourth:.1%} in the fourth"
    third, fourth = _quarters(unbounded)
    if fourth - third > MOST_DRIFT:
        yield 1, "the ceiling still rises at the end: the trace is too short to warm the cache"
