"""The sampling fields of a body, as SamplingParams for one prompt."""

from collections.abc import Mapping
from typing import Any

from anaphora.engine.protocols import EngineClient
from anaphora.errors import InvalidRequestError
from anaphora.ids import TokenId
from anaphora.request import SamplingParams
from anaphora.server.bodies import GenerationBody
from anaphora.server.prompts import Prompt, check_token_ids
from anaphora.server.validation import show, wrong


def sampling_params(
    body: GenerationBody, prompt: Prompt, engine: EngineClient, defaults: Mapping[str, Any]
) -> SamplingParams:
    """Return how to continue a prompt, with every limit resolved to a number.

    `defaults` hold where the caller says nothing.
    """
    vocab_size = engine.tokenizer.vocab_size
    check_token_ids(body.stop_token_ids, "stop_token_ids", vocab_size)
    max_tokens = prompt.num_output_tokens(_asked_tokens(body), body.default_max_tokens, engine.max_model_len)
    return SamplingParams(
        **dict(defaults)
        | body.sampling_values()
        | {
            "max_tokens": max_tokens,
            "stop": tuple(body.stop),
            "stop_token_ids": tuple(body.stop_token_ids),
            "logit_bias": {_token_id(name, vocab_size): bias for name, bias in body.logit_bias.items()},
        }
    )


def _asked_tokens(body: GenerationBody) -> int | None:
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
