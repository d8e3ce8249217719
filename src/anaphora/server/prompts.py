"""The prompts of a request, as text, token ids or messages, turned into token ids."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from anaphora.engine.protocols import Tokenizer
from anaphora.errors import ContextLengthError, InvalidRequestError
from anaphora.explain.records import PartSpan
from anaphora.ids import TokenId
from anaphora.models.spans import SpanMap
from anaphora.request import Retention
from anaphora.server.validation import wrong

LONG_TEXT_CHARS = 65_536
"""From here on tokenising may hold up the streams of others, so it is done in another thread."""


class ChatRenderer(Protocol):
    """Messages to token ids, by the model's chat template."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> tuple[Sequence[TokenId], SpanMap | None]:
        """Return the prompt and where each part lies in it; raise InvalidRequestError if the template refuses."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: its path in the body, its ids, its text if that was given, its parts if it was a chat, which of its
    beginnings are to stay cached, and what the server changed in it (see `explainer.Draft`).

    `changes` are the fields of the body that the server changed, `turn` the digest of its conversation.
    """

    path: str
    token_ids: Sequence[TokenId]
    text: str | None = None
    spans: SpanMap | None = None
    retention: tuple[Retention, ...] = ()
    helped: tuple[tuple[str, int], ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    turn: bytes | None = None

    @property
    def part_spans(self) -> tuple[PartSpan, ...]:
        """Its parts, as explanations need them."""
        if self.spans is None:
            return ()
        return tuple(
            PartSpan(span.path, span.char_start, span.char_end, span.token_start, span.token_end)
            for span in self.spans.spans
        )

    def own_source(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the body of a request as if it had asked for this prompt alone; without it, if it was token ids."""
        if self.path == "messages":
            return {**source, **self.changes} if self.changes else source
        others = {name: value for name, value in source.items() if name != "prompt"}
        return others if self.text is None else others | {"prompt": self.text}

    def text_by(self, tokenizer: Tokenizer, skip_special_tokens: bool) -> str:
        """Return the text as it was given, or that of the ids."""
        if self.text is not None:
            return self.text
        return tokenizer.decode(self.token_ids, skip_special_tokens=skip_special_tokens)

    def num_output_tokens(self, asked: int | None, default: int | None, max_model_len: int) -> int:
        """Return how many tokens may be generated: those asked for, or else the default as far as it fits."""
        room = max_model_len - len(self.token_ids)
        least = 1 if asked is None else asked
        if least > room:
            raise self._too_long(least, max_model_len)
        return min(default or room, room) if asked is None else asked

    def _too_long(self, asked: int, max_model_len: int) -> ContextLengthError:
        room = max_model_len - len(self.token_ids)
        remedy = f"shorten the prompt or ask for at most {room} tokens" if room > 0 else "shorten the prompt"
        return ContextLengthError(
            f"this model's maximum context length is {max_model_len} tokens, but {self.path} has "
            f"{len(self.token_ids)} tokens and {asked} more are to be generated, "
            f"{len(self.token_ids) + asked} in all; {remedy}, or raise --max-model-len",
            param=self.path,
        )


@dataclass(frozen=True, slots=True)
class TextLimit:
    """How long a text may be before it is tokenised, which holds up all others for as long as it takes.

    A text with more bytes than the context's tokens could spell cannot fit, so nothing is lost by refusing it.
    """

    max_model_len: int
    longest_token_bytes: int

    @classmethod
    def of(cls, tokenizer: Tokenizer, max_model_len: int) -> "TextLimit":
        """Return the limit for a model."""
        longest = max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
        return cls(max_model_len, longest)

    def check(self, num_bytes: int, path: str) -> None:
        """Raise ContextLengthError for a text that cannot fit."""
        most = self.max_model_len * self.longest_token_bytes
        if num_bytes > most:
            raise ContextLengthError(
                f"{path} has {num_bytes} bytes of text, but the context of {self.max_model_len} tokens holds "
                f"{most} at the very most; shorten it",
                param=path,
            )


async def read_prompts(
    value: Any, tokenizer: Tokenizer, limit: TextLimit, *, add_special_tokens: bool
) -> list[Prompt]:
    """Return the prompts of a completion: a text, a list of texts, token ids, or a list of lists of token ids."""
    if isinstance(value, str):
        return [await _read_text(value, "prompt", tokenizer, limit, add_special_tokens)]
    if not isinstance(value, list):
        raise wrong(
            "prompt", value, "a string, a list of strings, a list of token ids, or a list of such lists"
        )
    if not value:
        raise InvalidRequestError("prompt is an empty list; send at least one token or text", param="prompt")
    if not isinstance(value[0], str | list):
        return [_read_ids(value, "prompt", tokenizer)]
    prompts = []
    for i, item in enumerate(value):
        if isinstance(item, str) and isinstance(value[0], str):
            prompts.append(await _read_text(item, f"prompt[{i}]", tokenizer, limit, add_special_tokens))
        elif isinstance(item, list) and isinstance(value[0], list):
            prompts.append(_read_ids(item, f"prompt[{i}]", tokenizer))
        else:
            raise wrong(
                f"prompt[{i}]", item, "a string" if isinstance(value[0], str) else "a list of token ids"
            )
    return prompts


async def render_chat(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    renderer: ChatRenderer | None,
    limit: TextLimit,
    *,
    add_generation_prompt: bool,
) -> Prompt:
    """Return the prompt of a chat."""
    if renderer is None:
        raise InvalidRequestError(
            "this model has no chat template; start the server with --chat-template FILE, or use /v1/completions",
            param="messages",
        )
    num_chars = len(str(tools)) + sum(
        len(str(message["content"])) + len(str(message.get("tool_calls"))) for message in messages
    )
    limit.check(num_chars, "messages")
    render = partial(renderer.render, messages, tools=tools, add_generation_prompt=add_generation_prompt)
    token_ids, spans = render() if num_chars < LONG_TEXT_CHARS else await asyncio.to_thread(render)
    if not token_ids:
        raise InvalidRequestError("messages render to an empty prompt; send some text", param="messages")
    return Prompt("messages", token_ids, spans=spans)


async def encode(
    text: str, path: str, tokenizer: Tokenizer, limit: TextLimit, *, add_special_tokens: bool
) -> list[TokenId]:
    """Return the ids of a text without holding up others while it is long."""
    limit.check(len(text), path)  # a character has one byte at least
    if len(text) < LONG_TEXT_CHARS:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return await asyncio.to_thread(tokenizer.encode, text, add_special_tokens=add_special_tokens)


async def _read_text(
    text: str, path: str, tokenizer: Tokenizer, limit: TextLimit, add_special_tokens: bool
) -> Prompt:
    token_ids = (
        await encode(text, path, tokenizer, limit, add_special_tokens=add_special_tokens) if text else []
    )
    if not token_ids:
        raise InvalidRequestError(f"{path} is empty; send some text", param=path)
    return Prompt(path, token_ids, text)


def _read_ids(token_ids: list[Any], path: str, tokenizer: Tokenizer) -> Prompt:
    if not token_ids:
        raise InvalidRequestError(f"{path} is an empty list; send at least one token id", param=path)
    check_token_ids(token_ids, path, tokenizer.vocab_size)
    return Prompt(path, token_ids)


def check_token_ids(token_ids: Sequence[Any], path: str, vocab_size: int) -> None:
    """Refuse anything but integers below the size of the vocabulary; true and false are no integers here."""
    for i, token_id in enumerate(token_ids):
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise wrong(f"{path}[{i}]", token_id, f"a token id from 0 to {vocab_size - 1}")
