"""What an explanation is made from and what it says: plain data.

Knows nothing of templates and tokenizers; who has them hands in what they gave.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeAlias

from anaphora.cache.hit_law import max_hit_blocks
from anaphora.errors import InvalidRequestError
from anaphora.explain.bodies import ChatBody
from anaphora.ids import TokenId

Certainty = Literal["known", "inferred"]


@dataclass(frozen=True, slots=True)
class PartSpan:
    """One part of a rendered prompt: its message path and its half-open ranges."""

    path: str
    char_start: int
    char_end: int
    token_start: int
    token_end: int


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as the model gets it.

    `char_starts` is the character in which each token begins, or None where the tokens do not spell the text.
    """

    text: str
    token_ids: Sequence[TokenId]
    char_starts: Sequence[int] | None = None
    spans: tuple[PartSpan, ...] = ()

    def char_of(self, token_index: int) -> int:
        """Return where a token begins in the text; behind the last one, where the text ends."""
        if self.char_starts is None or token_index >= len(self.char_starts):
            return len(self.text)
        return self.char_starts[token_index]

    def span_at(self, char_offset: int) -> PartSpan | None:
        """Return the smallest part that holds a character, or None."""
        holders = [span for span in self.spans if span.char_start <= char_offset < span.char_end]
        return min(holders, key=lambda span: span.char_end - span.char_start, default=None)


Render: TypeAlias = Callable[[ChatBody], RenderedPrompt]
"""Renders and tokenises an edited body, as the real one was; may raise RequestError."""


@dataclass(frozen=True, slots=True)
class CacheNamespace:
    """What must be equal besides tokens, as far as it can be compared; `salt` is compared and never shown."""

    model: str | None = None
    adapter: str | None = None
    salt: str | None = field(default=None, repr=False)

    def difference(self, other: "CacheNamespace") -> str | None:
        """Return the request field in which two namespaces differ, or None."""
        if self.model != other.model:
            return "model"
        if self.adapter != other.adapter:
            return "adapter"
        return "cache_salt" if self.salt != other.salt else None


class Contents(NamedTuple):
    """What a request asked for, and the prompt that this became."""

    body: ChatBody
    prompt: RenderedPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRecord:
    """One request, as far as explanations need it. `bypassed_by` is what made it read nothing, or None.

    `contents` may be made when first asked for, and is called often.
    """

    request_id: str
    token_ids: Sequence[TokenId]
    contents: Callable[[], Contents] = field(repr=False, compare=False)
    namespace: CacheNamespace = CacheNamespace()
    bypassed_by: str | None = None

    @property
    def body(self) -> ChatBody:
        """What was asked for."""
        return self.contents().body

    @property
    def prompt(self) -> RenderedPrompt:
        """The prompt as the model gets it."""
        return self.contents().prompt


@dataclass(frozen=True, slots=True)
class HitLaw:
    """What may be reused: whole blocks, never the last token, never all but a prefill that is too short."""

    block_size: int = 16
    min_prefill_tokens: int = 1

    def best_possible(self, num_tokens: int) -> int:
        """Return the largest hit that a prompt of `num_tokens` may have."""
        blocks = max_hit_blocks(
            num_tokens,
            num_tokens,
            block_size=self.block_size,
            min_prefill_tokens=self.min_prefill_tokens,
        )
        return blocks * self.block_size

    def whole_blocks(self, num_tokens: int) -> int:
        """Return how many of some leading tokens lie in whole blocks."""
        return num_tokens // self.block_size * self.block_size

    def hit(self, num_common_tokens: int, num_tokens: int) -> int:
        """Return the hit of a prompt that has its first `num_common_tokens` in the cache."""
        return min(self.whole_blocks(num_common_tokens), self.best_possible(num_tokens))


@dataclass(frozen=True, slots=True)
class Lookup:
    """What the cache answered: tokens reused, and a label for each block from there that the books know.

    A label is a cause of a missed block (`evicted`, `in_flight`, `namespace` …), or `law` or `law:SUB` for a
    block that is there but may not be used.
    """

    reused_tokens: int
    block_labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheFact:
    """What the live cache knows of a label of `Lookup`: a sentence for people, and the field it speaks of."""

    advice: str
    certainty: Certainty = "known"
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """What a change would have given: computed, not guessed."""

    change: str
    reused_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a prompt was not reused further, in the shape of the wire."""

    request_id: str
    prompt_tokens: int
    reused_tokens: int
    best_possible_reuse: int
    cause: str
    path: str | None = None
    char_offset: int | None = None
    token_index: int | None = None
    block_index: int | None = None
    old: str | None = None
    new: str | None = None
    tokens_lost: int = 0
    advice: str = ""
    counterfactual: Counterfactual | None = None
    certainty: Certainty = "known"
    also: tuple[str, ...] = ()
    uncached: Mapping[str, int] = field(default_factory=dict)
    compared_with: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Explanation":
        """Return an explanation from what `as_json` gave; raises InvalidRequestError for anything else."""
        names = {f.name for f in fields(cls)}
        if missing := sorted(names - set(value)):
            raise InvalidRequestError(f"the answer is no explanation: {missing[0]} is missing")
        known: dict[str, Any] = {name: value[name] for name in names}
        fix = known["counterfactual"]
        known["counterfactual"] = fix and Counterfactual(fix["change"], fix["reused_tokens"])
        return cls(**known | {"also": tuple(known["also"])})

    def as_json(self) -> dict[str, Any]:
        """Return the object that responses, endpoints and commands show."""
        fix = self.counterfactual
        return {
            "request_id": self.request_id,
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "best_possible_reuse": self.best_possible_reuse,
            "cause": self.cause,
            "path": self.path,
            "char_offset": self.char_offset,
            "token_index": self.token_index,
            "block_index": self.block_index,
            "old": self.old,
            "new": self.new,
            "tokens_lost": self.tokens_lost,
            "advice": self.advice,
            "counterfactual": fix and {"change": fix.change, "reused_tokens": fix.reused_tokens},
            "certainty": self.certainty,
            "also": list(self.also),
            "uncached": dict(self.uncached),
            "compared_with": self.compared_with,
        }
