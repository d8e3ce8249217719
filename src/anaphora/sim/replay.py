"""Prompts one after another through the engine's own cache: what each would have found.

Computes no K/V, and knows neither steps nor time: a prompt is whole before the next one comes.
"""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policy import EvictionPolicy
from anaphora.cache.hashing import Namespace
from anaphora.cache.lookup import NO_HIT
from anaphora.cache.manager import KVManager
from anaphora.config import KVLayout
from anaphora.errors import ContextLengthError
from anaphora.ids import RequestId, TokenId


class ReplayedCache:
    """A real KVManager that is given whole prompts. All pages are free between two of them."""

    def __init__(
        self,
        layout: KVLayout,
        *,
        policy: EvictionPolicy | None = None,
        listener: CacheListener | None = None,
        exact_reuse: bool = False,
    ) -> None:
        self.manager = KVManager(layout, listener, policy=policy, exact_reuse=exact_reuse)
        self._num_prompts = 0

    def add(self, token_ids: Sequence[TokenId], *, cache_salt: str | None = None) -> int:
        """Look a prompt up, compute and publish the rest of it, and return how many tokens were cached.

        Raises ContextLengthError for a prompt that is larger than the whole pool.
        """
        namespace = Namespace(model_fingerprint=b"", cache_salt=cache_salt)
        chain = BlockChain(namespace, self.manager.layout.block_size, token_ids)
        return self.add_chain(chain, len(token_ids), token_ids=token_ids)

    def add_chain(
        self,
        chain: BlockChain,
        num_prompt_tokens: int,
        *,
        num_tokens: int | None = None,
        may_hit_all: bool = False,
        reads_cache: bool = True,
        token_ids: Sequence[TokenId] | None = None,
    ) -> int:
        """Do the same with the chain of a prompt; decode steps then write until there are `num_tokens`.

        `may_hit_all` lifts the law that the last token is always computed; without `reads_cache` the whole prompt is.
        `token_ids` may be left out for a chain that only counts them.
        """
        num_tokens = num_prompt_tokens if num_tokens is None else num_tokens
        token_ids = range(num_tokens) if token_ids is None else token_ids
        self._check_fits(num_tokens)
        self._num_prompts += 1
        manager, request_id = self.manager, RequestId(f"prompt-{self._num_prompts}")
        manager.open(request_id, chain)
        found = NO_HIT
        if reads_cache:
            found = manager.lookup(chain, num_prompt_tokens + may_hit_all, num_prompt_tokens)
        admission = manager.admit(request_id, found, num_prompt_tokens, num_prompt_tokens)
        assert admission is not None, f"{request_id} does not fit into an idle pool"
        manager.commit(request_id, token_ids, num_prompt_tokens, is_decode=False)
        if num_tokens > num_prompt_tokens:
            grown = manager.grow(request_id, num_tokens)
            assert grown is not None, f"{request_id} cannot grow in a pool that is its own"
            manager.commit(request_id, token_ids, num_tokens, is_decode=True)
        manager.close(request_id)
        return admission.cached_tokens

    def _check_fits(self, num_tokens: int) -> None:
        layout = self.manager.layout
        if layout.num_pages_for(num_tokens) > layout.num_usable_pages:
            raise ContextLengthError(
                f"the prompt has {num_tokens:,} tokens, but the cache holds "
                f"{layout.num_usable_pages * layout.page_size:,}; give it more pages"
            )
