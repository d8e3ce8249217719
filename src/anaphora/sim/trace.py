"""A trace: who asked when for how many tokens, and which blocks of the prompts are the same.

No text and no token is in it: a block is a number that stands for the block and all that precedes it, so equal numbers
mean equal prefixes. How such numbers stand in files is known in `trace_lines.py`.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from anaphora.cache.hashing import BlockDigest
from anaphora.cache.hit_law import max_hit_blocks
from anaphora.config import EvictionPolicyName, KVLayout, SchedulerConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTurn:
    """What a recording of our own server says of how one request went.

    `number` counts arrivals. `first_step` is how many steps were committed when it arrived, `last_step` when it ended;
    `ended_between_steps` says that it did not end by its own last token. `ending` counts endings: the order in which
    pages were handed back. `fork_of` is the number of the request whose prompt it shares.
    """

    number: int
    cached_tokens: int
    first_step: int
    last_step: int
    ended_between_steps: bool
    ending: int
    num_preemptions: int = 0
    priority: int = 0
    fork_of: int | None = None
    skip_reading_cache: bool = False


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: its lengths, the blocks of its prompt, and those that its output completed, if that is known."""

    num_prompt_tokens: int
    num_output_tokens: int
    block_ids: tuple[int, ...]
    arrival_s: float | None = None
    output_block_ids: tuple[int, ...] = ()
    recorded: RecordedTurn | None = None

    @property
    def stored_ids(self) -> tuple[int, ...]:
        """All blocks that it leaves in the cache."""
        return self.block_ids + self.output_block_ids

    @property
    def reads_cache(self) -> bool:
        """Whether it looks for what is stored: who asks for the log probabilities of its prompt does not."""
        return self.recorded is None or not self.recorded.skip_reading_cache

    @property
    def num_stored_tokens(self) -> int:
        """How many tokens have K/V in the end: the last output token is never computed."""
        return self.num_prompt_tokens + (max(0, self.num_output_tokens - 1) if self.recorded else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEngine:
    """The settings of the server that wrote a recording."""

    layout: KVLayout
    scheduler: SchedulerConfig
    max_model_len: int
    eviction_policy: EvictionPolicyName
    exact_reuse: bool
    partial_block_reuse: int
    max_pinned_pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in order of arrival.

    `counts_tail` says that the last block of a prompt may be partly filled and has a number all the same, as in public
    traces: it may be hit and counts with its true length. Otherwise only whole blocks have numbers, and the engine's
    law holds: whole blocks, never the last token, never all but a prefill of under `min_prefill_tokens`.
    `forks` are further sequences of recorded prompts; their prompts are in the books of the first.
    `error` is why the trace ends early, or None. `notes` are what its readers should be told.
    """

    format: str
    block_size: int
    requests: tuple[TraceRequest, ...]
    counts_tail: bool
    page_size: int
    min_prefill_tokens: int = 1
    can_copy_part: bool = True
    engine: RecordedEngine | None = None
    forks: tuple[TraceRequest, ...] = ()
    error: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def has_times(self) -> bool:
        """Whether it says when each request arrived."""
        return all(request.arrival_s is not None for request in self.requests)

    @property
    def num_prompt_tokens(self) -> int:
        """How many prompt tokens were sent."""
        return sum(request.num_prompt_tokens for request in self.requests)

    @property
    def recorded_tokens(self) -> list[int] | None:
        """How many tokens of each prompt were found when it was recorded, or None if nobody says."""
        turns = [request.recorded for request in self.requests]
        found = [turn.cached_tokens for turn in turns if turn is not None]
        return found if found and len(found) == len(turns) else None

    @property
    def num_unique_blocks(self) -> int:
        """How many different blocks there are, outputs included."""
        return len({block_id for request in self.requests for block_id in request.stored_ids})

    def layout(self, num_usable_pages: int) -> KVLayout:
        """Return the layout of a pool of that many pages."""
        can_copy_part = self.can_copy_part and self.page_size > self.block_size
        return KVLayout(
            self.block_size, self.page_size, num_usable_pages + 1, self.min_prefill_tokens, can_copy_part
        )

    def num_pages_of(self, request: TraceRequest) -> int:
        """Return how many pages one request needs."""
        if self.counts_tail:
            return -(-len(request.block_ids) * self.block_size // self.page_size)
        return -(-request.num_stored_tokens // self.page_size)

    @property
    def num_pages_of_largest(self) -> int:
        """How many pages the largest request needs."""
        return max(map(self.num_pages_of, self.requests), default=0)

    def hit_tokens(self, request: TraceRequest, num_blocks: int) -> int:
        """Return how many tokens a hit on so many leading blocks is worth."""
        if not request.reads_cache:
            return 0
        if self.counts_tail:
            return min(num_blocks * self.block_size, request.num_prompt_tokens)
        allowed = max_hit_blocks(
            request.num_prompt_tokens,
            request.num_prompt_tokens,
            block_size=self.block_size,
            min_prefill_tokens=self.min_prefill_tokens,
        )
        return min(num_blocks, allowed) * self.block_size

    def by_engine_law(self, min_prefill_tokens: int) -> "Trace":
        """Return the trace with the numbers of partly filled blocks left out, as an engine sees it."""
        if not self.counts_tail:
            return self
        size = self.block_size
        whole = tuple(
            replace(request, block_ids=request.block_ids[: request.num_prompt_tokens // size])
            for request in self.requests
        )
        return replace(self, requests=whole, counts_tail=False, min_prefill_tokens=min_prefill_tokens)

    def coarser(self, factor: int) -> "Trace":
        """Return the trace in blocks that are `factor` times as large."""
        if factor == 1:
            return self
        requests = tuple(
            replace(
                request,
                block_ids=_every(request.block_ids, factor, with_tail=self.counts_tail),
                output_block_ids=_every(request.stored_ids, factor)[len(request.block_ids) // factor :],
            )
            for request in self.requests
        )
        size = self.block_size * factor
        page = self.page_size if self.page_size % size == 0 else size
        return replace(self, requests=requests, block_size=size, page_size=page)


def _every(block_ids: tuple[int, ...], factor: int, *, with_tail: bool = False) -> tuple[int, ...]:
    """Return the last of each `factor` numbers: it stands for all before it."""
    whole = block_ids[factor - 1 :: factor]
    return whole + block_ids[-1:] if with_tail and len(block_ids) % factor else whole


def digests_of(requests: Iterable[TraceRequest]) -> list[list[BlockDigest]]:
    """Return a digest for each block of each request; equal blocks share one object, which is quick to compare."""
    known: dict[int, BlockDigest] = {}

    def digest(block_id: int) -> BlockDigest:
        return known.setdefault(block_id, BlockDigest(block_id.to_bytes(8, "big")))

    return [[digest(block_id) for block_id in request.stored_ids] for request in requests]


def ceiling(trace: Trace) -> list[int]:
    """Return how many tokens of each prompt a cache that forgets nothing has: sets, no cache."""
    seen: set[int] = set()
    hits = []
    is_exact = trace.engine is not None and trace.engine.exact_reuse
    for request in trace.requests:
        hits.append(trace.hit_tokens(request, num_leading(request.block_ids, seen)))
        seen.update(request.block_ids if is_exact else request.stored_ids)
    return hits


def num_leading(block_ids: Sequence[int], stored: Container[int]) -> int:
    """Return how many of the blocks are there before the first that is not."""
    return next((index for index, block_id in enumerate(block_ids) if block_id not in stored), len(block_ids))
