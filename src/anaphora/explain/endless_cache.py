"""A prefix cache without end, that knows the law and forgets nothing: what would have been found, on paper."""

from collections.abc import Iterator, Sequence

from anaphora.explain.records import (
    CacheFact,
    CacheNamespace,
    Explanation,
    HitLaw,
    Lookup,
    PromptRecord,
    Render,
)
from anaphora.explain.verdict import Case, explain, longest_of, nearest_of

_Shelf = dict[tuple[int, tuple[int, ...]], int]  # (number of a block's parent, its tokens) → its number


class EndlessCache:
    """Holds the whole blocks of every prompt that was added."""

    def __init__(self, law: HitLaw) -> None:
        self._law = law
        self._shelves: dict[CacheNamespace, _Shelf] = {}

    def add(self, record: PromptRecord) -> None:
        """Publish the whole blocks of a prompt."""
        shelf = self._shelves.setdefault(record.namespace, {})
        parent = 0
        for block in self._blocks(record):
            parent = shelf.setdefault((parent, block), len(shelf) + 1)

    def lookup(self, record: PromptRecord) -> Lookup:
        """Return what a prompt finds, and what keeps it from the blocks behind."""
        if record.bypassed_by is not None:
            return Lookup(0)
        best = self._law.best_possible(len(record.token_ids)) // self._law.block_size
        own = self._depth(record, record.namespace)
        anywhere = max((self._depth(record, name) for name in self._shelves), default=0)
        hit = min(own, best)
        labels = ["law"] * (own - hit) + ["namespace"] * (anywhere - own)
        return Lookup(hit * self._law.block_size, tuple(labels))

    def _depth(self, record: PromptRecord, namespace: CacheNamespace) -> int:
        shelf = self._shelves.get(namespace, {})
        parent, depth = 0, 0
        for block in self._blocks(record):
            found = shelf.get((parent, block))
            if found is None:
                break
            parent, depth = found, depth + 1
        return depth

    def _blocks(self, record: PromptRecord) -> Iterator[tuple[int, ...]]:
        size, ids = self._law.block_size, record.token_ids
        for start in range(0, len(ids) - size + 1, size):
            yield tuple(ids[start : start + size])


def explain_after(
    request: PromptRecord, earlier: Sequence[PromptRecord], law: HitLaw, render: Render | None = None
) -> Explanation:
    """Return why a request is not reused further, had the earlier ones filled an endless cache in their order."""
    cache = EndlessCache(law)
    for record in earlier:
        cache.add(record)
    nearest = nearest_of(request, earlier, law)
    return explain(
        Case(
            request=request,
            lookup=cache.lookup(request),
            law=law,
            longest=longest_of(request, earlier, nearest),
            nearest=nearest,
            render=render,
            facts=_facts(request, nearest),
        )
    )


def _facts(request: PromptRecord, nearest: PromptRecord | None) -> dict[str, CacheFact]:
    field = nearest.namespace.difference(request.namespace) if nearest is not None else None
    if nearest is None or field is None:
        return {}
    if field == "cache_salt":
        words = "cache_salt differs"
    else:
        words = f"{field} `{getattr(nearest.namespace, field)}` against `{getattr(request.namespace, field)}`"
    return {"namespace": CacheFact(f"Same words, different cache namespace: {words}.", path=field)}
