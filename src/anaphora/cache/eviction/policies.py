"""Which eviction policies there are; the names are those of `--eviction-policy`."""

from anaphora.cache.eviction.cost import CostAware
from anaphora.cache.eviction.lfu import LFU
from anaphora.cache.eviction.lru import LRU
from anaphora.cache.eviction.policy import EvictionPolicy
from anaphora.cache.eviction.slru import SLRU
from anaphora.config import EvictionPolicyName, KVLayout


def make_policy(name: EvictionPolicyName, layout: KVLayout) -> EvictionPolicy:
    """Return a new, empty policy for a pool of that layout."""
    match name:
        case "lru":
            return LRU()
        case "slru":
            return SLRU(layout.num_usable_pages)
        case "lfu":
            return LFU()
        case "cost":
            return CostAware(layout.page_size)
