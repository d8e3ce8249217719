"""How others watch the cache: one object with methods that do nothing.

Metrics, explanation, tiers and the simulator override what they need. The cache itself counts nothing.
"""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Page
from anaphora.ids import RequestId


class CacheListener:
    """Told of every change of the index, and of what it is made for, in the order in which they happen."""

    def prompt_admitted(
        self, request_id: RequestId, chain: BlockChain, num_cached_tokens: int, num_allowed_blocks: int
    ) -> None:
        """A request is about to get its pages; nothing has been evicted for it yet.

        It reuses `num_cached_tokens`; the law would have let it reuse `num_allowed_blocks`.
        """

    def room_needed(self, request_id: RequestId, num_pages: int) -> None:
        """So many pages are taken for a request next; what is evicted from now on is evicted for it."""

    def blocks_published(self, chain: BlockChain, block_indices: Sequence[int]) -> None:
        """These blocks of a chain entered the index, in ascending order."""

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        """A page was taken for new content; these digests left the index."""

    def token_mismatch(self, digest: BlockDigest) -> None:
        """A digest was found whose content differs: a collision, treated as a miss."""

    def pin_refused(self, num_pages: int) -> None:
        """So many more pages were to be pinned, but the pinned share of the pool would have grown too large."""

    def pins_lapsed(self, pages: Sequence[Page]) -> None:
        """The time of these pages' pins has come: they can be evicted again once nobody holds them."""

    def cleared(self) -> None:
        """The whole index was emptied."""


class CacheListeners(CacheListener):
    """Passes every event on to several listeners, in order."""

    def __init__(self, listeners: Sequence[CacheListener] = ()) -> None:
        self._listeners = tuple(listeners)

    def prompt_admitted(
        self, request_id: RequestId, chain: BlockChain, num_cached_tokens: int, num_allowed_blocks: int
    ) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.prompt_admitted(request_id, chain, num_cached_tokens, num_allowed_blocks)

    def room_needed(self, request_id: RequestId, num_pages: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.room_needed(request_id, num_pages)

    def blocks_published(self, chain: BlockChain, block_indices: Sequence[int]) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.blocks_published(chain, block_indices)

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.page_evicted(page, digests)

    def token_mismatch(self, digest: BlockDigest) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.token_mismatch(digest)

    def pin_refused(self, num_pages: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.pin_refused(num_pages)

    def pins_lapsed(self, pages: Sequence[Page]) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.pins_lapsed(pages)

    def cleared(self) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.cleared()
