"""Order mode: the requests of a trace one after another through the engine's own cache; time plays no part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.hashing import BlockDigest
from anaphora.config import EvictionPolicyName
from anaphora.sim.belady import belady_hits
from anaphora.sim.id_chain import IdChain
from anaphora.sim.replay import ReplayedCache
from anaphora.sim.trace import Trace, TraceRequest, digests_of, num_leading

Progress = Callable[[int], None]
"""Told how many requests more are done."""

BELADY = "belady"
_REQUESTS_PER_TICK = 128


@dataclass(frozen=True, slots=True)
class Hits:
    """Tokens found for each request of a trace, beside the tokens it asked for."""

    hit_tokens: Sequence[int]
    prompt_tokens: Sequence[int]

    def rate(self, start: int = 0, end: int | None = None) -> float:
        """Return the hit rate of a part of the trace, weighted by tokens; 0 for an empty part."""
        asked = sum(self.prompt_tokens[start:end])
        return sum(self.hit_tokens[start:end]) / asked if asked else 0.0

    @property
    def rate_all(self) -> float:
        """The hit rate of all requests, from a cold cache."""
        return self.rate()

    @property
    def rate_last_half(self) -> float:
        """The hit rate of the second half; the first only warms the cache."""
        return self.rate(len(self.prompt_tokens) // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one policy reaches with so many pages. `num_refused` requests are larger than the whole pool."""

    policy: str
    pages: int
    hits: Hits
    num_refused: int = 0


def no_progress(count: int) -> None:
    """Show nothing."""


class OrderReplay:
    """Plays one trace through pools of several sizes and policies; what they share is made once."""

    def __init__(self, trace: Trace, progress: Progress = no_progress) -> None:
        self.trace = trace
        self._progress = progress
        self._digests = digests_of(trace.requests)
        self._lengths = [request.num_prompt_tokens for request in trace.requests]
        self._exact_reuse = trace.engine is not None and trace.engine.exact_reuse
        self._most_pages = self.num_pages_without_eviction()

    def play(self, policy: EvictionPolicyName, num_pages: int) -> Point:
        """Return what a policy reaches with so many usable pages."""
        # What no request could ever fill would only take memory.
        layout = self.trace.layout(min(num_pages, self._most_pages))
        cache = ReplayedCache(layout, policy=make_policy(policy, layout), exact_reuse=self._exact_reuse)
        hits, num_refused = [], 0
        for request, digests in self._ticking():
            if self.trace.num_pages_of(request) > num_pages:
                num_refused += 1
                hits.append(0)
            else:
                hits.append(self._add(cache, request, digests))
        return Point(policy=policy, pages=num_pages, hits=self._hits(hits), num_refused=num_refused)

    def _add(self, cache: ReplayedCache, request: TraceRequest, digests: list[BlockDigest]) -> int:
        size = self.trace.block_size
        if not self.trace.counts_tail:
            chain = IdChain(size, digests, request.num_prompt_tokens)
            return cache.add_chain(
                chain,
                request.num_prompt_tokens,
                num_tokens=request.num_stored_tokens,
                reads_cache=request.reads_cache,
            )
        num_tokens = len(digests) * size
        found = cache.add_chain(IdChain(size, digests, num_tokens), num_tokens, may_hit_all=True)
        return min(found, request.num_prompt_tokens)

    def unbounded(self) -> Hits:
        """Return what a pool reaches that never has to evict."""
        return self.play("lru", self._most_pages).hits

    def belady(self, num_pages: int) -> Point:
        """Return what the choice reaches that knows the future."""
        hits = belady_hits(self.trace, num_pages * (self.trace.page_size // self.trace.block_size))
        self._progress(len(hits))
        return Point(policy=BELADY, pages=num_pages, hits=self._hits(hits))

    def num_pages_without_eviction(self) -> int:
        """Return a number of pages with which nothing is ever evicted."""
        trace, seen, num_pages = self.trace, set[int](), 0
        for request in trace.requests:
            num_known = num_leading(request.stored_ids, seen) * trace.block_size // trace.page_size
            num_pages += trace.num_pages_of(request) - num_known
            seen.update(request.stored_ids)
        # The last whole block may be computed again: one page more each, which is given back at once.
        return num_pages + trace.num_pages_of_largest + 2

    def _hits(self, hit_tokens: Sequence[int]) -> Hits:
        return Hits(hit_tokens, self._lengths)

    def _ticking(self) -> Iterator[tuple[TraceRequest, list[BlockDigest]]]:
        """Yield each request with its digests, and tell how far it is, not too often."""
        since = 0
        for pair in zip(self.trace.requests, self._digests, strict=True):
            yield pair
            since += 1
            if since == _REQUESTS_PER_TICK:
                self._progress(since)
                since = 0
        self._progress(since)
