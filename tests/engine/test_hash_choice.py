"""From the setting and the environment to a hash algorithm."""

import sys

import pytest

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import SHA256, Namespace
from anaphora.config import HASH_ALGORITHMS
from anaphora.engine.hash_choice import choose_hash_algorithm
from anaphora.errors import ConfigError, MissingExtraError
from tests.hash_twins import cbor_root, sha256, v1_root, xxh3

PLAIN = Namespace(model_fingerprint=b"m")


def root(name: str, environ: dict[str, str]) -> bytes:
    return choose_hash_algorithm(name, environ).hasher(PLAIN, 16).root


def test_every_name_that_the_settings_allow_is_an_algorithm_of_that_name() -> None:
    """And no other is."""
    assert [choose_hash_algorithm(name, {}).name for name in HASH_ALGORITHMS] == list(HASH_ALGORITHMS)
    with pytest.raises(ConfigError, match="'md5'"):
        choose_hash_algorithm("md5", {})


def test_sha256_ignores_the_seed() -> None:
    """It is the same in every process."""
    assert choose_hash_algorithm("sha256", {"PYTHONHASHSEED": "7"}) is SHA256
    assert root("sha256", {}) == v1_root(sha256, [(0x01, b"m")])


def test_sha256_cbor_has_a_fixed_seed_unless_one_is_set() -> None:
    """An empty one is set."""
    assert root("sha256_cbor", {}) == cbor_root(sha256, "vllm-none-hash")
    assert root("sha256_cbor", {"PYTHONHASHSEED": "7"}) == cbor_root(sha256, "7")
    assert root("sha256_cbor", {"PYTHONHASHSEED": ""}) == cbor_root(sha256, "")


def test_the_xxhash_algorithms_take_the_seed_that_is_set() -> None:
    """As text, whatever it says."""
    assert root("xxhash", {"PYTHONHASHSEED": "7"}) == v1_root(xxh3, [(0x01, b"m"), (0x05, b"7")])
    assert root("xxhash", {"PYTHONHASHSEED": ""}) == v1_root(xxh3, [(0x01, b"m"), (0x05, b"")])
    assert root("xxhash_cbor", {"PYTHONHASHSEED": "random"}) == cbor_root(xxh3, "random")


@pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor"])
def test_without_a_seed_the_xxhash_algorithms_draw_one_at_each_start(name: str) -> None:
    """Within one start, all chains have the same."""
    assert len({root(name, {}) for _ in range(5)}) == 5
    algorithm = choose_hash_algorithm(name, {})
    one, two = (BlockChain(PLAIN, 2, [1, 2], algorithm=algorithm) for _ in range(2))
    assert one.digests == two.digests


@pytest.mark.parametrize("name", ["xxhash", "xxhash_cbor"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None in sys.modules is how Python itself says that an import must fail."""
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(MissingExtraError, match=rf"{name} needs .*pip install 'anaphora\[xxhash\]'"):
        choose_hash_algorithm(name, {})
    assert choose_hash_algorithm("sha256", {}) is SHA256
    assert choose_hash_algorithm("sha256_cbor", {}).name == "sha256_cbor"
