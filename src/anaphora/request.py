"""One generation request: what was asked, how far it is, and what comes out.

Knows nothing of pages, digests, HTTP or text; those who do keep their own records by `request_id`.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from anaphora.config import MAX_SEED, MIN_SEED
from anaphora.errors import InvalidRequestError
from anaphora.ids import RequestId, TokenId

MAX_STOP_STRINGS = 16
MAX_LOGIT_BIAS_ENTRIES = 1024
MAX_LOGPROBS = 20


def _check_range(name: str, value: float, low: float, high: float, remedy: str = "") -> None:
    """Refuse a number outside [low, high]; NaN is outside every range."""
    if not low <= value <= high:
        limit = f"must be between {low:g} and {high:g}"
        raise InvalidRequestError(f"{name} is {value:g}, but {limit}{remedy}", param=name)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of(value: object, is_right: Callable[[object], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(is_right, value))


_WHOLE = ("a whole number", _is_int)
_WHOLE_OR_NONE = ("a whole number or None", lambda value: value is None or _is_int(value))
_NUMBER = ("a number", _is_number)
_FLAG = ("True or False", lambda value: isinstance(value, bool))
_KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("n", "min_tokens", "top_k"), _WHOLE),
    **dict.fromkeys(("max_tokens", "seed", "logprobs", "prompt_logprobs"), _WHOLE_OR_NONE),
    **dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty"), _NUMBER),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), _NUMBER),
    **dict.fromkeys(("ignore_eos", "include_stop_str_in_output", "skip_special_tokens"), _FLAG),
    "stop": ("a tuple of strings", lambda value: _is_list_of(value, lambda item: isinstance(item, str))),
    "stop_token_ids": ("a tuple of token ids", lambda value: _is_list_of(value, _is_int)),
    "logit_bias": (
        "a mapping of token ids to numbers",
        lambda value: (
            isinstance(value, Mapping) and all(map(_is_int, value)) and all(map(_is_number, value.values()))
        ),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen and when to stop.

    `max_tokens` None means: as many as the context still holds; 0 computes the prompt for the cache and generates
    nothing.
    `top_k` 0 or -1, `top_p` 1, `min_p` 0 and the neutral penalties switch that filter off.
    Repetition penalty counts prompt and outputs (Keskar et al. 2019); presence and frequency count
    outputs only, as in the OpenAI API.
    `logprobs` asks for the log probability of each output token, and for that of so many of the most likely
    tokens at its place; `prompt_logprobs` asks the same for the prompt. None: not asked.
    Raises InvalidRequestError naming the field.
    """

    n: int = 1
    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[TokenId, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[TokenId, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be honoured."""
        for name, (kind, is_right) in _KINDS.items():
            if not is_right(value := getattr(self, name)):
                raise InvalidRequestError(f"{name} is {value!r:.60}, but must be {kind}", param=name)
        _check_range("n", self.n, 1, 128)
        if self.max_tokens is not None and self.max_tokens < 0:
            raise InvalidRequestError(
                f"max_tokens is {self.max_tokens}, but must be at least 0; leave it out for the rest of the context",
                param="max_tokens",
            )
        if self.is_warm_up and self.n > 1:
            raise InvalidRequestError(
                f"n is {self.n}, but must be 1 when max_tokens is 0: nothing is generated that could differ",
                param="n",
            )
        if self.min_tokens < 0:
            raise InvalidRequestError(
                f"min_tokens is {self.min_tokens}, but must be at least 0", param="min_tokens"
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError(
                f"min_tokens is {self.min_tokens}, but must not be over max_tokens, which is {self.max_tokens}",
                param="min_tokens",
            )
        _check_range("temperature", self.temperature, 0.0, 2.0)
        if not 0.0 < self.top_p <= 1.0:
            raise InvalidRequestError(
                f"top_p is {self.top_p:g}, but must be over 0 and at most 1", param="top_p"
            )
        if self.top_k < -1:
            raise InvalidRequestError(
                f"top_k is {self.top_k}, but must be at least 1, or 0 or -1 for no limit", param="top_k"
            )
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_range("repetition_penalty", self.repetition_penalty, 0.01, 10.0, "; 1 means none")
        if self.seed is not None:
            _check_range("seed", self.seed, MIN_SEED, MAX_SEED)
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            _check_range("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        self._check_stop()
        self._check_logit_bias()

    def _check_stop(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidRequestError(
                f"stop has {len(self.stop)} strings, the limit is {MAX_STOP_STRINGS}; send fewer",
                param="stop",
            )
        if "" in self.stop:
            raise InvalidRequestError(
                "stop holds an empty string, which would stop at once; remove it", param="stop"
            )

    def _check_logit_bias(self) -> None:
        if len(self.logit_bias) > MAX_LOGIT_BIAS_ENTRIES:
            raise InvalidRequestError(
                f"logit_bias has {len(self.logit_bias)} entries, the limit is {MAX_LOGIT_BIAS_ENTRIES}; send fewer",
                param="logit_bias",
            )
        for token_id, bias in self.logit_bias.items():
            if token_id < 0:
                raise InvalidRequestError(
                    f"logit_bias has the token id {token_id}, below 0", param="logit_bias"
                )
            _check_range("logit_bias", bias, -100.0, 100.0)

    @property
    def is_warm_up(self) -> bool:
        """Whether the prompt is only to be computed, so that it is cached."""
        return self.max_tokens == 0

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    def with_changes(self, **changes: Any) -> "SamplingParams":
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> "SamplingParams":
        """Build from plain values; an unknown name is refused, not dropped."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise InvalidRequestError(
                f"unknown sampling parameter {unknown[0]!r}; known are {', '.join(sorted(known))}"
            )
        return cls(**values)


class TokenLogprob(NamedTuple):
    """A token and the logarithm of its probability; minus infinity where the model rules it out."""

    token_id: TokenId
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely a token was at its place, before anything but the model had a say, and what was most likely there.

    `rank` is 1 for the most likely token of the vocabulary; of equal ones the lower id comes first. `top` is in
    that order, and holds the token itself only if it is among them.
    """

    token_id: TokenId
    logprob: float
    rank: int
    top: tuple[TokenLogprob, ...] = ()


class RequestStatus(enum.Enum):
    """Where a request stands in the scheduler."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class FinishReason(enum.Enum):
    """Why a request ended; the values of the first two are the OpenAI API's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Retention:
    """The beginning of a prompt, and for how long it is to stay cached from the moment the prompt is computed."""

    num_tokens: int
    ttl_s: float


@dataclass(slots=True, kw_only=True)
class Request:
    """A request inside the engine; only the scheduler changes it.

    `token_ids` holds the prompt and then the outputs; K/V exist for the first `num_computed_tokens` of them.
    `num_cached_tokens` is None until the first admission and never changes afterwards.
    `seed` decides every random draw together with the position of the token, so the same seed gives the
    same text whatever the batch. A lower `priority` goes first, where priorities count. `is_fork` says that its
    prompt was computed for another request, whose pages it shares. `tenant_salt` and `cache_salt` narrow
    the namespace of its cache entries. `num_pinned_tokens` is the longest beginning of its prompt that was pinned
    because of its `retention`; None while none was.
    `skip_reading_cache` has the whole prompt computed, as for its log
    probabilities, which cached K/V do not give.
    """

    request_id: RequestId
    token_ids: list[TokenId]
    params: SamplingParams
    seed: int
    arrival_time: float
    eos_token_ids: frozenset[TokenId] = frozenset()
    tenant_salt: bytes | None = None
    cache_salt: str | None = None
    skip_reading_cache: bool = False
    priority: int = 0
    retention: tuple[Retention, ...] = ()
    is_fork: bool = False
    num_prompt_tokens: int = field(init=False)
    status: RequestStatus = RequestStatus.WAITING
    num_computed_tokens: int = 0
    num_cached_tokens: int | None = None
    num_cache_write_tokens: int = 0
    num_pinned_tokens: int | None = None
    num_preemptions: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None

    def __post_init__(self) -> None:
        """Fix what is prompt and what will be output."""
        self.num_prompt_tokens = len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        """How many tokens were generated so far."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.status is RequestStatus.FINISHED


@dataclass(frozen=True, slots=True)
class Usage:
    """The token books of one request.

    `cached_tokens` is fixed at the first admission; `cache_write_tokens` counts the prompt tokens this
    request newly entered in the index; their sum never exceeds `prompt_tokens`.
    """

    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    completion_tokens: int

    def __add__(self, other: "Usage") -> "Usage":
        """Return the books of both together."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.completion_tokens + other.completion_tokens,
        )


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What one step added to a request: new tokens, the text that is now certain, and whether it ended.

    `index` tells which of the request's n sequences it belongs to. `text` may be shorter than the tokens:
    half a character and a possible beginning of a stop string are held back. The last output of a sequence
    has `finish_reason` set. `stop_reason` is the stop string or stop token id that ended it, else None.
    `pinned_tokens` is the longest beginning of the prompt that was pinned as asked for, None if none was.
    `logprobs` has an entry for each of the new tokens if they were asked for, whatever is held back of the text.
    `prompt_logprobs` has one for each token of the prompt but the first, and comes with the first output of each
    sequence, if asked for.
    """

    request_id: RequestId
    token_ids: tuple[TokenId, ...]
    text: str
    usage: Usage
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    index: int = 0
    pinned_tokens: int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] | None = None
