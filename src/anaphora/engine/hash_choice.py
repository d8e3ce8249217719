"""Makes the hash algorithm that the settings name: reads its seed and loads the optional package.

The cache itself reads no environment and draws nothing.
"""

import secrets
from collections.abc import Mapping

from anaphora.cache.cbor_hashing import DEFAULT_SEED, CborHashing
from anaphora.cache.hashing import SHA256, SHA256_FUNCTION, HashAlgorithm, HashFunction, TaggedHashing
from anaphora.errors import ConfigError, MissingExtraError

SEED_VARIABLE = "PYTHONHASHSEED"


def choose_hash_algorithm(name: str, environ: Mapping[str, str]) -> HashAlgorithm:
    """Return the algorithm of `--prefix-caching-hash-algo`; raises MissingExtraError when its package is absent.

    The seed is the text of PYTHONHASHSEED. Without it, the algorithms that do not resist collisions get a
    random one, so that nobody can prepare collisions before the process starts; the others need no secret.
    """
    seed = environ.get(SEED_VARIABLE)
    match name:
        case "sha256":
            return SHA256
        case "sha256_cbor":
            return CborHashing(name, SHA256_FUNCTION, DEFAULT_SEED if seed is None else seed)
        case "xxhash":
            return TaggedHashing(name, _load_xxh3_128(name), _or_random(seed))
        case "xxhash_cbor":
            return CborHashing(name, _load_xxh3_128(name), _or_random(seed))
        case _:
            raise ConfigError(f"unknown hash algorithm {name!r}")


def _or_random(seed: str | None) -> str:
    return secrets.token_hex(32) if seed is None else seed


def _load_xxh3_128(name: str) -> HashFunction:
    try:
        from xxhash import xxh3_128_digest
    except ImportError as error:
        raise MissingExtraError(
            f"--prefix-caching-hash-algo {name} needs the package xxhash; run: pip install 'anaphora[xxhash]'"
        ) from error
    return HashFunction(xxh3_128_digest, 16)
