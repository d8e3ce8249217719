"""Bodies of Anthropic's messages and OpenAI's responses as a chat, with the place of each text in the body as sent.

Pure: checks no more than it needs, and renders nothing.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from anaphora.errors import InvalidRequestError

_HINTS = frozenset({"cache_control", "prompt_cache_breakpoint"})
_OUTPUTS = {"function_call_output", "custom_tool_call_output"}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}


class MessagePlace(NamedTuple):
    """Where a message of a chat stands in the body as it was sent: itself, each of its texts, each of its calls."""

    path: str
    texts: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    arguments: str = "arguments"


class Chat(NamedTuple):
    """Messages and tools in the form of OpenAI's chat completions, and a place for each message."""

    messages: tuple[Mapping[str, Any], ...]
    places: tuple[MessagePlace, ...]
    tools: tuple[Mapping[str, Any], ...]


def objects(value: Any, name: str) -> tuple[Mapping[str, Any], ...]:
    """Return a list of objects; raises InvalidRequestError for anything else, and takes null for an empty list."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidRequestError(f"{name} is not a list of objects", param=name)
    return tuple(value)


def without_hints(value: Any) -> Any:
    """Return a part, a tool or a message without what speaks to a cache and never reaches the prompt."""
    if not isinstance(value, Mapping):
        return value
    return {name: item for name, item in value.items() if name not in _HINTS}


def text_paths(content: Any, path: str) -> tuple[str, ...]:
    """Return the path of each text of a content that stands at `path`."""
    if isinstance(content, str):
        return (path,)
    return tuple(f"{path}[{i}]" for i in range(len(content))) if isinstance(content, Sequence) else ()


def is_anthropic(body: Mapping[str, Any]) -> bool:
    """Whether a body with messages is one of Anthropic's."""
    if "system" in body:
        return True
    tools = body.get("tools")
    if isinstance(tools, list) and any(
        isinstance(tool, Mapping) and "input_schema" in tool for tool in tools
    ):
        return True
    contents = [message.get("content") for message in objects(body["messages"], "messages")]
    return any(
        isinstance(item, Mapping) and item.get("type") in {"tool_use", "tool_result", "thinking"}
        for content in contents
        if isinstance(content, list)
        for item in content
    )


# ---------------------------------------------------------------------------------------------------------------------
# Anthropic


def read_anthropic(body: Mapping[str, Any]) -> Chat:
    """Return an Anthropic body as a chat: system first, tool uses as tool calls, tool results as messages."""
    made: list[tuple[Mapping[str, Any], MessagePlace]] = []
    if system := body.get("system"):
        made.append(
            (
                {"role": "system", "content": _plain_content(system)},
                MessagePlace("system", text_paths(system, "system")),
            )
        )
    for index, message in enumerate(objects(body["messages"], "messages")):
        made += _from_anthropic(message, f"messages[{index}]")
    tools = tuple(_wrapped(tool, "input_schema") for tool in objects(body.get("tools"), "tools"))
    return Chat(tuple(m for m, _ in made), tuple(place for _, place in made), tools)


def _from_anthropic(message: Mapping[str, Any], path: str) -> list[tuple[Mapping[str, Any], MessagePlace]]:
    content = message.get("content")
    if not isinstance(content, list):
        return [(message, MessagePlace(path, text_paths(content, f"{path}.content")))]
    results: list[tuple[Mapping[str, Any], MessagePlace]] = []
    texts: list[tuple[Any, str]] = []
    calls: list[tuple[Any, str]] = []
    for number, block in enumerate(content):
        place = f"{path}.content[{number}]"
        kind = block.get("type") if isinstance(block, Mapping) else "text"
        if kind == "tool_use":
            arguments = json.dumps(block.get("input", {}), ensure_ascii=False)
            calls.append((_call(block.get("id"), block.get("name"), arguments), place))
        elif kind == "tool_result":
            results.append(_result(block.get("tool_use_id"), block.get("content"), place, "content"))
        elif kind not in {"thinking", "redacted_thinking"}:
            texts.append((without_hints(block), place))
    if not (texts or calls) and results:
        return results
    turn: dict[str, Any] = {"role": message.get("role"), "content": [text for text, _ in texts]}
    if calls:
        turn["tool_calls"] = [call for call, _ in calls]
    own = MessagePlace(path, tuple(p for _, p in texts), tuple(p for _, p in calls), "input")
    return [*results, (turn, own)]


def _call(call_id: Any, name: Any, arguments: str) -> Mapping[str, Any]:
    return {
        "id": call_id or "",
        "type": "function",
        "function": {"name": name or "", "arguments": arguments},
    }


def _result(call_id: Any, content: Any, path: str, name: str) -> tuple[Mapping[str, Any], MessagePlace]:
    message = {"role": "tool", "tool_call_id": call_id or "", "content": _plain_content(content or "")}
    return message, MessagePlace(path, text_paths(content or "", f"{path}.{name}"))


def _plain_content(content: Any) -> Any:
    return [without_hints(block) for block in content] if isinstance(content, list) else content


def _wrapped(tool: Mapping[str, Any], schema: str) -> Mapping[str, Any]:
    """A tool whose fields stand side by side, in the form of chat completions."""
    plain: Mapping[str, Any] = without_hints(tool)
    if schema not in tool or "function" in tool:
        return plain
    fields = {
        ("parameters" if name == schema else name): item for name, item in plain.items() if name != "type"
    }
    return {"type": "function", "function": fields}


# ---------------------------------------------------------------------------------------------------------------------
# Responses


def read_responses(body: Mapping[str, Any]) -> Chat:
    """Return a body of the responses API as a chat: instructions first, calls with the turn that made them.

    Reasoning is left out, as a template leaves it out of history.
    """
    made: list[tuple[dict[str, Any], MessagePlace]] = []
    if instructions := body.get("instructions"):
        made.append(
            ({"role": "system", "content": instructions}, MessagePlace("instructions", ("instructions",)))
        )
    given = body.get("input") or []
    if isinstance(given, str):
        made.append(({"role": "user", "content": given}, MessagePlace("input", ("input",))))
        given = []
    for index, item in enumerate(objects(given, "input")):
        _add_item(made, item, f"input[{index}]")
    tools = tuple(_wrapped(tool, "parameters") for tool in objects(body.get("tools"), "tools"))
    return Chat(tuple(m for m, _ in made), tuple(place for _, place in made), tools)


def _add_item(made: list[tuple[dict[str, Any], MessagePlace]], item: Mapping[str, Any], path: str) -> None:
    kind = item.get("type", "message")
    if kind in _CALLS:
        call = _call(item.get("call_id"), item.get("name"), str(item.get(_CALLS[kind]) or "{}"))
        if not made or made[-1][0].get("role") != "assistant":
            made.append(({"role": "assistant", "content": ""}, MessagePlace(path)))
        turn, place = made[-1]
        turn["tool_calls"] = [*turn.get("tool_calls", ()), call]
        made[-1] = (turn, place._replace(calls=(*place.calls, path), arguments=_CALLS[kind]))
    elif kind in _OUTPUTS:
        message, place = _result(item.get("call_id"), item.get("output"), path, "output")
        made.append((dict(message), place))
    elif "role" in item:
        message = {
            name: value for name, value in without_hints(item).items() if name not in {"type", "id", "status"}
        }
        made.append((message, MessagePlace(path, text_paths(item.get("content"), f"{path}.content"))))
    elif kind != "reasoning":
        raise InvalidRequestError(
            f"{path} is an item of type {kind!r}, which no chat template renders; send messages, function calls "
            "and their outputs",
            param=path,
        )
