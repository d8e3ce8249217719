"""The books: each token that was not reused gets exactly one cause, and the causes add up. Rules: docs/explain.md."""

from collections import Counter
from collections.abc import Mapping, Sequence

from anaphora.explain.alignment import Run, gaps_between
from anaphora.explain.records import HitLaw, Lookup

LAW_CAUSES = frozenset(
    {"last_token", "block_floor", "one_token", "decode_written", "draft_drop", "checkpoint"}
)
"""Causes in the books of a request that are sub-causes of `law` in the metrics."""

MAX_STRETCH_TOKENS = 40
"""A value that changes is no longer than this."""


def partition(
    num_tokens: int,
    lookup: Lookup,
    law: HitLaw,
    baseline_length: int,
    num_matched: int,
    runs: Sequence[Run] = (),
) -> Mapping[str, int]:
    """Return the uncached tokens by cause.

    The baseline shares its first `num_matched` tokens with the prompt, and `runs` behind them. The causes of
    blocks come from `lookup`; what `law` forbids is booked under its sub-causes.
    """
    books: Counter[str] = Counter()
    end_known = _book_blocks(books, num_tokens, lookup, law)
    end_matched = min(num_matched, num_tokens)
    _book_law(books, max(end_known, 0), end_matched, num_tokens)
    _book_content(books, max(end_known, end_matched), num_tokens, baseline_length, num_matched, runs)
    uncached = num_tokens - lookup.reused_tokens
    assert books.total() == uncached, f"{dict(books)} do not add up to {uncached} of {num_tokens} tokens"
    return {cause: count for cause, count in books.items() if count}


def labelled(books: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return the books by cause and sub-cause, as the metrics have them."""
    return {(("law", cause) if cause in LAW_CAUSES else (cause, "")): count for cause, count in books.items()}


def bypassed(num_tokens: int) -> Mapping[str, int]:
    """Return the books of a request for which nothing was looked up."""
    return {"bypassed": num_tokens}


def _book_blocks(books: Counter[str], num_tokens: int, lookup: Lookup, law: HitLaw) -> int:
    """Book the blocks of `[H, K)`, the known ones, and return K.

    |0 … H|  rest of a block that was reused in part  | block | block | … K|
    """
    start, size = lookup.reused_tokens, law.block_size
    for label in lookup.block_labels:
        end = min(num_tokens, start // size * size + size)
        name, _, sub = label.partition(":")
        if name != "law":
            books[name] += end - start
        elif sub:
            books[sub] += end - start
        elif end < num_tokens:
            # The last token is behind this block, so what forbade it can only be the shortest prefill.
            books["one_token"] += end - start
        else:
            _book_law(books, start, end, num_tokens)
        start = end
    return start


def _book_law(books: Counter[str], start: int, end: int, num_tokens: int) -> None:
    if start >= end:
        return
    last = int(end == num_tokens)
    books["last_token"] += last
    books["block_floor"] += end - start - last


def _book_content(
    books: Counter[str], start: int, num_tokens: int, old_length: int, matched: int, runs: Sequence[Run]
) -> None:
    """Book `[start, n)`: what differs, what is equal again behind it, and what the baseline does not have."""
    if not runs:
        books["new"] += max(0, num_tokens - start)
        return
    for run in runs:
        books["behind_change"] += max(0, run.new_start + run.length - max(start, run.new_start))
    for index, gap in enumerate(gaps_between(runs, matched, old_length, num_tokens)):
        count = max(0, gap.new_end - max(start, gap.new_start))
        replaces = gap.old_end > gap.old_start and count <= MAX_STRETCH_TOKENS
        is_last = gap.new_end == num_tokens
        books["changed" if index == 0 or (replaces and not is_last) else "new"] += count
