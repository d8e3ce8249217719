"""The messages of a chat: their shape, before a template sees them.

Whether a template can render a role is the template's business.
"""

from typing import Any

from anaphora.errors import InvalidRequestError
from anaphora.server.fields import Refusal, UnknownFields
from anaphora.server.validation import wrong

ROLES = ("system", "developer", "user", "assistant", "tool")

MESSAGE_FIELDS = frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id"}
    # Sent back by clients that replay an earlier answer; a template may or may not use them.
    | {"annotations", "reasoning", "reasoning_content"}
    # Hints for caching that never reach the prompt.
    | {"cache_control", "prompt_cache_breakpoint"}
)
REFUSED_MESSAGE_FIELDS = {
    "audio": Refusal("send text"),
    "function_call": Refusal("send tool_calls"),
    "refusal": Refusal("send it as content"),
}
PART_TEXTS = {"text": "text", "refusal": "refusal"}
"""The types of parts that are text, and the field that holds it."""

_CALL_FIELDS = frozenset(
    {"id", "type", "function", "index"}
)  # those who collect a stream may replay the index
_CALLED_FIELDS = frozenset({"name", "arguments"})

PART_FIELDS = frozenset({"type", "text", "refusal", "cache_control", "prompt_cache_breakpoint"})


def check_messages(value: Any, unknown: UnknownFields) -> list[dict[str, Any]]:
    """Return the messages without their null fields, after checking what every template relies on."""
    if not isinstance(value, list):
        raise wrong("messages", value, "a list of messages")
    if not value:
        raise InvalidRequestError("messages is an empty list; send at least one message", param="messages")
    return [_check_message(message, f"messages[{i}]", unknown) for i, message in enumerate(value)]


def _check_message(value: Any, path: str, unknown: UnknownFields) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(path, value, "an object with role and content")
    message = {name: item for name, item in value.items() if item is not None}
    if message.get("role") not in ROLES:
        raise wrong(f"{path}.role", message.get("role"), f"one of {', '.join(ROLES)}")
    for name, refusal in REFUSED_MESSAGE_FIELDS.items():
        if name in message:
            refusal.check(f"{path}.{name}", message[name])
    unknown.report_others(message, MESSAGE_FIELDS, "messages[]")
    for name in ("name", "tool_call_id"):
        _expect_text(message.get(name, ""), f"{path}.{name}")
    if message["role"] == "tool":
        _expect_text(message.get("tool_call_id"), f"{path}.tool_call_id")
    _check_tool_calls(message, path, unknown)
    _check_content(message, path, unknown)
    return message


def _check_content(message: dict[str, Any], path: str, unknown: UnknownFields) -> None:
    content = message.setdefault("content", None)
    if isinstance(content, list) and content:
        for i, part in enumerate(content):
            _check_part(part, f"{path}.content[{i}]", unknown)
    elif content is None and message.get("tool_calls"):
        pass  # an assistant that only called tools
    elif not isinstance(content, str):
        raise wrong(f"{path}.content", content, "a string or a list of at least one part")


def _check_part(part: Any, path: str, unknown: UnknownFields) -> None:
    if not isinstance(part, dict):
        raise wrong(path, part, 'an object such as {"type": "text", "text": "..."}')
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in PART_TEXTS:
        raise wrong(f"{path}.type", kind, '"text"; this server reads text only')
    unknown.report_others(part, PART_FIELDS, "messages[].content[]")
    _expect_text(part.get(PART_TEXTS[kind]), f"{path}.{PART_TEXTS[kind]}")


def _check_tool_calls(message: dict[str, Any], path: str, unknown: UnknownFields) -> None:
    calls = message.get("tool_calls", [])
    if not isinstance(calls, list):
        raise wrong(f"{path}.tool_calls", calls, "a list of tool calls")
    if calls and message["role"] != "assistant":
        raise wrong(f"{path}.role", message["role"], '"assistant", since the message has tool_calls')
    for i, call in enumerate(calls):
        _check_tool_call(call, f"{path}.tool_calls[{i}]", unknown)
    if not calls:
        message.pop("tool_calls", None)  # templates ask whether there is such a field


def _check_tool_call(call: Any, path: str, unknown: UnknownFields) -> None:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise wrong(path, call, 'an object such as {"id": "...", "type": "function", "function": {...}}')
    if call.get("type") not in (None, "function"):
        raise wrong(f"{path}.type", call["type"], '"function"')
    if call.get("id") is not None:
        _expect_text(call["id"], f"{path}.id")
    unknown.report_others(call, _CALL_FIELDS, "messages[].tool_calls[]")
    unknown.report_others(function, _CALLED_FIELDS, "messages[].tool_calls[].function")
    for name in ("name", "arguments"):
        _expect_text(function.get(name), f"{path}.function.{name}")


def _expect_text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise wrong(path, value, "a string")
