"""Medians, quantiles, intervals and one test; plain arithmetic on what was measured.

Knows nothing of servers. Values of one round were measured under the same weather, so they are one group, and
intervals are drawn by groups: twenty requests at one moment are no twenty independent ones.
Resampling is seeded by the data: the same values always give the same interval.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

NUM_RESAMPLES = 1000
MIN_FOR_INTERVAL = 3

Groups = Sequence[Sequence[float]]
"""Values by round."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie: their number, median, upper quantiles, and the 95 % bootstrap interval of the median."""

    n: int
    median: float
    p90: float
    p99: float
    low: float | None
    high: float | None


def pooled(groups: Groups) -> list[float]:
    """Return all values."""
    return [value for group in groups for value in group]


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share lies, interpolated between neighbours."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return quantile(values, 0.5)


def spread(groups: Groups) -> Spread | None:
    """Return how values lie; None when there are none, and no interval below three rounds."""
    values = pooled(groups)
    if not values:
        return None
    low, high = _interval([groups], lambda samples: median(samples[0])) or (None, None)
    return Spread(len(values), median(values), quantile(values, 0.9), quantile(values, 0.99), low, high)


def ratio_interval(above: Groups, below: Groups) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the ratio of two medians; None below three rounds."""
    return _interval([above, below], lambda samples: median(samples[0]) / max(median(samples[1]), 1e-9))


def _interval(
    arms: Sequence[Groups], figure: Callable[[list[list[float]]], float]
) -> tuple[float, float] | None:
    kept = [[group for group in groups if group] for groups in arms]
    if min(map(len, kept)) < MIN_FOR_INTERVAL:
        return None
    rng = random.Random(repr(kept))
    figures = [
        figure([pooled(rng.choices(groups, k=len(groups))) for groups in kept]) for _ in range(NUM_RESAMPLES)
    ]
    return quantile(figures, 0.025), quantile(figures, 0.975)


def rank_test(low: Sequence[float], high: Sequence[float]) -> float:
    """Return how probable it is that `low` lies so far below `high` by chance (one-sided Mann-Whitney, exact).

    Ties count as halves, rounded against the finding.
    """
    above = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in low for b in high)
    ways = _ways(len(low), len(high))
    return sum(ways[: math.ceil(above) + 1]) / sum(ways)


def _ways(num_low: int, num_high: int) -> list[int]:
    """How many orders of two groups have 0, 1, 2 … pairs the wrong way round (a Gaussian binomial)."""
    ways = [1] + [0] * (num_low * num_high)
    for step in range(1, num_low + 1):
        for count in range(len(ways) - 1, num_high + step - 1, -1):
            ways[count] -= ways[count - num_high - step]
        for count in range(step, len(ways)):
            ways[count] += ways[count - step]
    return ways


def slope(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Return the least-squares slope, or None when the xs do not differ."""
    middle_x, middle_y = sum(xs) / len(xs), sum(ys) / len(ys)
    width = sum((x - middle_x) ** 2 for x in xs)
    if not width:
        return None
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / width


def interleaved(
    rng: random.Random, rounds: int, units: Sequence[tuple[str, ...]]
) -> Iterator[tuple[int, str]]:
    """Yield the arms of each round in random order; those of one unit stay behind each other."""
    for number in range(rounds):
        for unit in rng.sample(units, len(units)):
            for arm in unit:
                yield number, arm
