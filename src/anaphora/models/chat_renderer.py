"""Messages → token ids and the place of every part among them: template, tokenizer and spans put together."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anaphora.ids import TokenId
from anaphora.models.chat_objects import Tools
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.spans import SpanMap, spans_in_tokens, token_char_starts


class TextEncoder(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        """Return the ids of a text."""
        ...

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return the bytes one token stands for."""
        ...


class ChatRenderer:
    """Makes the prompts of chats for one model. Safe from several threads."""

    def __init__(self, template: ChatTemplate, tokenizer: TextEncoder) -> None:
        self.template = template
        self._tokenizer = tokenizer

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Tools = None,
        add_generation_prompt: bool = True,
    ) -> tuple[list[TokenId], SpanMap | None]:
        """Return the prompt and where each part lies in it, or None for the latter if the tokens do not spell it.

        The template writes a begin-of-text token itself, so none is added.
        Raises what `ChatTemplate.render` and the tokenizer's `encode` raise.
        """
        chat = self.template.render(messages, tools=tools, add_generation_prompt=add_generation_prompt)
        token_ids = self._tokenizer.encode(chat.text, add_special_tokens=False)
        starts = token_char_starts(
            chat.text, [self._tokenizer.token_bytes(token_id) for token_id in token_ids]
        )
        return token_ids, None if starts is None else spans_in_tokens(chat.parts, starts)
