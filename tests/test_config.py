"""Settings that refuse each other."""

import pytest

from anaphora.config import (
    CacheConfig,
    EngineConfig,
    HelperConfig,
    ServerConfig,
    check_hash_strength,
    check_helpers,
)
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


@pytest.mark.parametrize(
    "helpers, num_requests, num_bytes, message",
    [
        (
            HelperConfig(stable_history=True),
            0,
            1,
            "^--stable-history .*--explain-requests is 0.*leave --stable-history out",
        ),
        (
            HelperConfig(splice_generated_tokens=True),
            1,
            0,
            "^--splice-generated-tokens .*--explain-memory is 0",
        ),
        (
            HelperConfig(stable_history=True, splice_generated_tokens=True),
            0,
            0,
            "--stable-history and --splice",
        ),
    ],
)
def test_helpers_that_need_earlier_requests_are_refused_where_none_is_remembered(
    helpers: HelperConfig, num_requests: int, num_bytes: int, message: str
) -> None:
    """The message has the flag, the limit and the remedy."""
    with pytest.raises(ConfigError, match=message):
        check_helpers(helpers, num_requests=num_requests, num_bytes=num_bytes)


def test_other_helpers_need_nothing_remembered() -> None:
    """And all of them are satisfied where something is."""
    check_helpers(HelperConfig(strip_client_stamp=True, sort_tools=True), num_requests=0, num_bytes=0)
    check_helpers(HelperConfig(stable_history=True), num_requests=1, num_bytes=1)
