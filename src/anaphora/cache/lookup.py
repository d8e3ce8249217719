"""The pure question: what of a sequence is cached now. It changes no order, no counter and no index.

Rules: docs/cache-semantics.md, from lookup to part of a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.hit_law import max_hit_blocks
from anaphora.cache.page import Block, Page
from anaphora.cache.pool import PagePool
from anaphora.cache.siblings import Match


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a sequence can reuse now: whole pages, then a run of blocks inside one more page, to be copied.

    `num_rounded_tokens` more are cached, but inside a block of which the rest differs: they are lost to rounding.
    `num_allowed_blocks` is the most the law would let it reuse. `num_exact_tokens` of the hits come from
    prefill alone. `index_version` is that of the index which gave this answer. `mismatches` are digests that
    were found with other content.
    """

    pages: Sequence[Page] = ()
    run: Block | None = None
    num_page_tokens: int = 0
    num_run_tokens: int = 0
    num_exact_tokens: int = 0
    num_rounded_tokens: int = 0
    num_allowed_blocks: int = 0
    index_version: int = -1
    mismatches: tuple[BlockDigest, ...] = ()

    @property
    def cached_tokens(self) -> int:
        """How many leading tokens need not be computed."""
        return self.num_page_tokens + self.num_run_tokens


NO_HIT = Lookup()


class PrefixFinder:
    """Looks sequences up in a pool.

    With `exact_reuse`, what a decode step wrote does not count as cached. `partial_block_reuse` is how many
    leading tokens of a block are worth a copy when the rest differs; 0 is none.
    """

    def __init__(self, pool: PagePool, *, exact_reuse: bool, partial_block_reuse: int) -> None:
        self.layout = pool.layout
        self.pool = pool
        self._exact_reuse = exact_reuse
        self._partial_block_reuse = partial_block_reuse

    def find(self, chain: BlockChain, num_tokens: int, num_prefill_tokens: int) -> Lookup:
        """Return what can be reused of a sequence whose first `num_prefill_tokens` are computed by prefill.

        At least one token is left to compute, and never a prefill shorter than `min_prefill_tokens`.
        """
        most_blocks = max_hit_blocks(
            num_tokens,
            num_prefill_tokens,
            block_size=self.layout.block_size,
            min_prefill_tokens=self.layout.min_prefill_tokens,
        )
        blocks = self.find_blocks(chain, most_blocks)
        most = min(num_tokens - 1, num_prefill_tokens - self.layout.min_prefill_tokens)
        match = self._find_sibling(chain, blocks.pages, most - blocks.num_page_tokens)
        num_more = match.num_tokens - blocks.num_run_tokens if match else 0
        if match is None or num_more <= 0:
            return blocks
        if not 0 < self._partial_block_reuse <= num_more:
            return replace(blocks, num_rounded_tokens=num_more)
        return self._with_run(blocks, match.block, match.num_tokens)

    def find_blocks(self, chain: BlockChain, most_blocks: int) -> Lookup:
        """Return what is cached of a sequence's first blocks: whole pages, then a run of whole blocks in one more."""
        limit = min(most_blocks, len(chain.contents))
        pages, num_exact, mismatches = self._find_pages(chain, limit)
        run = self._find_run(chain, len(pages) * self.layout.blocks_per_page, limit, mismatches)
        found = Lookup(
            pages=pages,
            num_page_tokens=len(pages) * self.layout.page_size,
            num_exact_tokens=num_exact,
            num_allowed_blocks=limit,
            index_version=self.pool.index.version,
            mismatches=tuple(mismatches),
        )
        return self._with_run(found, run, (run.slot + 1) * self.layout.block_size) if run else found

    @staticmethod
    def _with_run(found: Lookup, run: Block, num_run_tokens: int) -> Lookup:
        is_exact = found.num_exact_tokens >= found.num_page_tokens and not run.is_decode_written
        num_exact = found.num_page_tokens + num_run_tokens if is_exact else found.num_exact_tokens
        return replace(found, run=run, num_run_tokens=num_run_tokens, num_exact_tokens=num_exact)

    def _find_sibling(self, chain: BlockChain, pages: Sequence[Page], most_tokens: int) -> Match | None:
        """Return the page behind `pages` that begins most like what the chain goes on with, or None."""
        if most_tokens <= 0 or chain.extras or not self.layout.can_copy_part:
            return None
        start = len(pages) * self.layout.blocks_per_page
        parent = chain.digests_until(start)[start - 1] if start else chain.root
        tokens = chain.packed_tokens(start, min(most_tokens, self.layout.page_size))
        match = self.pool.siblings.best(parent, tokens)
        return match if match and match.block.namespace == chain.namespace else None

    def _find_pages(self, chain: BlockChain, limit: int) -> tuple[list[Page], int, list[BlockDigest]]:
        """Return the whole pages that can be reused, how many of their leading tokens are exact, and collisions.

        What was written behind the last page found is compared by its parent's digest and by content, so that
        its own digest need not be computed; the index is asked where that fails.
        """
        step = self.layout.blocks_per_page
        namespace, digest = chain.namespace, BlockDigest(b"")
        pages: list[Page] = []
        mismatches: list[BlockDigest] = []
        num_exact_pages: int | None = None
        behind: list[Block] = []
        for end in range(step, limit + 1, step):
            content = chain.contents[end - 1] if step == 1 else chain.content(end - step, end)
            block = behind[-1] if len(behind) == step else None
            if block is None or block.parent != digest or block.content != content:
                block = self._find(chain, pages, end)
                if block is None:
                    break
            if block.content != content or block.namespace != namespace:
                mismatches = [block.digest]
                break
            if block.is_decode_written:
                if self._exact_reuse:
                    break
                num_exact_pages = len(pages) if num_exact_pages is None else num_exact_pages
            page, digest = block.page, block.digest
            pages.append(page)
            behind = page.follower.blocks
        self._adopt(chain, pages)
        num_exact = len(pages) if num_exact_pages is None else num_exact_pages
        return pages, num_exact * self.layout.page_size, mismatches

    def _find(self, chain: BlockChain, pages: Sequence[Page], end: int) -> Block | None:
        """Return the block indexed for the chain's block before `end`; `pages` hold all before it."""
        self._adopt(chain, pages)
        return self.pool.index.get(chain.digests_until(end)[end - 1])

    def _adopt(self, chain: BlockChain, pages: Sequence[Page]) -> None:
        """Tell a chain its digests up to the end of `pages`; those it does not know are of pages that hold them all."""
        step = self.layout.blocks_per_page
        first = chain.num_known_digests // step
        chain.adopt(first * step, [block.digest for page in pages[first:] for block in page.blocks])

    def _find_run(
        self, chain: BlockChain, start: int, limit: int, mismatches: list[BlockDigest]
    ) -> Block | None:
        """Return the deepest reusable block inside the page that begins at block `start`, or None."""
        if not self.layout.can_copy_part:
            return None
        # A whole page that was within the limit has been tried already.
        deepest = min(limit, start + self.layout.blocks_per_page - 1)
        for end in range(deepest, start, -1):
            block = self.pool.index.get(chain.digests_until(deepest)[end - 1])
            if block is None or (self._exact_reuse and block.is_decode_written):
                continue
            if block.content == chain.content(start, end) and block.namespace == chain.namespace:
                return block
            mismatches.append(block.digest)
        return None
