"""Which tokens of a prompt stand in an earlier one too, in the same order.

Time is linear but for a sort: one pass for each length of anchor over the gaps that the pass before left.
Anchors are n-grams that occur once on each side, as in patience diff; what has no such n-gram stays unmatched
inside a gap, except at its two ends. So a text that repeats itself is matched less well, never slowly.
"""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from typing import NamedTuple

ANCHOR_LENGTHS = (16, 8, 4)
MAX_GAP_LENGTH = 200_000
"""Longer gaps are matched at their ends only."""


class Run(NamedTuple):
    """Equal stretches: `length` items from `old_start` and from `new_start`."""

    old_start: int
    new_start: int
    length: int


class Gap(NamedTuple):
    """Two half-open ranges between runs, each of which may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def common_length(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Return the length of the longest common prefix of two sequences of one type."""
    limit = min(len(a), len(b))
    if a[:limit] == b[:limit]:
        return limit
    low, high = 0, limit  # a[:low] is common, a[:high] is not
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def align(
    old: Sequence[Hashable],
    new: Sequence[Hashable],
    start: int,
    anchor_lengths: Sequence[int] = ANCHOR_LENGTHS,
) -> list[Run]:
    """Return the runs behind a common prefix of `start` items, in their order; the earliest where one may choose."""
    runs: list[Run] = []
    for length in anchor_lengths:
        for gap in gaps_between(runs, start, len(old), len(new)):
            if max(gap.old_end - gap.old_start, gap.new_end - gap.new_start) <= MAX_GAP_LENGTH:
                runs += _anchored_runs(old, new, gap, length)
        runs.sort()
    last = gaps_between(runs, start, len(old), len(new))[-1]
    if tail := _common_end(old, new, last):
        runs.append(Run(last.old_end - tail, last.new_end - tail, tail))
    return runs


def gaps_between(runs: Sequence[Run], start: int, old_end: int, new_end: int) -> list[Gap]:
    """Return what lies before, between and behind runs; the last gap always, the others unless empty."""
    gaps, old_start, new_start = [], start, start
    for run in runs:
        gap = Gap(old_start, run.old_start, new_start, run.new_start)
        if gap.old_start < gap.old_end or gap.new_start < gap.new_end:
            gaps.append(gap)
        old_start, new_start = run.old_start + run.length, run.new_start + run.length
    return [*gaps, Gap(old_start, old_end, new_start, new_end)]


def _anchored_runs(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap, length: int) -> list[Run]:
    old_places = _unique_grams(old, gap.old_start, gap.old_end, length)
    new_places = _unique_grams(new, gap.new_start, gap.new_end, length)
    pairs = sorted((new_places[gram], place) for gram, place in old_places.items() if gram in new_places)
    runs: list[Run] = []
    old_limit, new_limit = gap.old_start, gap.new_start
    for new_place, old_place in _increasing(pairs):
        if new_place < new_limit or old_place < old_limit:
            continue  # inside the run before
        back = 0
        while (
            old_place - back > old_limit
            and new_place - back > new_limit
            and old[old_place - back - 1] == new[new_place - back - 1]
        ):
            back += 1
        ahead = length
        while (
            old_place + ahead < gap.old_end
            and new_place + ahead < gap.new_end
            and old[old_place + ahead] == new[new_place + ahead]
        ):
            ahead += 1
        runs.append(Run(old_place - back, new_place - back, back + ahead))
        old_limit, new_limit = old_place + ahead, new_place + ahead
    return runs


def _unique_grams(
    items: Sequence[Hashable], start: int, end: int, length: int
) -> dict[tuple[Hashable, ...], int]:
    places: dict[tuple[Hashable, ...], int] = {}
    repeated = set()
    for place in range(start, end - length + 1):
        gram = tuple(items[place : place + length])
        if gram in places:
            repeated.add(gram)
        else:
            places[gram] = place
    for gram in repeated:
        del places[gram]
    return places


def _increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, sorted by the first, that grows in the second too (patience sorting)."""
    tops: list[int] = []
    top_pairs: list[int] = []
    previous: list[int] = []
    for index, (_, old_place) in enumerate(pairs):
        pile = bisect_left(tops, old_place)
        previous.append(top_pairs[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [old_place]
        top_pairs[pile : pile + 1] = [index]
    chosen, index = [], top_pairs[-1] if top_pairs else -1
    while index >= 0:
        chosen.append(pairs[index])
        index = previous[index]
    return chosen[::-1]


def _common_end(old: Sequence[Hashable], new: Sequence[Hashable], gap: Gap) -> int:
    limit = min(gap.old_end - gap.old_start, gap.new_end - gap.new_start)
    length = 0
    while length < limit and old[gap.old_end - length - 1] == new[gap.new_end - length - 1]:
        length += 1
    return length
