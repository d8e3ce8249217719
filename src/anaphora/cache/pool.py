"""All pages of a runner's K/V memory: which are referenced, cached or empty, and what is taken next.

Knows nothing of requests or chains: it is handed pages and blocks. It counts nothing for others; they listen.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.lru import LRU
from anaphora.cache.eviction.policy import EvictionPolicy
from anaphora.cache.free_queue import FreeQueue
from anaphora.cache.hashing import TOKEN_BYTES
from anaphora.cache.page import Block, Page
from anaphora.cache.pins import Pins
from anaphora.cache.prefix_index import PrefixIndex
from anaphora.cache.siblings import Siblings
from anaphora.config import KVLayout
from anaphora.ids import PageId


class PageUsage(NamedTuple):
    """How many pages are held by requests, idle with a digest, and idle without; the sum is all usable pages.

    A pinned page that no request holds counts as cached, although it cannot be taken.
    """

    used: int
    cached: int
    empty: int


class PagePool:
    """Hands out pages and takes them back.

    The free order is: pages without digests first, then pages with digests in the order of the eviction policy,
    by default the least recently released first. Every operation costs O(1) per page, whatever the pool's size;
    a policy may make it O(log n).

    A pin is one more reference: while it lasts, a page is neither idle nor evicted, and keeps its digests.
    """

    def __init__(
        self,
        layout: KVLayout,
        listener: CacheListener | None = None,
        *,
        exact_reuse: bool = False,
        policy: EvictionPolicy | None = None,
        max_pinned_pages: int = 0,
    ) -> None:
        self.layout = layout
        self._block_bytes = layout.block_size * TOKEN_BYTES
        self.index = PrefixIndex()
        self.siblings = Siblings()
        self._listener = listener or CacheListener()
        self._exact_reuse = exact_reuse
        self._pages = [Page(PageId(number)) for number in range(1, layout.num_pages)]
        self._empty = FreeQueue(self._pages)
        self._cached = LRU() if policy is None else policy
        self._pins = Pins()
        self.max_pinned_pages = max_pinned_pages

    @property
    def num_free_pages(self) -> int:
        """How many pages can be taken; an idle cached page is a free page, unless it is pinned."""
        return len(self._empty) + len(self._cached)

    @property
    def num_unpinnable_pages(self) -> int:
        """How many pages a request that runs alone can get, however much is pinned."""
        return len(self._pages) - self.max_pinned_pages

    @property
    def num_pinned_pages(self) -> int:
        """How many pages are pinned, held by requests or not."""
        return len(self._pins)

    def num_holders(self, page: Page) -> int:
        """Return how many references requests have to a page; a pin's is not among them."""
        return page.ref_count - (page in self._pins)

    def usage(self) -> PageUsage:
        """Return the three counts."""
        # One reference is the pin's own.
        num_pinned_idle = sum(page.ref_count == 1 for page in self._pins.pages())
        cached, empty = len(self._cached) + num_pinned_idle, len(self._empty)
        return PageUsage(used=len(self._pages) - cached - empty, cached=cached, empty=empty)

    def free_order(self) -> list[PageId]:
        """Return the ids of the free pages, the next to be taken first."""
        return [page.page_id for queue in (self._empty, self._cached) for page in queue]

    def take(self, num_pages: int) -> list[Page]:
        """Take free pages with one reference each, evicting what they held; the caller has checked there are enough."""
        num_empty = min(num_pages, len(self._empty))
        pages = self._empty.take(num_empty)
        if num_pages > num_empty:
            evicted = self._cached.take(num_pages - num_empty)
            for page in evicted:
                self._evict(page)
            pages += evicted
        for page in pages:
            page.ref_count = 1
        return pages

    def _evict(self, page: Page) -> None:
        blocks, page.blocks = page.blocks, []
        for block in blocks:
            self.index.remove(block)
            self._leave_siblings(block)
        self._listener.page_evicted(page, [block.digest for block in blocks])

    def _can_lend(self, block: Block) -> bool:
        """Whether the first tokens of a block may be copied without the rest."""
        # A block with extras is no mere run of tokens.
        is_plain = len(block.content) == (block.slot + 1) * self._block_bytes
        return is_plain and not (self._exact_reuse and block.is_decode_written)

    def _leave_siblings(self, block: Block) -> None:
        if self._can_lend(block):
            self.siblings.remove(block)

    def touch(self, pages: Sequence[Page]) -> None:
        """Add one reference to each page that was found; an idle one leaves the free order."""
        idle = []
        for page in pages:
            if not page.ref_count:
                idle.append(page)
            page.ref_count += 1
        self._cached.remove_all(idle)
        self._cached.hit(pages)

    def release(self, pages: Sequence[Page]) -> None:
        """Take one reference off each page.

        Of those that become idle, pages without digests go to the front of the free order as one group,
        pages with digests to the eviction policy, both in the order given: hand over the deepest page of a chain
        first.
        """
        empty: list[Page] = []
        cached: list[Page] = []
        for page in pages:
            ref_count = page.ref_count = page.ref_count - 1
            assert ref_count >= 0, f"{page} is released once too often"
            if not ref_count:
                (cached if page.blocks else empty).append(page)
        self._empty.prepend_all(empty)
        self._cached.add(cached, pages)

    def pin(self, pages: Sequence[Page], until: float) -> bool:
        """Keep indexed pages until then, or longer if they are pinned longer already.

        False, with nothing changed but a listener told, when more than `max_pinned_pages` would be pinned.
        """
        assert all(page.blocks for page in pages), f"a page to be pinned answers for nothing: {pages}"
        new = [page for page in pages if page not in self._pins]
        if len(self._pins) + len(new) > self.max_pinned_pages:
            self._listener.pin_refused(len(new))
            return False
        for page in new:
            if page.ref_count == 0:
                self._cached.remove(page)
            page.ref_count += 1
        self._pins.add(pages, until)
        return True

    def lapse(self, now: float) -> int:
        """Give up the pins whose time has come, as if their pages were released now; return how many pages."""
        lapsed = self._pins.lapse(now)
        if lapsed:
            self._listener.pins_lapsed(lapsed)
            self.release(lapsed)
        return len(lapsed)

    def publish(self, block: Block) -> bool:
        """Index a block of a referenced page unless its digest is indexed already; say whether it is new.

        With exact reuse, a prefill-written block takes over the digest of a decode-written one.
        """
        assert block.page.ref_count > 0, f"{block.page} publishes without a reference"
        existing = self.index.add(block)
        if existing is block:
            self._hold(block)
            return True
        if existing.page is not block.page and self._exact_reuse and self._is_better(block, existing):
            self._take_over(existing, block)
        return False

    def take_over_from_fuller(self, block: Block, top_slot: int) -> None:
        """Move an earlier block's digest to a page that is filled up to `top_slot`, if its present page is less full.

        A pinned page keeps its digests. No event is sent, since the digest stays indexed.
        """
        existing = self.index.get(block.digest)
        if existing is None or existing.page is block.page or existing.content != block.content:
            return
        if existing.page in self._pins:
            return
        present_top = existing.page.top_slot
        assert present_top is not None, f"{existing.page} is indexed but holds no block"
        is_worse = self._exact_reuse and self._is_better(existing, block)
        if present_top < top_slot and not is_worse:
            self._take_over(existing, block)

    @staticmethod
    def _is_better(block: Block, other: Block) -> bool:
        """Whether a prefill wrote the one and a decode step the other."""
        return other.is_decode_written and not block.is_decode_written

    def _hold(self, block: Block) -> None:
        page = block.page
        if self._can_lend(block):
            self.siblings.add(block)
        page.blocks.append(block)
        if len(page.blocks) > 1:
            page.blocks.sort(key=lambda held: held.slot)
        else:
            page.num_hits = page.rank = 0

    def _take_over(self, existing: Block, block: Block) -> None:
        page = existing.page
        self.index.remove(existing)
        self._leave_siblings(existing)
        page.blocks.remove(existing)
        standing = self.index.add(block)
        assert standing is block, f"{block.digest.hex()} was indexed twice"
        self._hold(block)
        if not page.blocks and page.ref_count == 0:
            self._cached.remove(page)
            self._empty.prepend_all([page])

    def clear(self) -> bool:
        """Forget all digests and pins; False, with nothing changed, while a request holds any page."""
        if self.usage().used:
            return False
        self.release(self._pins.clear())
        idle = self._cached.take(len(self._cached))
        for page in idle:
            page.blocks = []
        self._empty.append_all(idle)
        self.index.clear()
        self.siblings.clear()
        self._listener.cleared()
        return True

    def check_invariants(self, references: Counter[PageId] | None = None) -> None:
        """Assert that queues, references and index agree, and with the given references per page if any.

        Pins are not among those: the pool adds its own.
        """
        empty, cached = list(self._empty), list(self._cached)
        assert len(empty) == len(self._empty), "the empty queue's length is wrong"
        assert len(cached) == len(self._cached), "the cached queue's length is wrong"
        idle = {page.page_id for page in empty} | {page.page_id for page in cached}
        assert len(idle) == len(empty) + len(cached), "a page is queued twice"
        assert not any(page.blocks for page in empty), "a page with digests is called empty"
        assert all(page.blocks for page in cached), "a page without digests is called cached"
        for page in self._pages:
            assert (page.ref_count == 0) == (page.page_id in idle), f"{page} is on the wrong side"
            if references is not None:
                num_holders = references[page.page_id] + (page in self._pins)
                assert page.ref_count == num_holders, f"{page} has {num_holders} holders"
        self._cached.check_invariants()
        self._pins.check_invariants()
        assert len(self._pins) <= self.max_pinned_pages, "too many pages are pinned"
        self._check_index()

    def _check_index(self) -> None:
        held = [block for page in self._pages for block in page.blocks]
        assert len(held) == len(self.index), "index and pages disagree"
        for page in self._pages:
            slots = [block.slot for block in page.blocks]
            assert slots == sorted(set(slots)), f"{page} holds a slot twice or out of order"
            assert all(block.page is page for block in page.blocks), f"{page} holds a foreign block"
        assert all(self.index.get(block.digest) is block for block in held), "a held block is not indexed"
