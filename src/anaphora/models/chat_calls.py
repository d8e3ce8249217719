"""The tool calls of earlier replies: on the wire their arguments are JSON in a string, to most templates an object.

Knows nothing of jinja or HTTP.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from anaphora.errors import InvalidRequestError
from anaphora.models.tokenizer import check_unicode
from anaphora.nesting import MAX_DEPTH, is_deeper


def with_arguments(call: Mapping[str, Any], path: str, *, as_text: bool) -> dict[str, Any]:
    """Return a copy of a call with its arguments as an object, or as the string they were; `path` is the call's.

    Raises InvalidRequestError naming the arguments if they are a string that holds no JSON object.
    """
    function = call.get("function")
    if not isinstance(function, Mapping) or "arguments" not in function:
        return dict(call)
    arguments = function["arguments"]
    if isinstance(arguments, str):
        value = _parse(arguments, f"{path}.function.arguments")
        arguments = arguments if as_text else value
    elif as_text:
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def wire_arguments(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of all arguments that are strings, whatever a template makes of them."""
    for k, message in enumerate(messages):
        for i, call in enumerate(message.get("tool_calls") or ()):
            arguments = (call.get("function") or {}).get("arguments")
            if isinstance(arguments, str):
                yield f"messages[{k}].tool_calls[{i}].function.arguments", arguments


def _parse(arguments: str, path: str) -> dict[str, Any]:
    check_unicode(arguments, path, param=path)
    try:
        # A model that calls without arguments may have written nothing.
        value = json.loads(arguments.strip() or "{}", parse_constant=_refuse_constant)
        if is_deeper(value):
            raise RecursionError
        check_unicode(json.dumps(value, ensure_ascii=False), path, param=path)  # "\ud800" is JSON
    except RecursionError as error:
        raise InvalidRequestError(
            f"{path} is nested deeper than {MAX_DEPTH} levels; use fewer", param=path
        ) from error
    except ValueError as error:
        raise InvalidRequestError(f"{path} is not JSON: {error}", param=path) from error
    if not isinstance(value, dict):
        raise InvalidRequestError(
            f"{path} holds JSON of type {type(value).__name__}, but must hold an object", param=path
        )
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"numbers must be finite, and {name} is not")
