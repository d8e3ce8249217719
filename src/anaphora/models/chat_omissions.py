"""Refuses tools, tool calls and results of tools that a chat template leaves out of the prompt.

What has a place in the prompt was rendered. For the rest the conversation is rendered again with another name
or content there, which must make a difference.
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_markup import Turn
from anaphora.models.chat_objects import Tools

Render = Callable[[Sequence[Turn], Tools], str]


def check_nothing_left_out(
    text: str, placed: Collection[str], turns: Sequence[Turn], tools: Tools, render: Render
) -> None:
    """Refuse with InvalidRequestError what does not show in `text`, which is `turns` and `tools` rendered.

    `placed` are the paths of the parts found in it. Of each kind only the first that is not among them is tried:
    a template shows all of a kind or none.
    """
    if tools and not _any_placed("tools", tools, placed):
        renamed = [_renamed(tool) for tool in tools]
        if _is_same(text, render, turns, renamed):
            raise _left_out("tools", "tools")
    for k, turn in enumerate(turns):
        path, calls = f"messages[{k}].tool_calls", turn.fields.get("tool_calls")
        if calls and not _any_placed(path, calls, placed):
            other = replace(turn, fields={**turn.fields, "tool_calls": [_renamed(call) for call in calls]})
            if _is_same(text, render, _exchanged(turns, k, other), tools):
                raise _left_out(path, "tool calls")
            break
    for k, turn in enumerate(turns):
        has_text = turn.role == "tool" and any(map(str.strip, turn.texts))
        if has_text and not any(path in placed for path in turn.paths):
            other = replace(turn, texts=tuple(secrets.token_hex(8) for _ in turn.texts))
            if _is_same(text, render, _exchanged(turns, k, other), tools):
                raise _left_out(f"messages[{k}]", "results of tools")
            break


def _any_placed(path: str, items: Sequence[Any], placed: Collection[str]) -> bool:
    return any(f"{path}[{i}]" in placed for i in range(len(items)))


def _renamed(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "function": {**(item.get("function") or {}), "name": f"Qz7{secrets.token_hex(8)}"}}


def _exchanged(turns: Sequence[Turn], k: int, other: Turn) -> list[Turn]:
    return [*turns[:k], other, *turns[k + 1 :]]


def _is_same(text: str, render: Render, turns: Sequence[Turn], tools: Tools) -> bool:
    try:
        return render(turns, tools) == text
    except InvalidRequestError:
        return False  # a template that has something against it has looked at it


def _left_out(path: str, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the chat template renders no {what}, so the model would not see {path}; start the server with a template "
        f"that does (--chat-template FILE), or send the conversation without {what}",
        param=path,
    )
