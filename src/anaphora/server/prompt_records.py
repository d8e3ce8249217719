"""A request's body → the prompt the model gets, as explanations need it: text, tokens, and the place of each part.

Reads more than the server serves: what a chat template can render is rendered.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anaphora.errors import InvalidRequestError
from anaphora.explain.bodies import ChatBody, bypass_of, read_body
from anaphora.explain.records import CacheNamespace, Contents, PartSpan, PromptRecord, RenderedPrompt
from anaphora.ids import TokenId
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.spans import CharSpan, spans_in_tokens, token_char_starts
from anaphora.server.fields import ReportedFields
from anaphora.server.messages import check_messages
from anaphora.server.tools import check_tools


class TextTokenizer(Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        """Return the ids of a text."""
        ...

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        """Return the text of some ids."""
        ...

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return the bytes one token stands for."""
        ...


READ_FIELDS = frozenset(
    ("messages", "prompt", "tools", "add_generation_prompt", "add_special_tokens", "cache_control")
    + ("prompt_cache_options", "user", "safety_identifier", "echo", "logprobs", "prompt_logprobs")
)
"""The fields of a body that explanations read; no others are remembered."""

_RENDERED_SETTINGS = ("add_generation_prompt",)
"""What the server hands to a chat template besides messages and tools."""


def served_body(source: Mapping[str, Any]) -> ChatBody:
    """Return the body of a request that the server has taken: checked again, so that it reads the same."""
    if source.get("messages") is None:
        return ChatBody(prompt=source["prompt"], source=source)
    unknown = ReportedFields()
    return ChatBody(
        messages=tuple(check_messages(source["messages"], unknown)),
        tools=tuple(check_tools(source.get("tools"), unknown) or ()),
        settings={name: source[name] for name in _RENDERED_SETTINGS if source.get(name) is not None},
        source=source,
    )


class BodyRenderer:
    """Makes the prompts of one model from bodies of any API. `template` None: raw prompts only."""

    def __init__(self, template: ChatTemplate | None, tokenizer: TextTokenizer) -> None:
        self._template = template
        self._tokenizer = tokenizer

    @property
    def template_source(self) -> str | None:
        """The text of the chat template, or None without one."""
        return None if self._template is None else self._template.source

    def record(self, request_id: str, body: Any, *, default_model: str | None = None) -> PromptRecord:
        """Return the record of one request; raises InvalidRequestError, naming the field at fault."""
        chat = read_body(body)
        prompt = self(chat)
        namespace = CacheNamespace(
            model=body.get("model") or default_model, adapter=body.get("adapter"), salt=body.get("cache_salt")
        )
        return PromptRecord(
            request_id=request_id,
            token_ids=prompt.token_ids,
            contents=lambda: Contents(chat, prompt),
            namespace=namespace,
            bypassed_by=bypass_of(body),
        )

    def __call__(self, body: ChatBody) -> RenderedPrompt:
        """Return the prompt of a body; raises InvalidRequestError when the template refuses it."""
        if body.prompt is None:
            return self._chat(body)
        if isinstance(body.prompt, str):
            wants_special = bool(body.source.get("add_special_tokens", True))
            ids = self._tokenizer.encode(body.prompt, add_special_tokens=wants_special)
            return self._located(body.prompt, ids, ())
        text = self._tokenizer.decode(body.prompt, skip_special_tokens=False)
        return self._located(text, list(body.prompt), ())

    def token_ids(self, body: ChatBody) -> list[TokenId]:
        """Return the tokens of a body like one that was rendered before: faster, without the place of anything."""
        if body.prompt is not None:
            return list(self(body).token_ids)
        text = self._chat_template().render_text(_messages(body), **_settings(body))
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _chat(self, body: ChatBody) -> RenderedPrompt:
        chat = self._chat_template().render(_messages(body), **_settings(body))
        ids = self._tokenizer.encode(chat.text, add_special_tokens=False)
        return self._located(chat.text, ids, chat.parts)

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            raise InvalidRequestError(
                "this model has no chat template; give --chat-template FILE", param="messages"
            )
        return self._template

    def rebuilt(self, token_ids: Sequence[TokenId], spans: Sequence[PartSpan]) -> RenderedPrompt:
        """Return a prompt again from its tokens and the places of its parts."""
        pieces = list(map(self._tokenizer.token_bytes, token_ids))
        text = b"".join(pieces).decode("utf-8", "replace")
        starts = token_char_starts(text, pieces)
        return RenderedPrompt(
            text, tuple(token_ids), None if starts is None else starts.tolist(), tuple(spans)
        )

    def _located(self, text: str, ids: list[TokenId], parts: Sequence[CharSpan]) -> RenderedPrompt:
        starts = token_char_starts(text, [self._tokenizer.token_bytes(token_id) for token_id in ids])
        if starts is None:
            spans = tuple(PartSpan(part.path, part.start, part.end, 0, 0) for part in parts)
            return RenderedPrompt(text, tuple(ids), None, spans)
        spans = tuple(
            PartSpan(span.path, span.char_start, span.char_end, span.token_start, span.token_end)
            for span in spans_in_tokens(parts, starts).spans
        )
        return RenderedPrompt(text, tuple(ids), starts.tolist(), spans)


def _messages(body: ChatBody) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in message.items() if value is not None} for message in body.messages
    ]


def _settings(body: ChatBody) -> dict[str, Any]:
    names = body.template_names
    add_generation_prompt = bool(names.pop("add_generation_prompt", True))
    return {
        "add_generation_prompt": add_generation_prompt,
        "tools": list(body.tools) or None,
        "template_kwargs": names,
    }
