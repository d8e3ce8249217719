"""Digests of blocks and of namespaces: what a hash algorithm is, and the ones over encoding v1.

Knows nothing of pages or requests, and reads no environment: seeds and optional hash functions are handed in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NewType, Protocol

from anaphora.cache.extras import BlockExtras
from anaphora.cache.fields import (
    ADAPTER_TAG,
    BLOCK_VERSION,
    CACHE_SALT_TAG,
    MODEL_TAG,
    PARENT_TAG,
    ROOT_VERSION,
    SEED_TAG,
    TENANT_SALT_TAG,
    TOKENS_TAG,
    VERSION_TAG,
    encode_field,
    field_header,
)
from anaphora.errors import InvalidRequestError

BlockDigest = NewType("BlockDigest", bytes)

TOKEN_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """What must be equal, besides tokens, for K/V to be shared.

    `model_fingerprint` covers weights, tokenizer, K/V precision and layout. `adapter_digest` is that of the
    adapter's content, never its name. `tenant_salt` comes from the server, `cache_salt` from the client.
    """

    model_fingerprint: bytes
    adapter_digest: bytes | None = None
    tenant_salt: bytes | None = None
    cache_salt: str | None = None

    def encode(self) -> bytes:
        """Return the namespace's fields of encoding v1; equal bytes mean the same namespace."""
        model = encode_field(VERSION_TAG, ROOT_VERSION) + encode_field(MODEL_TAG, self.model_fingerprint)
        return model + _optional_field(ADAPTER_TAG, self.adapter_digest) + self.encode_salts()

    def encode_salts(self) -> bytes:
        """Return the fields of the two salts alone."""
        cache_salt = None if self.cache_salt is None else self.cache_salt.encode()
        return _optional_field(TENANT_SALT_TAG, self.tenant_salt) + _optional_field(
            CACHE_SALT_TAG, cache_salt
        )


def _optional_field(tag: int, body: bytes | None) -> bytes:
    """Return a field, or nothing when it is absent; an empty body is not absent."""
    return b"" if body is None else encode_field(tag, body)


@dataclass(frozen=True, slots=True)
class HashFunction:
    """From bytes to a digest of `digest_bytes` bytes."""

    digest: Callable[[bytes], bytes]
    digest_bytes: int

    def link(self, head: bytes, parent: BlockDigest, bodies: Iterable[bytes]) -> list[BlockDigest]:
        """Return one digest per body, each over `head`, the digest before and the body: this is the hot loop."""
        digest, digests = self.digest, []
        for body in bodies:
            parent = BlockDigest(digest(head + parent + body))
            digests.append(parent)
        return digests


class _Sha256(HashFunction):
    """SHA-256 from a copied state, which costs hashlib less than a new one does."""

    __slots__ = ()

    def link(self, head: bytes, parent: BlockDigest, bodies: Iterable[bytes]) -> list[BlockDigest]:
        begin, digests = sha256(head).copy, []
        for body in bodies:
            state = begin()
            state.update(parent + body)
            parent = BlockDigest(state.digest())
            digests.append(parent)
        return digests


SHA256_FUNCTION = _Sha256(lambda data: sha256(data).digest(), 32)


class BlockHasher(Protocol):
    """Hashes the blocks of one namespace and one block size."""

    @property
    def root(self) -> BlockDigest:
        """The parent of block 0."""
        ...

    def digests(
        self,
        parent: BlockDigest,
        first_block: int,
        contents: Sequence[bytes],
        extras: Mapping[int, BlockExtras],
    ) -> list[BlockDigest]:
        """Return the digests of consecutive blocks.

        `parent` is the digest before block `first_block`, `contents` the packed tokens of each block, `extras`
        what some of them depend on besides, by block index; it names no other blocks.
        """
        ...


class HashAlgorithm(Protocol):
    """One way to turn namespaces and blocks into digests; two processes with equal ones agree on every digest.

    A client's `cache_salt` must not begin with one of `reserved_salt_prefixes`.
    """

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def digest_bytes(self) -> int:
        """How long its digests are."""
        ...

    @property
    def reserved_salt_prefixes(self) -> tuple[str, ...]:
        """How values that stand in the same place as a client's salt begin."""
        ...

    def hasher(self, namespace: Namespace, block_size: int) -> BlockHasher:
        """Return the hasher of one namespace."""
        ...


@dataclass(frozen=True, slots=True)
class TaggedHashing:
    """A hash function over encoding v1; `seed` is a field of the root, for functions that need a secret one."""

    name: str
    function: HashFunction
    seed: str | None = None

    @property
    def digest_bytes(self) -> int:
        """How long its digests are."""
        return self.function.digest_bytes

    @property
    def reserved_salt_prefixes(self) -> tuple[str, ...]:
        """None: every field has its tag."""
        return ()

    def hasher(self, namespace: Namespace, block_size: int) -> BlockHasher:
        """Return the hasher of one namespace."""
        seed = None if self.seed is None else self.seed.encode()
        root = self.function.digest(namespace.encode() + _optional_field(SEED_TAG, seed))
        return _TaggedHasher(self.function, BlockDigest(root), block_size)


class _TaggedHasher:
    """The headers of all fields but the extras have fixed lengths, so they are made once."""

    __slots__ = ("_function", "_head", "_middle", "root")

    def __init__(self, function: HashFunction, root: BlockDigest, block_size: int) -> None:
        self.root = root
        self._function = function
        self._head = encode_field(VERSION_TAG, BLOCK_VERSION) + field_header(
            PARENT_TAG, function.digest_bytes
        )
        self._middle = field_header(TOKENS_TAG, block_size * TOKEN_BYTES)

    def digests(
        self,
        parent: BlockDigest,
        first_block: int,
        contents: Sequence[bytes],
        extras: Mapping[int, BlockExtras],
    ) -> list[BlockDigest]:
        middle = self._middle
        bodies = [middle + content for content in contents]
        for index, extra in extras.items():
            bodies[index - first_block] += extra.encode()
        return self._function.link(self._head, parent, bodies)


SHA256 = TaggedHashing("sha256", SHA256_FUNCTION)


def check_cache_salt(cache_salt: str | None, algorithm: HashAlgorithm) -> None:
    """Raise InvalidRequestError for a client's salt that the algorithm cannot keep apart from other values."""
    if cache_salt is None:
        return
    for prefix in algorithm.reserved_salt_prefixes:
        if cache_salt.startswith(prefix):
            raise InvalidRequestError(
                f"cache_salt begins with {prefix!r}, which --prefix-caching-hash-algo {algorithm.name} keeps for "
                "itself; choose another beginning",
                param="cache_salt",
            )
    try:
        cache_salt.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"cache_salt has half of a surrogate pair at character {error.start}, but must be valid Unicode; "
            "send a hex digest of it",
            param="cache_salt",
        ) from error
