"""The sampling fields of a body, as SamplingParams for one prompt."""

from collections.abc import Mapping
from typing import Any

from anaphora.engine.protocols import EngineClient
from anaphora.errors import InvalidRequestError
from anaphora.ids import TokenId
from anaphora.request import MAX_LOGPROBS, SamplingParams
from anaphora.server.bodies import ChatBody, CompletionBody, GenerationBody
from anaphora.server.prompts import Prompt, check_token_ids
from anaphora.server.validation import show, wrong

MAX_BEST_OF = 20


def sampling_params(
    body: GenerationBody, prompt: Prompt, engine: EngineClient, defaults: Mapping[str, Any]
) -> SamplingParams:
    """Return how to continue a prompt, with every limit resolved to a number.

    `defaults` hold where the caller says nothing.
    """
    vocab_size = engine.tokenizer.vocab_size
    check_token_ids(body.stop_token_ids, "stop_token_ids", vocab_size)
    max_tokens = prompt.num_output_tokens(asked_tokens(body), body.default_max_tokens, engine.max_model_len)
    return SamplingParams(
        **dict(defaults)
        | body.sampling_values()
        | {
            "n": body.num_sequences,
            "max_tokens": max_tokens,
            "stop": tuple(body.stop),
            "stop_token_ids": tuple(body.stop_token_ids),
            "logit_bias": {_token_id(name, vocab_size): bias for name, bias in body.logit_bias.items()},
            "logprobs": _num_logprobs(body),
            "prompt_logprobs": body.num_prompt_logprobs,
        }
    )


def _num_logprobs(body: GenerationBody) -> int | None:
    """Return what the engine is to find out; the best of several are chosen by their log probabilities."""
    return 0 if body.num_logprobs is None and body.num_sequences > body.n else body.num_logprobs


def check_logprobs(body: GenerationBody) -> None:
    """Refuse numbers and combinations of fields that cannot be honoured."""
    names = (
        ("top_logprobs", "prompt_logprobs") if isinstance(body, ChatBody) else ("logprobs", "prompt_logprobs")
    )
    for name in names:
        value = getattr(body, name)
        if value is not None and not 0 <= value <= MAX_LOGPROBS:
            raise wrong(name, value, f"between 0 and {MAX_LOGPROBS}")
    if isinstance(body, ChatBody) and body.top_logprobs and not body.logprobs:
        raise wrong("top_logprobs", body.top_logprobs, "left out unless logprobs is true")
    if body.stream and body.prompt_logprobs is not None:
        raise wrong(
            "prompt_logprobs", body.prompt_logprobs, "left out of a stream; echo and logprobs can be streamed"
        )


def check_best_of(body: CompletionBody) -> None:
    """Refuse a choice from fewer sequences than answers, from too many, or from those already sent."""
    if body.best_of is None or body.best_of == body.n:
        return
    if body.n < 1:
        raise wrong("n", body.n, "at least 1")
    if not body.n < body.best_of <= MAX_BEST_OF:
        raise wrong("best_of", body.best_of, f"at least n, which is {body.n}, and at most {MAX_BEST_OF}")
    if body.stream:
        raise wrong("best_of", body.best_of, f"equal to n, which is {body.n}, in a stream")


def asked_tokens(body: GenerationBody) -> int | None:
    """Return the length the caller asked for, under either of its names."""
    given = {"max_completion_tokens": body.max_completion_tokens, "max_tokens": body.max_tokens}
    asked = {name: value for name, value in given.items() if value is not None}
    for name, value in asked.items():
        if value < 0:
            raise wrong(name, value, "at least 0; 0 fills the cache and generates nothing")
    if len(set(asked.values())) > 1:
        raise InvalidRequestError(
            f"max_tokens is {body.max_tokens} and max_completion_tokens is {body.max_completion_tokens}, "
            "but they mean the same; send one of them",
            param="max_completion_tokens",
        )
    return next(iter(asked.values()), None)


def _token_id(name: str, vocab_size: int) -> TokenId:
    """Return a token id that was the name of a JSON field."""
    if not (name.isascii() and name.isdecimal() and len(name) < 20 and int(name) < vocab_size):
        raise InvalidRequestError(
            f"logit_bias has the key {show(name)}, but keys must be token ids from 0 to {vocab_size - 1}",
            param="logit_bias",
        )
    return int(name)
