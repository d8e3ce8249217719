"""The pages of one request, and how far they are written and published.

Knows nothing of the pool: the manager moves pages in and out.
"""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.page import Page
from anaphora.ids import PageId


class PageTable:
    """Page i holds tokens `[i · page_size, (i + 1) · page_size)` of the request.

    `num_computed_tokens` is how many leading tokens have K/V. `num_exact_tokens` is how many of them come from
    prefill alone: behind the first token written by a decode step, every K/V has seen that token's.
    Its blocks before `num_pending_blocks` that are not computed yet are promised to others.
    `held` are pages of others that a planned copy reads; they are released when the step commits.
    """

    __slots__ = (
        "chain",
        "held",
        "num_computed_tokens",
        "num_exact_tokens",
        "num_pending_blocks",
        "page_ids",
        "pages",
    )

    def __init__(self, chain: BlockChain) -> None:
        self.chain = chain
        self.clear()

    def clear(self) -> None:
        """Forget pages and progress; the chain stays, since tokens never change."""
        self.pages: list[Page] = []
        self.page_ids: list[PageId] = []
        self.held: list[Page] = []
        self.num_computed_tokens = 0
        self.num_exact_tokens = 0
        self.num_pending_blocks = 0

    def add_pages(self, pages: Sequence[Page]) -> None:
        """Append pages to the table."""
        self.pages += pages
        self.page_ids += [page.page_id for page in pages]

    def replace_page(self, index: int, page: Page) -> None:
        """Put another page in a place of the table."""
        self.pages[index] = page
        self.page_ids[index] = page.page_id

    def fork(self) -> "PageTable":
        """Return a table with the same tokens and progress, and no pages yet."""
        child = PageTable(self.chain.copy())
        child.num_computed_tokens = self.num_computed_tokens
        child.num_exact_tokens = self.num_exact_tokens
        return child

    def advance(self, end: int, *, is_decode: bool) -> None:
        """Note that K/V now exist up to token `end`."""
        if self.num_exact_tokens == self.num_computed_tokens and not is_decode:
            self.num_exact_tokens = end
        self.num_computed_tokens = end
