"""The tools of a chat: their shape, before a template sees them, and which choice among them is served.

Whether a template can render tools is the template's business.
"""

import re
from typing import Any

from anaphora.errors import UnsupportedFieldError
from anaphora.server.fields import UnknownFields
from anaphora.server.validation import wrong

# `cache_control` is a hint for caching that never reaches the prompt.
_TOOL_FIELDS = frozenset({"type", "function"})
_FUNCTION_FIELDS = frozenset({"name", "description", "parameters", "strict"})
_HINTS = frozenset({"cache_control"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tools(value: Any, unknown: UnknownFields) -> list[dict[str, Any]] | None:
    """Return the tools as templates get them, None if there are none.

    Fields keep their order, since it is the order of the prompt; null ones, hints and unknown ones are left out.
    """
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong("tools", value, "a list of tools")
    return [_check_tool(tool, f"tools[{i}]", unknown) for i, tool in enumerate(value)] or None


def _check_tool(value: Any, path: str, unknown: UnknownFields) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(path, value, 'an object such as {"type": "function", "function": {...}}')
    tool = _known(value, _TOOL_FIELDS, "tools[]", unknown)
    if tool.get("type") != "function":
        raise wrong(f"{path}.type", tool.get("type"), '"function"')
    if not isinstance(tool.get("function"), dict):
        raise wrong(
            f"{path}.function", tool.get("function"), "an object with name, description and parameters"
        )
    return {**tool, "function": _check_function(tool["function"], f"{path}.function", unknown)}


def _check_function(value: dict[str, Any], path: str, unknown: UnknownFields) -> dict[str, Any]:
    function = _known(value, _FUNCTION_FIELDS, "tools[].function", unknown)
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise wrong(f"{path}.name", name, "a string of 1 to 64 letters, digits, underscores and dashes")
    for field, kind, what in (
        ("description", str, "a string"),
        ("parameters", dict, "an object, the JSON schema of the arguments"),
        ("strict", bool, "true or false"),
    ):
        if field in function and not isinstance(function[field], kind):
            raise wrong(f"{path}.{field}", function[field], what)
    return function


def _known(value: dict[str, Any], known: frozenset[str], path: str, unknown: UnknownFields) -> dict[str, Any]:
    unknown.report_others(value, known | _HINTS, path)
    return {name: item for name, item in value.items() if name in known and item is not None}


def check_tool_choice(value: Any) -> None:
    """Refuse a choice that forces a call; `auto` and `none` make no difference.

    With `none` the tools stay in the prompt, as in vLLM unless its operator says otherwise: without them nothing
    that was cached with `auto` would be found.
    """
    if value in (None, "auto", "none"):
        return
    if value == "required" or isinstance(value, dict):
        forced = "tool_choice required" if value == "required" else "tool_choice with a named function"
        raise UnsupportedFieldError(
            f"{forced} is not supported by this server, which cannot force a call; "
            'send "auto" or "none", and ask for the call in a message',
            param="tool_choice",
            code="unsupported_parameter",
        )
    raise wrong("tool_choice", value, '"auto" or "none"')
