"""Ghosts: the digests of blocks that have left the index, so that "evicted" is a fact and no guess.

Bounded: the oldest are forgotten first, and how many were is known, for then "never seen" is no longer certain.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from anaphora.cache.hashing import BlockDigest
from anaphora.ids import RequestId

GhostCause = Literal["evicted", "expired"]

_BUCKET_BITS = 8


class Requester(NamedTuple):
    """Who does something in the cache, and whose request it is."""

    request_id: RequestId
    tenant_salt: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One page given up: when, and for whose `num_pages` new pages.

    `number` counts evictions. `cause` is `expired` for a page whose pin had lapsed.
    """

    number: int
    time: float
    cause: GhostCause
    requester: Requester | None
    num_pages: int


class Ghosts:
    """Remembers up to `max_digests` digests. Every verb costs O(1) per digest."""

    def __init__(self, max_digests: int) -> None:
        self._max_digests = max_digests
        self._evictions: dict[BlockDigest, Eviction] = {}
        self._num_digests: dict[int, int] = {}  # of an eviction, by its number, while it has any
        # How many evictions with digests fall into each bucket of numbers: a rank costs no walk over all of them.
        self._bucket_sizes: defaultdict[int, int] = defaultdict(int)
        self.num_forgotten = 0
        self.num_evictions = 0
        self.forgotten_until: float | None = None

    def __len__(self) -> int:
        """Return the number of digests."""
        return len(self._evictions)

    def get(self, digest: BlockDigest) -> Eviction | None:
        """Return how a block was lost, or None if that is not known."""
        return self._evictions.get(digest)

    def add(
        self,
        digests: Sequence[BlockDigest],
        *,
        time: float,
        cause: GhostCause,
        requester: Requester | None,
        num_pages: int,
    ) -> None:
        """Remember the digests of one evicted page, and forget the oldest ones beyond the limit."""
        if not digests:
            return
        number = self.num_evictions
        self.num_evictions += 1
        eviction = Eviction(number=number, time=time, cause=cause, requester=requester, num_pages=num_pages)
        self.discard(digests)
        for digest in digests:
            self._evictions[digest] = eviction
        self._num_digests[number] = len(digests)
        self._bucket_sizes[number >> _BUCKET_BITS] += 1
        while len(self._evictions) > self._max_digests:
            oldest = next(iter(self._evictions))
            self.forgotten_until = self._evictions[oldest].time
            self.num_forgotten += 1
            self.discard([oldest])

    def discard(self, digests: Iterable[BlockDigest]) -> None:
        """Forget digests that are indexed again."""
        for digest in digests:
            eviction = self._evictions.pop(digest, None)
            if eviction is not None:
                self._leave(eviction.number)

    def _leave(self, number: int) -> None:
        self._num_digests[number] -= 1
        if not self._num_digests[number]:
            del self._num_digests[number]
            bucket = number >> _BUCKET_BITS
            self._bucket_sizes[bucket] -= 1
            if not self._bucket_sizes[bucket]:
                del self._bucket_sizes[bucket]

    def num_pages_short(self, eviction: Eviction) -> int:
        """Return how many more pages would have kept what was evicted then: its stack distance beyond the pool.

        Under LRU a larger pool holds what this one holds, and the pages evicted last (Mattson et al. 1970): those
        evicted with it or later that have not come back. To be asked before room is made for what comes back.
        Exact while requests come one after the other and end within a page; a prompt that ends with a page is not
        put to the end of the order as a whole, which may make it some pages too many. Costs O(evictions
        remembered / 256).
        """
        bucket = eviction.number >> _BUCKET_BITS
        later = sum(size for number, size in self._bucket_sizes.items() if number > bucket)
        end = (bucket + 1) << _BUCKET_BITS
        return later + sum(number in self._num_digests for number in range(eviction.number, end))
