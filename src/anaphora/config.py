"""Settings, one frozen class per concern, composed in EngineConfig.

Each part of the engine receives its own section. What depends on the hardware (how many pages fit, how
large a page is) is not here: it is computed once by the runner and handed on as `KVLayout`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args

from anaphora.errors import ConfigError

HASH_ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
WEAK_HASH_ALGORITHMS = ("xxhash", "xxhash_cbor")  # who may send prompts can find two with one digest
SCHEDULING_POLICIES = ("fcfs", "priority")
GENERATION_CONFIGS = ("auto", "vllm")
MAX_SEED = 2**63 - 1
MIN_SEED = -MAX_SEED - 1
DTYPES = ("auto", "bfloat16", "float32")
EvictionPolicyName = Literal["lru", "slru", "lfu", "cost"]
EVICTION_POLICIES: tuple[EvictionPolicyName, ...] = get_args(EvictionPolicyName)


def _at_least(name: str, value: int, low: int) -> None:
    if value < low:
        raise ConfigError(f"--{name.replace('_', '-')} is {value}, but must be at least {low}")


def _check_kind(name: str, value: object) -> None:
    """Refuse a setting of the wrong type where a command line would not have let it pass."""
    is_text = name in {"model", "dtype", "generation_config", "prefix_caching_hash_algo"}
    is_count = name in {
        "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "num_pages", "kv_cache_memory_bytes",
        "seed", "long_prefill_token_threshold", "coalesce_deadline_ms", "admission_lookahead", "admission_max_passes",
        "partial_block_reuse",
    }  # fmt: skip
    if is_text and not isinstance(value, str | None):
        raise ConfigError(f"{name} is {value!r:.60}, but must be a text")
    if is_count and value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ConfigError(f"{name} is {value!r:.60}, but must be a whole number")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model is served, under which names, in which precision.

    `model` None means the bundled demo model. `dtype` auto takes bfloat16 where the CPU has it, else float32.
    `generation_config` auto uses the sampling that the model's author recommends where a request says nothing,
    vllm the defaults of the API.
    """

    model: str | None = None
    served_model_name: tuple[str, ...] = ()
    dtype: str = "auto"
    max_model_len: int | None = None
    chat_template: Path | None = None
    generation_config: str = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        if "" in self.served_model_name:
            raise ConfigError(
                "--served-model-name is empty; give a name, or leave the flag out for the model's own"
            )
        if self.model == "":
            raise ConfigError("MODEL is empty; name a model, or leave it out for the demo model")
        if not MIN_SEED <= self.seed <= MAX_SEED:
            raise ConfigError(f"--seed is {self.seed}, but must be from {MIN_SEED} to {MAX_SEED}")
        if self.dtype not in DTYPES:
            raise ConfigError(f"--dtype is {self.dtype!r}, but must be one of {', '.join(DTYPES)}")
        if self.generation_config not in GENERATION_CONFIGS:
            raise ConfigError(
                f"--generation-config is {self.generation_config!r}, but must be one of {', '.join(GENERATION_CONFIGS)}"
            )
        if self.max_model_len is not None:
            _at_least("max_model_len", self.max_model_len, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The prefix cache and its memory.

    `num_pages` (null page included) wins over `kv_cache_memory_bytes`; with neither, 25 % of the free
    memory is taken, 8 GiB at most. `max_pinned_share` is an upper bound: what one request of full length needs
    is never pinned. With `partial_block_reuse` over 0, so many or more leading tokens of a cached block are
    reused even if the rest of it differs. `allow_weak_hash` lets callers with different API keys share an index
    whose digests do not resist collisions.
    """

    enable_prefix_caching: bool = True
    block_size: int = 16
    prefix_caching_hash_algo: str = "sha256"
    allow_weak_hash: bool = False
    exact_reuse: bool = False
    partial_block_reuse: int = 0
    eviction_policy: EvictionPolicyName = "lru"
    max_pinned_share: float = 0.25
    num_pages: int | None = None
    kv_cache_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        _at_least("block_size", self.block_size, 1)
        if not 0 <= self.partial_block_reuse < max(2, self.block_size):
            raise ConfigError(
                f"--partial-block-reuse is {self.partial_block_reuse}, but must be 0 (whole blocks only) or from 1 to "
                f"{self.block_size - 1}, which is --block-size less one"
            )
        if self.prefix_caching_hash_algo not in HASH_ALGORITHMS:
            raise ConfigError(
                f"--prefix-caching-hash-algo is {self.prefix_caching_hash_algo!r}, "
                f"but must be one of {', '.join(HASH_ALGORITHMS)}"
            )
        if self.eviction_policy not in EVICTION_POLICIES:
            raise ConfigError(
                f"--eviction-policy is {self.eviction_policy!r}, but must be one of {', '.join(EVICTION_POLICIES)}"
            )
        if not 0.0 <= self.max_pinned_share <= 1.0:
            raise ConfigError(
                f"--max-pinned-share is {self.max_pinned_share:g}, but must be at least 0 and at most 1"
            )
        if self.num_pages is not None:
            _at_least("num_pages", self.num_pages, 2)
        if self.kv_cache_memory_bytes is not None:
            _at_least("kv_cache_memory_bytes", self.kv_cache_memory_bytes, 1)

    @property
    def has_weak_hash(self) -> bool:
        """Whether blocks are found by digests that do not resist collisions."""
        return self.enable_prefix_caching and self.prefix_caching_hash_algo in WEAK_HASH_ALGORITHMS


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """How steps are filled, and who is admitted.

    `watermark` is the share of pages kept free when a waiting request is admitted. A request whose missing
    blocks another one computes waits for them, `coalesce_deadline_ms` at most; 0 is never. Behind a head that
    does not fit, `admission_lookahead` others are tried, `admission_max_passes` times.
    """

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    long_prefill_token_threshold: int = 0
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    coalesce_deadline_ms: int = 60_000
    admission_lookahead: int = 8
    admission_max_passes: int = 8

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        _at_least("max_num_seqs", self.max_num_seqs, 1)
        _at_least("long_prefill_token_threshold", self.long_prefill_token_threshold, 0)
        _at_least("coalesce_deadline_ms", self.coalesce_deadline_ms, 0)
        _at_least("admission_lookahead", self.admission_lookahead, 0)
        _at_least("admission_max_passes", self.admission_max_passes, 0)
        if self.scheduling_policy not in SCHEDULING_POLICIES:
            raise ConfigError(
                f"--scheduling-policy is {self.scheduling_policy!r}, "
                f"but must be one of {', '.join(SCHEDULING_POLICIES)}"
            )
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ConfigError(
                f"--max-num-batched-tokens is {self.max_num_batched_tokens}, but must be at least --max-num-seqs, "
                f"which is {self.max_num_seqs}: every running request may need one token in a step"
            )
        if not 0.0 <= self.watermark < 1.0:
            raise ConfigError(f"--watermark is {self.watermark:g}, but must be at least 0 and below 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainConfig:
    """How much is remembered to say why prompts were not reused.

    `explain_requests` 0 remembers and explains nothing. `explain_memory` 0 keeps digests and counts but no token
    ids, so that no text can be shown. `explain_ghosts` is how many digests of evicted blocks are kept.
    """

    explain_requests: int = 10_000
    explain_memory: int = 64 * 1024 * 1024
    explain_ttl_s: int = 3600
    explain_ghosts: int = 65_536

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        for name in ("explain_requests", "explain_memory", "explain_ghosts"):
            _at_least(name, getattr(self, name), 0)
        _at_least("explain_ttl_s", self.explain_ttl_s, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperConfig:
    """What the server may change in the prompt of a chat, so that more of it is found in the cache.

    `strip_client_stamp` leaves out a client's header lines before the system text, `sort_tools` puts tools in the
    order of their names. `stable_history` keeps what was rendered of earlier turns, `splice_generated_tokens` the
    tokens that a reply was generated with; both rest on the requests that explanations remember.
    """

    strip_client_stamp: bool = False
    sort_tools: bool = False
    stable_history: bool = False
    splice_generated_tokens: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """What is on, spelt as on the command line."""
        return tuple(f"--{f.name.replace('_', '-')}" for f in fields(self) if getattr(self, f.name))

    @property
    def needs_history(self) -> bool:
        """Whether earlier requests must be remembered."""
        return self.stable_history or self.splice_generated_tokens


def check_helpers(helpers: HelperConfig, *, num_requests: int, num_bytes: int) -> None:
    """Raise ConfigError when the helpers need earlier requests, and their number or their memory is 0."""
    if not helpers.needs_history or (num_requests and num_bytes):
        return
    flags = [flag for flag in helpers.flags if flag in {"--stable-history", "--splice-generated-tokens"}]
    limit = "--explain-memory" if num_requests else "--explain-requests"
    raise ConfigError(
        f"{flags[0]} continues earlier requests, but {limit} is 0, so none is remembered with its tokens; "
        f"drop {limit} 0, or leave {' and '.join(flags)} out"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything an engine is built from."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "EngineConfig":
        """Sort flat settings (`max_num_seqs=8`) into their sections; an unknown name is refused."""
        sections = {"model": ModelConfig, "cache": CacheConfig, "scheduler": SchedulerConfig}
        names = {f.name: section for section, kind in sections.items() for f in fields(kind)}
        if unknown := sorted(set(values) - set(names)):
            raise ConfigError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(names))}")
        chosen: dict[str, dict[str, Any]] = {section: {} for section in sections}
        for name, value in values.items():
            _check_kind(name, value)
            chosen[names[name]][name] = value
        return cls(
            model=ModelConfig(**chosen["model"]),
            cache=CacheConfig(**chosen["cache"]),
            scheduler=SchedulerConfig(**chosen["scheduler"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Where and for whom the HTTP server answers. `repr` hides the keys."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    admin_api_key: str | None = field(default=None, repr=False)
    tenant_salt_secret: bytes | None = field(default=None, repr=False)
    max_body_bytes: int = 32 * 1024 * 1024
    enable_force_include_usage: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port is {self.port}, but must be between 0 and 65535")
        _at_least("max_body_bytes", self.max_body_bytes, 1024)
        if self.admin_api_key == "":
            raise ConfigError("--admin-api-key is empty; give a key, or leave the flag out")
        if "" in self.api_keys:
            raise ConfigError("--api-key is empty; give a key, or leave the flag out to serve without keys")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingConfig:
    """Where the requests are recorded, and the key that hides which blocks they are. `repr` hides the key."""

    path: Path
    key: bytes | None = field(default=None, repr=False)


def check_can_record(recording: RecordingConfig | None, cache: CacheConfig) -> None:
    """Raise ConfigError when there would be nothing to record."""
    if recording is not None and not cache.enable_prefix_caching:
        raise ConfigError(
            "--record names blocks by their digests, but prefix caching is off; leave out --no-enable-prefix-caching"
        )


def check_hash_strength(cache: CacheConfig, server: ServerConfig) -> None:
    """Raise ConfigError when several callers would share an index whose digests do not resist collisions."""
    num_keys = len(set(server.api_keys))
    if cache.has_weak_hash and num_keys > 1 and not cache.allow_weak_hash:
        strong = " or ".join(name for name in HASH_ALGORITHMS if name not in WEAK_HASH_ALGORITHMS)
        raise ConfigError(
            f"--prefix-caching-hash-algo {cache.prefix_caching_hash_algo} does not resist collisions, "
            f"so the callers of {num_keys} API keys could keep each other's prompts out of the cache; "
            f"choose {strong}, or accept the risk with --allow-weak-hash"
        )


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What the runner's K/V memory looks like, fixed before anything is built on it.

    `num_pages` includes the null page 0. `min_prefill_tokens` is the shortest prefill the runner computes
    exactly as part of a longer one. `can_copy_part` says that copying the leading tokens of a page is exact.
    Raises ConfigError when the block size does not divide the page size.
    """

    block_size: int
    page_size: int
    num_pages: int
    min_prefill_tokens: int = 1
    can_copy_part: bool = True

    def __post_init__(self) -> None:
        """Refuse a block that does not divide the page."""
        if self.page_size % self.block_size:
            allowed = [n for n in range(1, self.page_size + 1) if self.page_size % n == 0]
            raise ConfigError(
                f"--block-size is {self.block_size}, but must divide the runner's page of {self.page_size} tokens: "
                f"one of {', '.join(map(str, allowed))}"
            )

    @property
    def blocks_per_page(self) -> int:
        """How many hashed blocks one page holds."""
        return self.page_size // self.block_size

    @property
    def num_usable_pages(self) -> int:
        """All pages but the null page."""
        return self.num_pages - 1

    def num_pages_for(self, num_tokens: int) -> int:
        """Return how many pages hold that many tokens."""
        return -(-num_tokens // self.page_size)
