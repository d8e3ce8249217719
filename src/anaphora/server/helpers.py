"""What the server changes in the body of a chat before it is rendered, if it was asked to: stamps and the order of
tools.

Needs the body alone; what needs earlier requests is in `continuation.py`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from anaphora.config import HelperConfig
from anaphora.errors import RequestError
from anaphora.explain.alignment import common_length
from anaphora.explain.bodies import SYSTEM_ROLES
from anaphora.explain.stamps import LeadingStamps, leading_stamps
from anaphora.models.spans import Span, SpanMap
from anaphora.server.messages import PART_TEXTS
from anaphora.server.prompts import Prompt

Messages: TypeAlias = Sequence[Mapping[str, Any]]
Tools: TypeAlias = Sequence[Mapping[str, Any]] | None
RenderChat: TypeAlias = Callable[[Messages, Tools], Awaitable[Prompt]]

_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Chat:
    """What is rendered. `has_empty_first` says that nothing is left of the first message, which is left out then."""

    messages: Messages
    tools: Tools
    has_empty_first: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One thing the server changed: how, in a sentence, and the chat without that change but with all others."""

    sentence: str
    unchanged: Chat


def with_help(config: HelperConfig, chat: Chat) -> tuple[Chat, tuple[Change, ...]]:
    """Return the chat as it is to be rendered, and what was changed in it; nothing unless the settings ask for it."""
    stripped = _stripped(chat) if config.strip_client_stamp else None
    tools = _sorted_tools(chat.tools) if config.sort_tools else None
    cleaned = stripped[0] if stripped else chat
    helped = cleaned if tools is None else replace(cleaned, tools=tools)
    changes = []
    if stripped:
        sentence = (
            f"--strip-client-stamp left out {_lines(stripped[1].names)} at the beginning of messages[0]."
        )
        changes.append(Change(sentence, replace(helped, messages=chat.messages, has_empty_first=False)))
    if tools is not None:
        sentence = f"--sort-tools put the {len(tools):,} tools in the order of their names."
        changes.append(Change(sentence, cleaned))
    return helped, tuple(changes)


async def render_helped(config: HelperConfig, chat: Chat, render: RenderChat) -> Prompt:
    """Return the prompt of a chat with what the settings ask for.

    A chat that can only be rendered unchanged stays as it is; one that cannot be rendered at all raises what it
    raises unchanged, which names the parts of the body as they were sent.
    """
    helped, changes = with_help(config, chat)
    if not changes:
        return await _rendered(chat, render)
    try:
        prompt = await _rendered(helped, render)
    except RequestError:
        return await _rendered(chat, render)
    sentences = [(change.sentence, await _num_common(prompt, change.unchanged, render)) for change in changes]
    fields = {"messages": helped.messages, "tools": helped.tools}
    sent = {"messages": chat.messages, "tools": chat.tools}
    return replace(
        prompt,
        helped=tuple(sentences),
        changes={
            name: list(value)
            for name, value in fields.items()
            if value is not None and value is not sent[name]
        },
    )


async def _rendered(chat: Chat, render: RenderChat) -> Prompt:
    """Render a chat; a first message that is left out still counts in the paths of the others."""
    if not chat.has_empty_first:
        return await render(chat.messages, chat.tools)
    prompt = await render(chat.messages[1:], chat.tools)
    if prompt.spans is None:
        return prompt
    return replace(prompt, spans=SpanMap(tuple(_with_next_index(span) for span in prompt.spans.spans)))


def _with_next_index(span: Span) -> Span:
    if not span.path.startswith("messages["):
        return span
    index, _, rest = span.path.removeprefix("messages[").partition("]")
    return replace(span, path=f"messages[{int(index) + 1}]{rest}")


async def _num_common(prompt: Prompt, unchanged: Chat, render: RenderChat) -> int:
    """Return how many leading tokens a prompt has in common with the one that would have been; 0 if there is none."""
    try:
        other = await _rendered(unchanged, render)
    except RequestError:
        return 0
    return common_length(list(prompt.token_ids), list(other.token_ids))


# ---------------------------------------------------------------------------------------------------------------------
# Stamps


def _stripped(chat: Chat) -> tuple[Chat, LeadingStamps] | None:
    """Return a chat without the stamps at the beginning of its system text, and those; None if there are none."""
    first = chat.messages[0]
    text = _first_text(first)
    stamps = leading_stamps(text) if first.get("role") in SYSTEM_ROLES else None
    if not stamps:
        return None
    if not stamps.names:
        return None
    message = _with_first_text(first, text[stamps.end :])
    is_alone = len(chat.messages) == 1
    is_empty = not is_alone and not any(_texts(message))
    return replace(chat, messages=[message, *chat.messages[1:]], has_empty_first=is_empty), stamps


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message.get("content")
    if isinstance(content, list):
        return [str(part[PART_TEXTS[part["type"]]]) for part in content]
    return [content or ""]


def _first_text(message: Mapping[str, Any]) -> str:
    return next(iter(_texts(message)), "")


def _with_first_text(message: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Return a message with another first text; a part without a text stays, so that the others keep their paths."""
    content = message.get("content")
    if isinstance(content, list):
        first = {**content[0], PART_TEXTS[content[0]["type"]]: text}
        return {**message, "content": [first, *content[1:]]}
    return {**message, "content": text}


def _lines(names: Sequence[str]) -> str:
    shown = ", ".join(dict.fromkeys(name[:_MAX_NAME_CHARS] for name in names))
    return f"the line {shown}" if len(names) == 1 else f"the {len(names)} lines {shown}"


# ---------------------------------------------------------------------------------------------------------------------
# Tools


def _sorted_tools(tools: Tools) -> Tools:
    """Return tools in the order of their names, those of one name in their own; None if they are in order."""
    ordered = sorted(tools or (), key=lambda tool: str(tool["function"]["name"]))
    return None if ordered == list(tools or ()) else ordered
