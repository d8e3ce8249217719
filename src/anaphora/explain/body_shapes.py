"""Whether a body has the shape that rendering and comparing rely on; logs hold anything."""

from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.errors import InvalidRequestError

MAX_TOKEN_ID = 2**31 - 1
_TEXTS = ("model", "adapter", "cache_salt")


def check_fields(body: Mapping[str, Any]) -> None:
    """Refuse with InvalidRequestError a field that has another type than a text or an object must be."""
    for name in _TEXTS:
        _check(body.get(name), str, name, "a string")
    _check(body.get("chat_template_kwargs"), Mapping, "chat_template_kwargs", "an object")
    prompt = body.get("prompt")
    for index, item in enumerate(prompt if isinstance(prompt, list) else ()):
        if isinstance(item, int) and not 0 <= item <= MAX_TOKEN_ID:
            path = f"prompt[{index}]"
            raise InvalidRequestError(
                f"{path} is {item}, but a token id is from 0 to {MAX_TOKEN_ID}", param=path
            )


def check_messages(messages: Sequence[Mapping[str, Any]], name: str) -> None:
    """Refuse with InvalidRequestError a role that is no text, or tool calls that are no list of calls."""
    for index, message in enumerate(messages):
        path = f"{name}[{index}]"
        _check(message.get("role"), str, f"{path}.role", "a string")
        calls = message.get("tool_calls")
        _check(calls, list, f"{path}.tool_calls", "a list")
        for number, call in enumerate(calls or ()):
            own = f"{path}.tool_calls[{number}]"
            _check_given(call, Mapping, own, "an object")
            _check_given(call.get("function"), Mapping, f"{own}.function", "an object")
            _check_given(call["function"].get("name"), str, f"{own}.function.name", "a string")
            _check(
                call["function"].get("arguments"),
                (str, Mapping),
                f"{own}.function.arguments",
                "a string or an object",
            )


def check_tools(tools: Sequence[Mapping[str, Any]]) -> None:
    """Refuse with InvalidRequestError a function that is no object, or a name that is no text."""
    for index, tool in enumerate(tools):
        function = tool.get("function")
        _check(function, Mapping, f"tools[{index}].function", "an object")
        owner, path = (
            (tool, f"tools[{index}]") if function is None else (function, f"tools[{index}].function")
        )
        _check(owner.get("name"), str, f"{path}.name", "a string")


def _check(value: Any, kind: type | tuple[type, ...], path: str, what: str) -> None:
    if value is not None:
        _check_given(value, kind, path, what)


def _check_given(value: Any, kind: type | tuple[type, ...], path: str, what: str) -> None:
    if not isinstance(value, kind):
        raise InvalidRequestError(f"{path} is of type {type(value).__name__}, but must be {what}", param=path)
