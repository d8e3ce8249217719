"""Settings that refuse each other."""

import pytest

from anaphora.config import CacheConfig, EngineConfig, ServerConfig, check_hash_strength
from anaphora.errors import ConfigError

TWO_KEYS = ServerConfig(api_keys=("a", "b"))


@pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor"])
def test_a_weak_hash_is_refused_for_several_api_keys(name: str) -> None:
    """The message has the number, what to choose, and how to insist."""
    cache = CacheConfig(prefix_caching_hash_algo=name)
    with pytest.raises(ConfigError, match=f"{name} .*2 API keys.*sha256 or sha256_cbor.*--allow-weak-hash"):
        check_hash_strength(cache, TWO_KEYS)


@pytest.mark.parametrize(
    "cache, server",
    [
        (CacheConfig(prefix_caching_hash_algo="sha256"), TWO_KEYS),
        (CacheConfig(prefix_caching_hash_algo="sha256_cbor"), TWO_KEYS),
        (CacheConfig(prefix_caching_hash_algo="xxhash", allow_weak_hash=True), TWO_KEYS),
        (CacheConfig(prefix_caching_hash_algo="xxhash", enable_prefix_caching=False), TWO_KEYS),
        (CacheConfig(prefix_caching_hash_algo="xxhash"), ServerConfig()),
        (CacheConfig(prefix_caching_hash_algo="xxhash"), ServerConfig(api_keys=("a",))),
        (CacheConfig(prefix_caching_hash_algo="xxhash"), ServerConfig(api_keys=("a", "a"))),
    ],
)
def test_a_hash_is_accepted_when_it_is_strong_forced_unused_or_for_one_caller(
    cache: CacheConfig, server: ServerConfig
) -> None:
    """A key given twice is one caller."""
    check_hash_strength(cache, server)


def test_an_unknown_hash_algorithm_is_refused_with_those_that_exist() -> None:
    """By the settings themselves, so also for scripts."""
    with pytest.raises(ConfigError, match=r"'md5'.*sha256, sha256_cbor, xxhash, xxhash_cbor"):
        CacheConfig(prefix_caching_hash_algo="md5")
    settings = {"prefix_caching_hash_algo": "xxhash", "allow_weak_hash": True}
    assert EngineConfig.from_mapping(settings).cache.allow_weak_hash
