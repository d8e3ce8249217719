"""What the cache did for each admitted request, noted while it happens.

Runs in the engine's step, so it compares nothing: it labels the blocks that were missed from what the index, the
pending blocks and the ghosts know, and hands a small record on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, TypeAlias

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block, Page
from anaphora.explain.ghosts import Eviction, Ghosts, Requester
from anaphora.ids import RequestId, TokenId
from anaphora.request import Request
from anaphora.scheduler.events import SchedulerListener


@dataclass(frozen=True, slots=True)
class Owner:
    """Who computes a block now, and since when."""

    requester: Requester
    since: float


@dataclass(frozen=True, slots=True)
class MissedBlock:
    """A block that was not reused although the books know it: a label (see `records.Lookup`), and what it rests on."""

    label: str
    eviction: Eviction | None = None
    owner: Owner | None = None


class _Missed(NamedTuple):
    """The missed blocks of a request, and how many more pages would have kept those that were evicted."""

    blocks: Sequence[MissedBlock]
    num_pages_short: int | None


_NOTHING_MISSED = _Missed((), None)


@dataclass(frozen=True, slots=True)
class MissedRun:
    """Consecutive missed blocks with the same label; `first` is the first of them."""

    first: MissedBlock
    num_blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """One request at its first admission.

    `runs` begin in the block where reuse stopped. `num_pages_short` is how many more pages would have kept all
    evicted blocks, None if none was evicted. `bypassed_by` says why nothing was looked up, None if it was.
    `num_forgotten_ghosts` and `reset_time` say what the books may have lost. `token_ids` may go on with outputs.
    """

    request_id: RequestId
    tenant_salt: bytes | None
    cache_salt: str | None
    time: float
    token_ids: Sequence[TokenId] = field(repr=False)
    num_prompt_tokens: int
    cached_tokens: int
    runs: tuple[MissedRun, ...] = ()
    num_pages_short: int | None = None
    bypassed_by: str | None = None
    num_forgotten_ghosts: int = 0
    reset_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a request: its prompt and outputs, and for how many of them K/V exist."""

    request_id: RequestId
    token_ids: Sequence[TokenId] = field(repr=False)
    num_prompt_tokens: int
    num_computed_tokens: int


Note: TypeAlias = Admitted | Ended


class AdmissionWatch(CacheListener, SchedulerListener):
    """Hands a note on for each admission and each end, in their order.

    `find_block` asks the index, `find_owner` the pending blocks. `note` is called in the engine's step and must
    return at once.
    """

    def __init__(
        self,
        ghosts: Ghosts,
        note: Callable[[Note], None],
        *,
        block_size: int,
        exact_reuse: bool,
        is_caching: bool,
        find_block: Callable[[BlockDigest], Block | None],
        find_owner: Callable[[BlockDigest], RequestId | None],
    ) -> None:
        self._ghosts = ghosts
        self._note = note
        self._block_size = block_size
        self._exact_reuse = exact_reuse
        self._is_caching = is_caching
        self._find_block, self._find_owner = find_block, find_owner
        self._now = 0.0
        self._reset_time: float | None = None
        self._room: tuple[Requester | None, int] = (None, 0)
        self._tenants: dict[RequestId, bytes | None] = {}
        self._lapsed: set[BlockDigest] = set()  # of pages, since a digest may move to another page
        self._missed: dict[RequestId, _Missed] = {}
        self._admission_times: dict[RequestId, float] = {}

    # The cache's events.

    def prompt_admitted(
        self, request_id: RequestId, chain: BlockChain, num_cached_tokens: int, num_allowed_blocks: int
    ) -> None:
        """Label the missed blocks, before room is made for them."""
        if request_id not in self._admission_times:
            start = num_cached_tokens // self._block_size
            blocks = self._label_from(start, chain, num_allowed_blocks)
            evictions = [block.eviction for block in blocks if block.eviction is not None]
            oldest = min(evictions, key=lambda eviction: eviction.number, default=None)
            short = None if oldest is None else self._ghosts.num_pages_short(oldest)
            self._missed[request_id] = _Missed(blocks, short)

    def _label_from(self, start: int, chain: BlockChain, num_allowed_blocks: int) -> list[MissedBlock]:
        found: list[MissedBlock] = []
        has_gap = False
        for index in range(start, len(chain.contents)):
            missed = self._label(index, chain, num_allowed_blocks, has_gap=has_gap)
            if missed is None:
                break
            has_gap = has_gap or not missed.label.startswith("law")
            found.append(missed)
        return found

    def _label(
        self, index: int, chain: BlockChain, num_allowed_blocks: int, *, has_gap: bool
    ) -> MissedBlock | None:
        """Return why one block was not reused, or None when the books do not know it."""
        digest = chain.digests[index]
        block = self._find_block(digest)
        if block is not None:
            if block.content != chain.content(index - block.slot, index + 1):
                return None  # a collision
            return MissedBlock(self._resident_label(index, block, num_allowed_blocks, has_gap=has_gap))
        owner = self._find_owner(digest)
        if owner is not None:
            since = self._admission_times.get(owner, self._now)
            return MissedBlock("in_flight", owner=Owner(self._requester(owner), since))
        eviction = self._ghosts.get(digest)
        return MissedBlock(eviction.cause, eviction=eviction) if eviction is not None else None

    def _resident_label(self, index: int, block: Block, num_allowed_blocks: int, *, has_gap: bool) -> str:
        if index >= num_allowed_blocks:
            return "law"
        if self._exact_reuse and block.is_decode_written:
            return "law:decode_written"
        return "stranded" if has_gap else "law:block_floor"

    def room_needed(self, request_id: RequestId, num_pages: int) -> None:
        """Note for whom the next evictions are."""
        self._room = (self._requester(request_id), num_pages)

    def _requester(self, request_id: RequestId) -> Requester:
        return Requester(request_id, self._tenants.get(request_id))

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        """Remember what was lost."""
        requester, num_pages = self._room
        is_lapsed = self._lapsed.issuperset(digests)
        self._lapsed.difference_update(digests)
        self._ghosts.add(
            digests,
            time=self._now,
            cause="expired" if is_lapsed else "evicted",
            requester=requester,
            num_pages=num_pages,
        )

    def blocks_published(self, chain: BlockChain, block_indices: Sequence[int]) -> None:
        """Forget ghosts that have come back."""
        if len(self._ghosts):
            digests = chain.digests
            self._ghosts.discard(digests[index] for index in block_indices)

    def pins_lapsed(self, pages: Sequence[Page]) -> None:
        """Note that their end will be an expiry."""
        self._lapsed.update(block.digest for page in pages for block in page.blocks)

    def cleared(self) -> None:
        """Note that everything before this time is gone."""
        self._reset_time = self._now
        self._lapsed.clear()

    # The scheduler's events.

    def plan_began(self, now: float) -> None:
        """Keep the time."""
        self._now = now

    def request_arrived(self, request: Request) -> None:
        """Note whose it is."""
        self._tenants[request.request_id] = request.tenant_salt

    def request_admitted(self, request: Request, now: float) -> None:
        """Hand its record on."""
        request_id = request.request_id
        self._admission_times[request_id] = now
        missed = self._missed.pop(request_id, _NOTHING_MISSED)
        bypassed_by = self._bypass(request)
        self._note(
            Admitted(
                request_id=request_id,
                tenant_salt=request.tenant_salt,
                cache_salt=request.cache_salt,
                time=now,
                token_ids=request.token_ids,
                num_prompt_tokens=request.num_prompt_tokens,
                cached_tokens=request.num_cached_tokens or 0,
                runs=() if bypassed_by else _runs(missed.blocks),
                num_pages_short=None if bypassed_by else missed.num_pages_short,
                bypassed_by=bypassed_by,
                num_forgotten_ghosts=self._ghosts.num_forgotten,
                reset_time=self._reset_time,
            )
        )

    def _bypass(self, request: Request) -> str | None:
        if not self._is_caching:
            return "--no-enable-prefix-caching"
        return "prompt_logprobs" if request.skip_reading_cache else None

    def request_finished(self, request: Request, now: float) -> None:
        """Hand its end on."""
        self._missed.pop(request.request_id, None)
        self._admission_times.pop(request.request_id, None)
        self._tenants.pop(request.request_id, None)
        self._note(
            Ended(
                request_id=request.request_id,
                token_ids=request.token_ids,
                num_prompt_tokens=request.num_prompt_tokens,
                num_computed_tokens=request.num_computed_tokens,
            )
        )


def _runs(missed: Sequence[MissedBlock]) -> tuple[MissedRun, ...]:
    """Put consecutive blocks of one label together."""
    groups = (list(group) for _, group in groupby(missed, key=lambda block: block.label))
    return tuple(MissedRun(group[0], len(group)) for group in groups)
