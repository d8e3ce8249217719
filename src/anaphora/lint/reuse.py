"""A log's prompts through the engine's own cache, in their order: how many tokens each would have found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anaphora.config import KVLayout
from anaphora.explain.records import CacheNamespace, HitLaw, PromptRecord
from anaphora.ids import TokenId
from anaphora.sim.replay import ReplayedCache

PAGE_TOKENS = 32
"""A page of the OpenVINO runner; a block that does not divide it has pages of its own size."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the cache is given of a request. `reads` is whether it may be answered from the cache."""

    token_ids: tuple[TokenId, ...]
    namespace: CacheNamespace
    reads: bool = True

    @classmethod
    def of(cls, record: PromptRecord, token_ids: Sequence[TokenId] | None = None) -> "Prompt":
        """Return the prompt of a record, or the one that it would be with other tokens."""
        ids = record.token_ids if token_ids is None else token_ids
        return cls(tuple(ids), record.namespace, record.bypassed_by is None)


@dataclass(frozen=True, slots=True)
class Reuse:
    """What a log found: reused tokens of each request, and prompt tokens of all."""

    reused: tuple[int, ...]
    prompt_tokens: int

    @property
    def reused_tokens(self) -> int:
        """All tokens that were found."""
        return sum(self.reused)

    @property
    def hit_rate(self) -> float:
        """Reused tokens of all prompt tokens; 0 for an empty log."""
        return self.reused_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def replay(prompts: Sequence[Prompt], law: HitLaw, num_pages: int | None = None) -> Reuse:
    """Return what each prompt finds of those before it; without `num_pages` nothing is evicted.

    Raises ContextLengthError for a prompt that does not fit into `num_pages`.
    """
    page_size = page_size_of(law)
    usable = num_pages or _pages_for_all(prompts, page_size)
    layout = KVLayout(law.block_size, page_size, usable + 1, min_prefill_tokens=law.min_prefill_tokens)
    cache = ReplayedCache(layout)
    reused = []
    for prompt in prompts:
        found = cache.add(prompt.token_ids, cache_salt=_salt(prompt.namespace))
        reused.append(found if prompt.reads else 0)
    return Reuse(tuple(reused), sum(len(prompt.token_ids) for prompt in prompts))


def page_size_of(law: HitLaw) -> int:
    """Return how many tokens a page holds."""
    return law.block_size if PAGE_TOKENS % law.block_size else PAGE_TOKENS


def _salt(namespace: CacheNamespace) -> str | None:
    parts = (namespace.model, namespace.adapter, namespace.salt)
    return repr(parts) if any(parts) else None


def _pages_for_all(prompts: Iterable[Prompt], size: int) -> int:
    """Enough for every distinct page, for two unfinished or repeated ones of each prompt, and for one more prompt."""
    seen: dict[tuple[object, tuple[TokenId, ...]], int] = {}
    longest = count = 0
    for prompt in prompts:
        parent: object = prompt.namespace
        ids = prompt.token_ids
        for start in range(0, len(ids) - size + 1, size):
            parent = seen.setdefault((parent, ids[start : start + size]), len(seen))
        longest, count = max(longest, len(ids)), count + 1
    return len(seen) + 2 * count + -(-longest // size)
