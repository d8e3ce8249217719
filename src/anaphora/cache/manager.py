"""The page tables of all requests: what a prompt can reuse, which pages it gets, what its commits publish.

Decides nothing about who runs when. Rules: docs/cache-semantics.md 2.3 to 2.7.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policy import EvictionPolicy
from anaphora.cache.hashing import SHA256, BlockDigest, HashAlgorithm
from anaphora.cache.lookup import Lookup, PrefixFinder
from anaphora.cache.page import Block, Page, PageCopy
from anaphora.cache.page_table import PageTable
from anaphora.cache.pending import PendingBlocks
from anaphora.cache.pool import PagePool
from anaphora.config import KVLayout
from anaphora.errors import ConfigError
from anaphora.ids import PageId, RequestId, TokenId


@dataclass(frozen=True, slots=True)
class Admission:
    """What a request got: how many leading tokens are there already, and the copy that brings the last of them."""

    cached_tokens: int
    copy: PageCopy | None = None


@dataclass(frozen=True, slots=True)
class ResumeCost:
    """The pages that a preemption would free, and the computed tokens that could not be found again afterwards."""

    num_pages: int
    num_tokens: int

    @property
    def tokens_per_page(self) -> float:
        """How many tokens are lost for each page gained."""
        return self.num_tokens / self.num_pages if self.num_pages else math.inf


class KVManager:
    """Owns the page table of every request and is the only one who talks to the pool."""

    def __init__(
        self,
        layout: KVLayout,
        listener: CacheListener | None = None,
        *,
        enable_prefix_caching: bool = True,
        exact_reuse: bool = False,
        policy: EvictionPolicy | None = None,
        max_pinned_pages: int = 0,
        hash_algorithm: HashAlgorithm = SHA256,
        partial_block_reuse: int = 0,
    ) -> None:
        if partial_block_reuse and not layout.can_copy_part:
            raise ConfigError(
                f"--partial-block-reuse is {partial_block_reuse}, but this runner cannot copy part of a page "
                "exactly; leave it at 0, or choose another K/V precision"
            )
        self.layout = layout
        self.hash_algorithm = hash_algorithm
        self.is_caching = enable_prefix_caching
        self._listener = listener or CacheListener()
        self._exact_reuse = exact_reuse
        self.pending = PendingBlocks()
        self.pool = PagePool(
            layout,
            self._listener,
            exact_reuse=exact_reuse,
            policy=policy,
            max_pinned_pages=max_pinned_pages,
        )
        self._finder = PrefixFinder(
            self.pool, exact_reuse=exact_reuse, partial_block_reuse=partial_block_reuse
        )
        self._tables: dict[RequestId, PageTable] = {}

    # Questions: they change nothing.

    def table(self, request_id: RequestId) -> PageTable:
        """Return the page table of an open request."""
        return self._tables[request_id]

    @property
    def max_pinnable_tokens(self) -> int:
        """The most tokens a prompt may have whose full blocks can all be pinned, if nothing else is."""
        return self.pool.max_pinned_pages * self.layout.page_size + self.layout.block_size - 1

    def lookup(self, chain: BlockChain, num_tokens: int, num_prefill_tokens: int) -> Lookup:
        """Return what can be reused of a sequence; see PrefixFinder."""
        return self._finder.find(chain, num_tokens, num_prefill_tokens)

    def resume_cost(self, request_id: RequestId) -> ResumeCost:
        """Return what preempting a running request would free and lose."""
        table = self._tables[request_id]
        num_pages = sum(page.ref_count == 1 for page in table.pages)
        reusable = table.num_exact_tokens if self._exact_reuse else table.num_computed_tokens
        num_kept = reusable // self.layout.block_size * self.layout.block_size if self.is_caching else 0
        return ResumeCost(num_pages, table.num_computed_tokens - num_kept)

    def num_pages_for(self, num_tokens: int) -> int:
        """Return how many pages hold that many tokens."""
        return self.layout.num_pages_for(num_tokens)

    def fits(self, lookup: Lookup, num_tokens: int, headroom: int = 0) -> bool:
        """Whether a sequence of `num_tokens` with these hits could get all its pages now."""
        missing = self.num_pages_for(num_tokens) + headroom - self.pool.num_free_pages
        # Hits that others hold take no free page; they are counted only when that decides.
        return missing <= 0 or missing <= sum(page.ref_count > 0 for page in lookup.pages)

    def num_pages_needed(self, lookup: Lookup, num_tokens: int) -> int:
        """Return how many free pages a sequence of `num_tokens` with these hits would take, idle hits included."""
        idle_hits = sum(page.ref_count == 0 for page in lookup.pages)
        return self.num_pages_for(num_tokens) - len(lookup.pages) + idle_hits

    # Verbs, in the order of a request's life.

    def open(self, request_id: RequestId, chain: BlockChain) -> None:
        """Begin the page table of a request; it holds no page yet."""
        assert request_id not in self._tables, f"{request_id} is open already"
        self._tables[request_id] = PageTable(chain)

    def wait_for_pending(self, request_id: RequestId, lookup: Lookup) -> bool:
        """Have a request wait for the last of the blocks it misses next that others compute now; False if none is.

        `pending.take_woken` names it once that block is published, or will not come.
        """
        digests = self._tables[request_id].chain.digests
        start = lookup.cached_tokens // self.layout.block_size
        num_pending = self.pending.num_leading(digests, start, lookup.num_allowed_blocks)
        if num_pending:
            self.pending.wait(request_id, digests[start + num_pending - 1])
        return num_pending > 0

    def admit(
        self,
        request_id: RequestId,
        lookup: Lookup,
        num_tokens: int,
        num_prefill_tokens: int,
        headroom: int = 0,
    ) -> Admission | None:
        """Give a request that holds nothing its hits and enough pages for `num_tokens`.

        What its prefill is going to compute, up to `num_prefill_tokens`, is pending from now on.
        Returns None, with nothing changed, when the pages do not suffice. The run of a lookup is given up when
        holding its source is what makes the request not fit.
        """
        if not self.fits(lookup, num_tokens, headroom):
            return None
        source = lookup.run.page if lookup.run and self._can_hold(lookup, num_tokens, headroom) else None
        for digest in lookup.mismatches:
            self._listener.token_mismatch(digest)
        table = self._tables[request_id]
        assert not table.pages, f"{request_id} is admitted twice"
        num_cached = lookup.num_page_tokens if source is None else lookup.cached_tokens
        self._listener.prompt_admitted(request_id, table.chain, num_cached, lookup.num_allowed_blocks)
        self.pool.touch(lookup.pages)
        if source:
            self.pool.touch([source])
        table.add_pages(lookup.pages)
        table.add_pages(self._take(request_id, self.num_pages_for(num_tokens) - len(lookup.pages)))
        table.num_computed_tokens = lookup.num_page_tokens
        table.num_exact_tokens = min(lookup.num_exact_tokens, lookup.num_page_tokens)
        admission = Admission(table.num_computed_tokens) if source is None else self._plan_copy(table, lookup)
        table.num_pending_blocks = min(
            num_prefill_tokens // self.layout.block_size, len(table.chain.contents)
        )
        self.pending.announce(request_id, self._unpublished(table))
        return admission

    def _take(self, request_id: RequestId, num_pages: int) -> list[Page]:
        self._listener.room_needed(request_id, num_pages)
        return self.pool.take(num_pages)

    def _unpublished(self, table: PageTable) -> Sequence[BlockDigest]:
        """Return the digests of the blocks that the request's prefill has yet to complete."""
        return table.chain.digests_until(table.num_pending_blocks)[
            table.num_computed_tokens // self.layout.block_size : table.num_pending_blocks
        ]

    def _settle(self, request_id: RequestId, table: PageTable, end_block: int) -> None:
        """Forget that blocks before `end_block` are pending."""
        start, end = (
            table.num_computed_tokens // self.layout.block_size,
            min(end_block, table.num_pending_blocks),
        )
        if start < end:
            self.pending.settle(request_id, table.chain.digests_until(end)[start:end])

    def _can_hold(self, lookup: Lookup, num_tokens: int, headroom: int) -> bool:
        assert lookup.run is not None, "no run, no source"
        return self.fits(lookup, num_tokens, headroom + (lookup.run.page.ref_count == 0))

    def _plan_copy(self, table: PageTable, lookup: Lookup) -> Admission:
        run = lookup.run
        assert run is not None, "no run, no copy"
        table.held.append(run.page)
        table.num_computed_tokens = lookup.cached_tokens
        table.num_exact_tokens = lookup.num_exact_tokens
        target = table.page_ids[len(lookup.pages)]
        return Admission(table.num_computed_tokens, PageCopy(run.page.page_id, target, lookup.num_run_tokens))

    def grow(self, request_id: RequestId, num_tokens: int) -> list[PageCopy] | None:
        """Give a request pages for `num_tokens` in all, and a page of its own to write in.

        Returns the copies that this takes, or None, with nothing changed, when there are too few pages.
        """
        table = self._tables[request_id]
        num_new = self.num_pages_for(num_tokens) - len(table.pages)
        tail = self._shared_tail(table)
        if max(num_new, 0) + (tail is not None) > self.pool.num_free_pages:
            return None
        copies = [] if tail is None else [self._copy_on_write(request_id, table, tail)]
        if num_new > 0:
            table.add_pages(self._take(request_id, num_new))
        return copies

    def _shared_tail(self, table: PageTable) -> int | None:
        """Return the index of a partly filled page that others refer to as well, or None.

        A pin is no reason for a copy: it keeps what is there, and writing behind that changes nothing of it.
        """
        index, num_filled = divmod(table.num_computed_tokens, self.layout.page_size)
        return index if num_filled and self.pool.num_holders(table.pages[index]) > 1 else None

    def _copy_on_write(self, request_id: RequestId, table: PageTable, index: int) -> PageCopy:
        """Replace a shared page of a table by a fresh one; who is left alone with the old one writes in place."""
        shared, fresh = table.pages[index], self._take(request_id, 1)[0]
        table.replace_page(index, fresh)
        # The source may be written or taken later in the same step: copies are done first, in order.
        self.pool.release([shared])
        return PageCopy(shared.page_id, fresh.page_id, table.num_computed_tokens % self.layout.page_size)

    def fork(self, parent_id: RequestId, child_id: RequestId) -> None:
        """Let a new request share all pages of another one, as far as they are computed."""
        parent = self._tables[parent_id]
        assert child_id not in self._tables, f"{child_id} is open already"
        child = self._tables[child_id] = parent.fork()
        num_pages = self.num_pages_for(parent.num_computed_tokens)
        child.add_pages(parent.pages[:num_pages])
        self.pool.touch(child.pages)

    def commit(
        self, request_id: RequestId, token_ids: Sequence[TokenId], end: int, *, is_decode: bool
    ) -> list[int]:
        """Take in that K/V now exist up to token `end`; publish every block completed by that.

        `token_ids` is the whole known sequence. Returns the indices of the blocks that were not indexed before.
        """
        table = self._tables[request_id]
        self.pool.release(table.held)
        table.held.clear()
        start, block_size = table.num_computed_tokens, self.layout.block_size
        self._settle(request_id, table, end // block_size)
        table.advance(end, is_decode=is_decode)
        if not self.is_caching or end // block_size == start // block_size:
            return []
        table.chain.extend(token_ids[table.chain.num_tokens : end])
        first = start // block_size
        blocks = self._blocks(table, first, end // block_size)
        published = [index for index, block in enumerate(blocks, first) if self._publish(table, index, block)]
        if published:
            self._listener.blocks_published(table.chain, published)
        return published

    def _publish(self, table: PageTable, index: int, block: Block) -> bool:
        """Offer a block to the index, and its page as the fuller home of the page's earlier blocks."""
        page, slot = block.page, block.slot
        page.depth = index // self.layout.blocks_per_page
        is_new = self.pool.publish(block)
        first = index - slot
        if is_new and first:
            table.pages[first // self.layout.blocks_per_page - 1].follower = page
        if slot and page.top_slot == slot:
            for earlier in self._blocks(table, first, index):
                self.pool.take_over_from_fuller(earlier, slot)
        return is_new

    def _blocks(self, table: PageTable, start: int, end: int) -> list[Block]:
        """Return the blocks from `start` to `end` as a table's pages hold them."""
        step, chain = self.layout.blocks_per_page, table.chain
        digests, contents, namespace = chain.digests_until(end), chain.contents, chain.namespace
        num_exact = table.num_exact_tokens // self.layout.block_size
        blocks = []
        for index in range(start, end):
            slot = index % step
            first = index - slot
            content = chain.content(first, index + 1) if slot else contents[index]
            parent = digests[first - 1] if first else chain.root
            page = table.pages[index // step]
            blocks.append(Block(digests[index], parent, page, slot, content, namespace, index >= num_exact))
        return blocks

    def release(self, request_id: RequestId) -> None:
        """Take all pages from a request, deepest first; its blocks stay indexed."""
        table = self._tables[request_id]
        self._settle(request_id, table, table.num_pending_blocks)
        self.pool.release([*table.held, *reversed(table.pages)])
        table.clear()

    def close(self, request_id: RequestId) -> None:
        """Release a request's pages and forget it."""
        self.release(request_id)
        del self._tables[request_id]

    def pin(self, chain: BlockChain, num_tokens: int, until: float) -> int | None:
        """Keep what is cached of a chain's first `num_tokens` until then; return how many tokens that is.

        None, with nothing changed but a listener told, when too many pages would be pinned. Let pins lapse first.
        """
        found = self._finder.find_blocks(chain, num_tokens // self.layout.block_size)
        pages = [*found.pages, found.run.page] if found.run else found.pages
        return found.cached_tokens if self.pool.pin(pages, until) else None

    def reset(self) -> bool:
        """Forget every cached block and pin; False, with nothing changed, while a request holds any page."""
        return self.pool.clear()

    def check_invariants(self) -> None:
        """Assert that the pool's references are exactly the tables' entries and its pins."""
        references: Counter[PageId] = Counter()
        for table in self._tables.values():
            assert table.page_ids == [page.page_id for page in table.pages], (
                "a page table and its ids disagree"
            )
            references.update(page.page_id for page in [*table.pages, *table.held])
        self.pool.check_invariants(references)
        self.pending.check_invariants()
        owed = {digest for table in self._tables.values() for digest in self._unpublished(table)}
        assert all(digest in owed for digest in self.pending), "a block is pending that nobody computes"
