"""The server under test: what it is, what it offers, and whether its cache was reset."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Api = Literal["completions", "chat"]
Tokenize = Literal["vllm", "llama.cpp"]

LARGEST_BLOCK = 128
"""Tokens of a block at most, where nobody says how many they are: no server is known to use larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach a server."""

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    admin_api_key: str | None = field(default=None, repr=False)
    api: Literal["auto", "completions", "chat"] = "auto"
    timeout_s: float = 120.0
    block_size: int | None = None
    may_reset: bool = True

    @property
    def root(self) -> str:
        """The URL before `/v1`."""
        return self.base_url.rstrip("/").removesuffix("/v1").rstrip("/")

    @property
    def shown_root(self) -> str:
        """The same without a name and a password, which must not get into reports."""
        scheme, slashes, rest = self.root.partition("://")
        host, slash, path = rest.partition("/")
        return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server that answered.

    `extra` are the optional fields that it takes. `tokenize` is the shape of its `/tokenize`, or None. `block_size`
    None means unknown: achievable reuse is then stated for single tokens. `num_around` is how many tokens it puts
    around a text of one word, as its usage says.
    """

    root: str
    model: str
    models: tuple[str, ...]
    name: str
    version: str | None
    api: Api
    extra: Mapping[str, Any]
    max_model_len: int | None = None
    tokenize: Tokenize | None = None
    has_metrics: bool = False
    block_size: int | None = None
    block_size_from: str = "unknown; achievable reuse is stated for single tokens"
    reset: str = "unsupported"
    gives_token_ids: bool = False
    num_around: int = 0

    @property
    def unit(self) -> int:
        """The tokens of a block, 1 when unknown."""
        return self.block_size or 1

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return asdict(self) | {"extra": dict(self.extra), "models": list(self.models)}
