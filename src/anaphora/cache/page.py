"""One page of K/V memory as the cache sees it: who refers to it and which digests it answers for.

Knows nothing of the bytes in the page, which only a runner sees.
"""

from dataclasses import dataclass

from anaphora.cache.hashing import BlockDigest
from anaphora.ids import PageId


@dataclass(frozen=True, slots=True)
class PageCopy:
    """Copy the K/V of the first `num_tokens` slots of `source` over those of `target`, in every layer."""

    source: PageId
    target: PageId
    num_tokens: int


@dataclass(slots=True, eq=False)
class Block:
    """An indexed block: the page that holds it, its slot in that page, and what was written there.

    `content` is the page's tokens from its first through this block's last: a page is always filled from its
    start, so one comparison verifies the whole run. `parent` is the digest of all before the page: together with
    `content` and `namespace` it determines `digest`. `is_decode_written` says that a decode step wrote some of
    the block, or of what it was computed upon.
    """

    digest: BlockDigest
    parent: BlockDigest
    page: "Page"
    slot: int
    content: bytes
    namespace: bytes
    is_decode_written: bool


class Page:
    """A page: its references, its indexed blocks in ascending slot order, and its place in a free queue.

    `previous` and `next` belong to the FreeQueue that holds the page; both are None while it is referenced.
    `depth` is the page's place in its chain, 0 for the first; it means something once a block is indexed.
    `num_hits` and `rank` belong to the eviction policy and begin at 0 with each new content.
    `follower` is the page that was last written behind this one, itself at first: where a lookup looks before
    it asks the index. It is a hint: the page may hold something else by now.
    """

    __slots__ = (
        "blocks",
        "depth",
        "follower",
        "next",
        "num_hits",
        "page_id",
        "previous",
        "rank",
        "ref_count",
    )

    def __init__(self, page_id: PageId) -> None:
        self.page_id = page_id
        self.ref_count = 0
        self.blocks: list[Block] = []
        self.previous: Page | None = None
        self.next: Page | None = None
        self.depth = 0
        self.num_hits = 0
        self.rank = 0
        self.follower = self

    def __repr__(self) -> str:
        """Show what an invariant's message needs."""
        return f"Page({self.page_id}, ref_count={self.ref_count}, slots={[b.slot for b in self.blocks]})"

    @property
    def top_slot(self) -> int | None:
        """The highest indexed slot, or None for a page without digests."""
        return self.blocks[-1].slot if self.blocks else None
