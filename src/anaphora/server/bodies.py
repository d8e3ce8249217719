"""The fields each endpoint takes, and their types.

Ranges of sampling fields are checked by SamplingParams, prompts and messages by `prompts.py` and `messages.py`.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from anaphora.request import SamplingParams
from anaphora.server.fields import (
    IGNORED_BY_CHAT,
    IGNORED_BY_COMPLETIONS,
    REFUSED_BY_CHAT,
    REFUSED_BY_COMPLETIONS,
    REFUSED_BY_TEMPLATE,
    REFUSED_STREAM_OPTIONS,
    Refusal,
    UnknownFields,
)
from anaphora.server.validation import explain, join, wrong

# Bounded, since JSON has integers of any length and arrays have not.
Int = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """A JSON object whose null fields count as absent."""

    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())
    refused: ClassVar[Mapping[str, Refusal]] = {}
    ignored: ClassVar[frozenset[str]] = frozenset()


class ModelBody(Body):
    """Names a model; without one the served model is meant."""

    model: str | None = None


class StreamOptions(Body):
    """What else a stream carries."""

    refused = REFUSED_STREAM_OPTIONS

    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationBody(ModelBody):
    """What both generating endpoints take; `default_max_tokens` None means the rest of the context."""

    default_max_tokens: ClassVar[int | None] = None

    stream: bool = False
    stream_options: Any = None
    max_tokens: Int | None = None
    max_completion_tokens: Int | None = None
    cache_salt: str | None = None
    cache_control: Any = None
    prompt_cache_options: Any = None
    anaphora: Any = None
    priority: Int = 0

    n: Int = 1
    min_tokens: Int = 0
    temperature: Number = 1.0
    top_p: Number = 1.0
    top_k: Int = 0
    min_p: Number = 0.0
    presence_penalty: Number = 0.0
    frequency_penalty: Number = 0.0
    repetition_penalty: Number = 1.0
    logit_bias: dict[str, Number] = {}
    seed: Int | None = None
    stop: list[str] = []
    stop_token_ids: list[Int] = []
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    prompt_logprobs: Int | None = None

    @property
    def num_sequences(self) -> int:
        """How many sequences each prompt is continued by."""
        return self.n

    @property
    def num_logprobs(self) -> int | None:
        """How many of the most likely tokens are wanted beside each output token; None: no log probabilities."""
        return None

    @property
    def num_prompt_logprobs(self) -> int | None:
        """The same for each token of the prompt, whatever they are wanted for."""
        return self.prompt_logprobs

    @field_validator("stop", mode="before")
    @classmethod
    def _one_stop_is_a_list_of_one(cls, value: Any) -> Any:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise wrong("stop", value, "a string or a list of strings")
        return value

    def sampling_values(self) -> dict[str, Any]:
        """Return the sampling fields the caller gave, by the names of SamplingParams."""
        return self.model_dump(include=_SAMPLING_FIELDS, exclude_unset=True)


class CompletionBody(GenerationBody):
    """The body of /v1/completions."""

    refused = REFUSED_BY_COMPLETIONS
    ignored = IGNORED_BY_COMPLETIONS
    default_max_tokens = 16

    prompt: Any
    echo: bool = False
    best_of: Int | None = None
    logprobs: Int | None = None
    add_special_tokens: bool = True

    @property
    def num_sequences(self) -> int:
        """As many as the best are chosen from."""
        return self.n if self.best_of is None else self.best_of

    @property
    def num_logprobs(self) -> int | None:
        """As the field says."""
        return self.logprobs

    @property
    def num_prompt_logprobs(self) -> int | None:
        """Those of a prompt that is repeated are part of `logprobs`."""
        wanted = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return max((number for number in wanted if number is not None), default=None)


class ChatBody(GenerationBody):
    """The body of /v1/chat/completions."""

    refused = REFUSED_BY_CHAT
    ignored = IGNORED_BY_CHAT

    messages: Any
    tools: Any = None
    tool_choice: Any = None
    add_generation_prompt: bool = True
    logprobs: bool = False
    top_logprobs: Int | None = None

    @property
    def num_logprobs(self) -> int | None:
        """None of the others, unless told."""
        return (self.top_logprobs or 0) if self.logprobs else None


class TokenizeBody(ModelBody):
    """The body of /tokenize; `add_special_tokens` is for prompts, since templates write their own."""

    refused = {**REFUSED_BY_TEMPLATE, "return_token_strs": Refusal(harmless=(False,))}

    prompt: str | None = None
    messages: Any = None
    tools: Any = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True


class PinBody(ModelBody):
    """The body of /v1/cache/pin; one of `prompt` and `messages`."""

    refused = REFUSED_BY_TEMPLATE

    prompt: Any = None
    messages: Any = None
    tools: Any = None
    ttl: Any = None
    cache_salt: str | None = None
    add_special_tokens: bool | None = None


class ProbeBody(ModelBody):
    """The body of /v1/cache/probe; one of `prompt` and `messages`."""

    refused = REFUSED_BY_TEMPLATE

    prompt: Any = None
    messages: Any = None
    tools: Any = None
    cache_salt: str | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool = True


class DetokenizeBody(ModelBody):
    """The body of /detokenize."""

    tokens: Any


# These are not named or counted on the wire as they are in the engine.
_OTHER_FIELDS = {"n", "max_tokens", "logprobs", "prompt_logprobs"}
_SAMPLING_FIELDS = {field.name for field in fields(SamplingParams)} - _OTHER_FIELDS

AnyBody = TypeVar("AnyBody", bound=Body)


def parse_body(
    kind: type[AnyBody], payload: Mapping[str, Any], unknown: UnknownFields, path: str = ""
) -> AnyBody:
    """Check an object against its model; a field outside the model is refused, ignored on purpose, or reported."""
    values = {name: value for name, value in payload.items() if value is not None}
    for name, value in values.items():
        if name in kind.refused:
            kind.refused[name].check(join(path, name), value)
        elif name not in kind.model_fields and name not in kind.ignored:
            unknown.report(join(path, name))
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise explain(error, path) from None
