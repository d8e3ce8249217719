"""A cache of a few pages on which the numbered cases are told, with exact ids and exact order.

`admit` is: lookup, pages for all remaining tokens, commit, in one step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.cache.chain import BlockChain, UnhashedChain
from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.extras import PromptExtras
from anaphora.cache.hashing import SHA256, BlockDigest, HashAlgorithm, Namespace
from anaphora.cache.lookup import NO_HIT
from anaphora.cache.manager import KVManager
from anaphora.cache.page import Page
from anaphora.config import EvictionPolicyName, KVLayout
from anaphora.ids import RequestId

FINGERPRINT = bytes(32)


@dataclass(frozen=True)
class Admitted:
    """What a request got."""

    hit: int
    pages: list[int]


class EventLog(CacheListener):
    """Writes down what happened, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, object]] = []

    def blocks_published(self, chain: BlockChain, block_indices: Sequence[int]) -> None:
        """Note the indices."""
        self.entries.append(("published", list(block_indices)))

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        """Note the page and how many digests it had."""
        self.entries.append(("evicted", (page.page_id, len(digests))))

    def token_mismatch(self, digest: BlockDigest) -> None:
        """Note the digest."""
        self.entries.append(("mismatch", digest))

    def pin_refused(self, num_pages: int) -> None:
        """Note how many pages."""
        self.entries.append(("pin refused", num_pages))

    def cleared(self) -> None:
        """Note it."""
        self.entries.append(("cleared", None))


class CacheStory:
    """A KVManager with names for requests."""

    def __init__(
        self,
        num_pages: int,
        block_size: int = 16,
        page_size: int | None = None,
        *,
        caching: bool = True,
        exact_reuse: bool = False,
        min_prefill_tokens: int = 1,
        can_copy_part: bool = True,
        policy: EvictionPolicyName = "lru",
        max_pinned_pages: int = 0,
        hash_algorithm: HashAlgorithm = SHA256,
        partial_block_reuse: int = 0,
    ) -> None:
        self.log = EventLog()
        layout = KVLayout(block_size, page_size or block_size, num_pages, min_prefill_tokens, can_copy_part)
        self.manager = KVManager(
            layout,
            self.log,
            enable_prefix_caching=caching,
            exact_reuse=exact_reuse,
            policy=make_policy(policy, layout),
            max_pinned_pages=max_pinned_pages,
            hash_algorithm=hash_algorithm,
            partial_block_reuse=partial_block_reuse,
        )
        self.tokens: dict[str, list[int]] = {}
        self.copies: dict[str, object] = {}

    def chain(
        self, tokens: Sequence[int], salt: str | None = None, extras: PromptExtras | None = None
    ) -> BlockChain:
        """Return the chain of some tokens."""
        kind = BlockChain if self.manager.is_caching else UnhashedChain
        namespace = Namespace(model_fingerprint=FINGERPRINT, cache_salt=salt)
        algorithm, block_size = self.manager.hash_algorithm, self.manager.layout.block_size
        return kind(namespace, block_size, tokens, algorithm=algorithm, extras=extras)

    def hit(self, tokens: Sequence[int], salt: str | None = None, extras: PromptExtras | None = None) -> int:
        """Return how many tokens a prompt would reuse now."""
        return self.manager.lookup(self.chain(tokens, salt, extras), len(tokens), len(tokens)).cached_tokens

    def admit(
        self,
        name: str,
        tokens: Sequence[int],
        salt: str | None = None,
        *,
        extras: PromptExtras | None = None,
        skip_reading: bool = False,
    ) -> Admitted | None:
        """Admit a request in one step; None when the pages do not suffice."""
        request_id, chain = RequestId(name), self.chain(tokens, salt, extras)
        self.manager.open(request_id, chain)
        lookup = NO_HIT if skip_reading else self.manager.lookup(chain, len(tokens), len(tokens))
        admission = self.manager.admit(request_id, lookup, len(tokens), len(tokens))
        if admission is None:
            self.manager.close(request_id)
            return None
        self.tokens[name] = list(tokens)
        self.copies[name] = admission.copy
        self.manager.commit(request_id, tokens, len(tokens), is_decode=False)
        self.manager.check_invariants()
        return Admitted(admission.cached_tokens, [int(page) for page in self.pages(name)])

    def decode(self, name: str, tokens: Sequence[int]) -> bool:
        """Write more tokens one by one; False when a page is missing."""
        known = self.tokens[name]
        for token in tokens:
            known.append(token)
            if self.manager.grow(RequestId(name), len(known)) is None:
                return False
            self.manager.commit(RequestId(name), known, len(known), is_decode=True)
            self.manager.check_invariants()
        return True

    def free(self, name: str) -> None:
        """End a request."""
        self.manager.close(RequestId(name))
        self.manager.check_invariants()

    def pin(self, tokens: Sequence[int], until: float) -> int | None:
        """Pin what is cached of these tokens."""
        pinned = self.manager.pin(self.chain(tokens), len(tokens), until)
        self.manager.check_invariants()
        return pinned

    def lapse(self, now: float) -> int:
        """Let pins lapse; return how many pages."""
        num_lapsed = self.manager.pool.lapse(now)
        self.manager.check_invariants()
        return num_lapsed

    def pages(self, name: str) -> list[int]:
        """Return a request's pages."""
        return [int(page) for page in self.manager.table(RequestId(name)).page_ids]

    def refs(self, *page_ids: int) -> list[int]:
        """Return the reference counts of some pages."""
        pages = {
            page.page_id: page.ref_count for table in self.manager._tables.values() for page in table.pages
        }
        return [pages.get(page_id, 0) for page_id in page_ids]  # type: ignore[call-overload]

    def indexed(self) -> dict[int, list[int]]:
        """Return the indexed slots of every page that has any."""
        slots: dict[int, list[int]] = {}
        for block in self.manager.pool.index:
            slots.setdefault(int(block.page.page_id), []).append(block.slot)
        return {page: sorted(held) for page, held in sorted(slots.items())}

    @property
    def order(self) -> list[int]:
        """Return the free pages, the next to be taken first."""
        return [int(page) for page in self.manager.pool.free_order()]

    @property
    def usage(self) -> tuple[int, int, int]:
        """Return used, cached, empty."""
        return tuple(self.manager.pool.usage())  # type: ignore[return-value]


def numbers(start: int, count: int) -> list[int]:
    """Return `count` different tokens, beginning at `start`."""
    return list(range(start, start + count))
