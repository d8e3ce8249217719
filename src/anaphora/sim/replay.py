"""Prompts one after another through the engine's own cache: what each would have found.

Computes no K/V, and knows neither steps nor time: a prompt is whole before the next one comes.
"""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policy import EvictionPolicy
from anaphora.cache.hashing import Namespace
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
    ) -> None:
        self.manager = KVManager(layout, listener, policy=policy)
        self._num_prompts = 0

    def add(self, token_ids: Sequence[TokenId], *, cache_salt: str | None = None) -> int:
        """Look a prompt up, compute and publish the rest of it, and return how many tokens were cached.

        Raises ContextLengthError for a prompt that is larger than the whole pool.
        """
        layout, num_tokens = self.manager.layout, len(token_ids)
        if layout.num_pages_for(num_tokens) > layout.num_usable_pages:
            raise ContextLengthError(
                f"the prompt has {num_tokens:,} tokens, but the cache holds "
                f"{layout.num_usable_pages * layout.page_size:,}; give it more pages"
            )
        self._num_prompts += 1
        request_id = RequestId(f"prompt-{self._num_prompts}")
        namespace = Namespace(model_fingerprint=b"", cache_salt=cache_salt)
        chain = BlockChain(namespace, layout.block_size, token_ids)
        self.manager.open(request_id, chain)
        found = self.manager.lookup(chain, num_tokens, num_tokens)
        admission = self.manager.admit(request_id, found, num_tokens, num_tokens)
        assert admission is not None, f"{request_id} does not fit into an idle pool"
        self.manager.commit(request_id, token_ids, num_tokens, is_decode=False)
        self.manager.close(request_id)
        return admission.cached_tokens
