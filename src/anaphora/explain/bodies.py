"""Request bodies in one form, whatever API they are for: messages, tools, settings, or a raw prompt.

Pure: checks no more than it needs, and renders nothing.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from anaphora.errors import InvalidRequestError
from anaphora.explain.body_shapes import check_fields, check_messages, check_tools
from anaphora.explain.request_shapes import (
    Chat,
    MessagePlace,
    is_anthropic,
    objects,
    read_anthropic,
    read_responses,
    text_paths,
    without_hints,
)
from anaphora.ids import TokenId

SETTINGS = (
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "thinking",
    "verbosity",
    "text",
    "output_config",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
)
"""Fields that a chat template may render, besides messages, tools and the template's own arguments."""

TEMPLATE_ARGUMENTS = "chat_template_kwargs"
_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
SYSTEM_ROLES = frozenset({"system", "developer"})


class Part(NamedTuple):
    """One text of a message and its path."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ChatBody:
    """What a request asks to have rendered.

    `messages` are in the form of OpenAI's chat completions; `places[i]` is where the i-th stands in the body as
    it was sent, if that has another form. `prompt` is a raw prompt, text or token ids, in place of messages.
    `source` is the body as sent.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | tuple[TokenId, ...] | None = None
    places: tuple[MessagePlace, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def template_names(self) -> dict[str, Any]:
        """The variables that these settings are to a chat template."""
        names = {name: value for name, value in self.settings.items() if name != TEMPLATE_ARGUMENTS}
        for name, value in _named_by_responses(names).items():
            names.setdefault(name, value)
        return {**names, **(self.settings.get(TEMPLATE_ARGUMENTS) or {})}

    def parts(self, index: int) -> list[Part]:
        """Return the texts of a message: its content, or each text of a list."""
        content = self.messages[index].get("content")
        if index < len(self.places):
            paths = self.places[index].texts
        else:
            paths = text_paths(content, f"messages[{index}].content")
        texts = _texts(content)
        more = [f"{self.path(index)}.content[{i}]" for i in range(len(paths), len(texts))]
        return [Part(path, text) for path, text in zip([*paths, *more], texts, strict=False)]

    def path(self, index: int) -> str:
        """Return the path of a message in the body as it was sent."""
        return self.places[index].path if index < len(self.places) else f"messages[{index}]"

    def translated(self, path: str) -> str:
        """Return the path in the body as it was sent for one that counts `messages` and `tools`."""
        if match := re.match(r"messages\[(\d+)\]", path):
            index = int(match[1])
            return _translated(self.places[index], path[match.end() :]) if index < len(self.places) else path
        if match := re.match(r"(tools\[(\d+)\])\.function", path):
            tool = at_path(self.source, f".tools[{match[2]}]")
            rest = path[match.end() :]
            if isinstance(tool, Mapping) and "function" not in tool:
                if "input_schema" in tool and rest.startswith(".parameters"):
                    rest = ".input_schema" + rest.removeprefix(".parameters")
                return match[1] + rest
        return path

    def is_system(self, index: int) -> bool:
        """Whether a message speaks for the application."""
        return self.messages[index].get("role") in SYSTEM_ROLES

    def with_part(self, index: int, part: int, text: str) -> "ChatBody":
        """Return the body with another text in one place."""
        message = dict(self.messages[index])
        content = message.get("content")
        if isinstance(content, list):
            item = content[part]
            kind = item.get("type", "text") if isinstance(item, Mapping) else "text"
            new_item = {**item, _TEXT_FIELDS.get(kind, "text"): text} if isinstance(item, Mapping) else text
            message["content"] = [*content[:part], new_item, *content[part + 1 :]]
        else:
            message["content"] = text
        return self.with_messages([*self.messages[:index], message, *self.messages[index + 1 :]])

    def with_messages(self, messages: Iterable[Mapping[str, Any]]) -> "ChatBody":
        """Return the body with other messages."""
        return replace(self, messages=tuple(messages))


def read_body(body: Any) -> ChatBody:
    """Return a body in one form; raises InvalidRequestError for what is no request."""
    if not isinstance(body, Mapping):
        raise InvalidRequestError("the request is not a JSON object")
    check_fields(body)
    chat = _read(body)
    check_messages(chat.messages, "input" if "input" in body else "messages")
    check_tools(chat.tools)
    return chat


def _read(body: Mapping[str, Any]) -> ChatBody:
    if "messages" in body:
        return _from_chat(read_anthropic(body), body) if is_anthropic(body) else _read_chat(body)
    if "input" in body or "instructions" in body:
        return _from_chat(read_responses(body), body)
    if "prompt" in body:
        return ChatBody(prompt=_read_prompt(body["prompt"]), source=body)
    raise InvalidRequestError("the request has neither messages nor prompt, so there is nothing to explain")


def bypass_of(body: Mapping[str, Any]) -> str | None:
    """Return the field by which a request forbids the cache to answer it, or None."""
    if body.get("prompt_logprobs") is not None and body["prompt_logprobs"] is not False:
        return "prompt_logprobs"
    if body.get("echo") and body.get("logprobs") is not None:
        return "echo"
    for name in ("skip_reading_prefix_cache", "skip_reading_cache", "no_cache"):
        if body.get(name):
            return name
    for name in ("cache_prompt", "use_cache"):
        if body.get(name) is False:
            return name
    return None


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


def canonical(value: Any) -> str:
    """Return one text for all JSON texts of one value: key order, separators, escapes and 1.0 do not count."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def message_key(message: Mapping[str, Any]) -> str:
    """Return what must be equal for two messages to be the same: all but the hints for caches."""
    fields = {
        name: value
        for name, value in without_hints(message).items()
        if name != "content" and value is not None
    }
    return canonical({**fields, "content": _texts(message.get("content"))})


def tool_key(tool: Any) -> str:
    """Return what must be equal for two tools to be the same."""
    return canonical(without_hints(tool))


def tool_name(tool: Any) -> str:
    """Return a tool's name, or an empty text."""
    if not isinstance(tool, Mapping):
        return ""
    function = tool.get("function")
    owner = function if isinstance(function, Mapping) else tool
    return str(owner.get("name", ""))


def difference_path(old: Any, new: Any, path: str, *, ordered: bool = True) -> str | None:
    """Return the path of the first place where two JSON values are written differently, in the order of the new one.

    With `ordered`, other orders of keys and other kinds of numbers count. None where nothing differs.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _difference_of_objects(old, new, path, ordered)
    if isinstance(old, list | tuple) and isinstance(new, list | tuple):
        for index, (a, b) in enumerate(zip(old, new, strict=False)):
            if found := difference_path(a, b, f"{path}[{index}]", ordered=ordered):
                return found
        return path if len(old) != len(new) else None
    is_same = (old == new) if not ordered else (type(old) is type(new) and old == new)
    return None if is_same else path


def at_path(value: Any, path: str) -> Any:
    """Return what stands at a path such as `tools[2].function.name` in the value of its first word, or None."""
    for index, name in re.findall(r"\[(\d+)\]|\.([^.\[]+)", path):
        if index and isinstance(value, list | tuple) and int(index) < len(value):
            value = value[int(index)]
        elif name and isinstance(value, Mapping):
            value = value.get(name)
        else:
            return None
    return value


def _difference_of_objects(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, ordered: bool
) -> str | None:
    for (old_key, old_item), (new_key, new_item) in zip(old.items(), new.items(), strict=False):
        if ordered and old_key != new_key:
            return path
        if new_key in old and (
            found := difference_path(
                old_item if ordered else old[new_key], new_item, f"{path}.{new_key}", ordered=ordered
            )
        ):
            return found
    return path if set(old) != set(new) else None


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def _read_prompt(prompt: Any) -> str | tuple[TokenId, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(item) is int for item in prompt):
        return tuple(TokenId(item) for item in prompt)
    raise InvalidRequestError(
        "prompt is neither a text nor a list of token ids; a list of several prompts cannot be explained at once",
        param="prompt",
    )


def settings_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a body that a template may render."""
    names = (*SETTINGS, TEMPLATE_ARGUMENTS)
    return {name: body[name] for name in names if body.get(name) is not None}


def _read_chat(body: Mapping[str, Any]) -> ChatBody:
    messages = objects(body["messages"], "messages")
    if not messages:
        raise InvalidRequestError("messages is an empty list; send at least one message", param="messages")
    return ChatBody(
        tuple(map(without_hints, messages)),
        objects(body.get("tools"), "tools"),
        settings_of(body),
        source=body,
    )


def _from_chat(chat: Chat, body: Mapping[str, Any]) -> ChatBody:
    return ChatBody(chat.messages, chat.tools, settings_of(body), places=chat.places, source=body)


def _named_by_responses(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the responses API keeps inside other fields, under the names that templates know."""
    names: dict[str, Any] = {}
    reasoning, text = settings.get("reasoning"), settings.get("text")
    if isinstance(reasoning, Mapping) and "effort" in reasoning:
        names["reasoning_effort"] = reasoning["effort"]
    if not isinstance(text, Mapping):
        return names
    if "verbosity" in text:
        names["verbosity"] = text["verbosity"]
    if isinstance(text.get("format"), Mapping):
        kind = text["format"].get("type")
        schema = {name: value for name, value in text["format"].items() if name != "type"}
        names["response_format"] = {"type": kind, **({kind: schema} if schema else {})}
    return names


def _translated(place: MessagePlace, rest: str) -> str:
    """The path in the body as sent for what follows `messages[i]` in one that counts messages."""
    if match := re.match(r"\.tool_calls\[(\d+)\](?:\.function\b)?", rest):
        number = int(match[1])
        call = place.calls[number] if number < len(place.calls) else place.path
        behind = rest[match.end() :]
        return call + (behind.replace(".arguments", f".{place.arguments}", 1))
    if match := re.match(r"\.content(?:\[(\d+)\])?", rest):
        number = int(match[1] or 0)
        if number < len(place.texts) and (match[1] or len(place.texts) == 1):
            return place.texts[number] + rest[match.end() :]
        return place.path
    return place.path + rest


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [_part_text(item) for item in content] if isinstance(content, Sequence) else []


def _part_text(item: Any) -> str:
    if isinstance(item, str):
        return item
    if not isinstance(item, Mapping):
        return canonical(item)
    text = item.get(_TEXT_FIELDS.get(str(item.get("type")), "text"))
    return text if isinstance(text, str) else canonical(item)
