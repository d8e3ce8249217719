"""Messages → the text a model was trained on, with the place of every part.

Knows nothing of tokens or HTTP.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2

from anaphora.errors import ConfigError, InvalidRequestError, ModelError
from anaphora.models.chat_calls import wire_arguments, with_arguments
from anaphora.models.chat_markup import Turn
from anaphora.models.chat_objects import Tools, marked_to_json
from anaphora.models.chat_omissions import check_nothing_left_out
from anaphora.models.chat_parts import PartFinder
from anaphora.models.spans import CharSpan
from anaphora.models.template_sandbox import compile_template
from anaphora.models.tokenizer import check_unicode

TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The types of content parts that are text, and the field that holds it."""

# Besides jinja's own errors: what running a template raises when messages are not as it expects them.
_TEMPLATE_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_PROBE = "Qz7probe"


@dataclass(frozen=True, slots=True)
class RenderedChat:
    """The text of a prompt, and its parts in the order they stand in it, a part before those inside it.

    `arguments` are those of tool calls as they were on the wire, by their paths: the template wrote them anew.
    """

    text: str
    parts: tuple[CharSpan, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)


class ChatTemplate:
    """A compiled chat template, rendered as Hugging Face's `apply_chat_template` does.

    `special_tokens` are names the template may use, such as `bos_token`. `now` is what `strftime_now` tells
    the template. `source` is its text.
    Raises ModelError, or ConfigError from `from_file`, for a source that is no template.
    """

    def __init__(
        self,
        source: str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        try:
            self._template = compile_template(source)
            self._marking_template = compile_template(source, marked_to_json)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"the model's chat template is wrong in line {error.lineno}: {error.message}"
            ) from error
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._now = now
        self._knows_developer = "developer" in source
        self._takes_only_lists = not self._shows(_PROBE) and self._shows(_text_parts([_PROBE]))
        self._takes_text_arguments = not self._shows_arguments({_PROBE: 1}) and self._shows_arguments(
            f'{{"{_PROBE}": 1}}'
        )
        self._parts = PartFinder(
            lambda turns, has_prompt: self._run(self._messages(turns), {"add_generation_prompt": has_prompt})
        )

    @classmethod
    def from_file(cls, path: Path, *, special_tokens: Mapping[str, str] | None = None) -> "ChatTemplate":
        """Read the template of `--chat-template`; the error names the file, and the line where it is wrong."""
        try:
            return cls(path.read_text("utf-8"), special_tokens=special_tokens)
        except OSError as error:
            raise ConfigError(f"--chat-template {path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"--chat-template {path} is not UTF-8 text") from error
        except ModelError as error:
            message = str(error).replace("the model's chat template", f"--chat-template {path}")
            raise ConfigError(message) from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Tools = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedChat:
        """Return the prompt for a conversation.

        The text parts of a content list are joined with nothing between them, unless the template takes
        lists only. A `developer` message becomes a `system` message for templates that do not know that role.
        The arguments of tool calls become objects, unless the template takes strings only.
        Raises InvalidRequestError naming the part that is no text or no Unicode or the arguments that are no
        JSON, saying what the template itself has against the messages, or that it leaves out tools, calls or
        results.
        """
        turns = [self._turn(index, message) for index, message in enumerate(messages)]
        names = self._names(add_generation_prompt, template_kwargs)

        def render(turns: Sequence[Turn], tools: Tools, template: jinja2.Template = self._template) -> str:
            return self._run(self._messages(turns), {**names, "tools": tools}, template)

        text = render(turns, tools)
        parts = self._parts.find(
            text,
            turns,
            tools,
            lambda masked: render(masked, tools),
            lambda marked, marked_tools: render(marked, marked_tools, self._marking_template),
            has_prompt=add_generation_prompt,
        )
        check_nothing_left_out(text, {part.path for part in parts}, turns, tools, render)
        return RenderedChat(text, parts, dict(wire_arguments(messages)))

    def render_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Tools = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text alone, several times faster. What the template leaves out is not looked for.

        For conversations like one that `render` took; raises InvalidRequestError otherwise as it does.
        """
        turns = [self._turn(index, message) for index, message in enumerate(messages)]
        names = self._names(add_generation_prompt, template_kwargs)
        return self._run(self._messages(turns), {**names, "tools": tools})

    def _names(
        self, add_generation_prompt: bool, template_kwargs: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return {
            **(template_kwargs or {}),
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": self._now().strftime,  # one moment for all renderings
        }

    def _turn(self, index: int, message: Mapping[str, Any]) -> Turn:
        path = f"messages[{index}]"
        fields = {name: value for name, value in message.items() if name != "content"}
        if fields.get("role") == "developer" and not self._knows_developer:
            fields["role"] = "system"
        if calls := fields.get("tool_calls"):
            fields["tool_calls"] = [
                with_arguments(call, f"{path}.tool_calls[{i}]", as_text=self._takes_text_arguments)
                for i, call in enumerate(calls)
            ]
        return Turn(str(fields.get("role")), fields, *_texts(message.get("content"), f"{path}.content"))

    def _messages(self, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        return [{**turn.fields, "content": self._content(turn.texts)} for turn in turns]

    def _content(self, texts: Sequence[str]) -> str | list[dict[str, str]]:
        return _text_parts(texts) if self._takes_only_lists else "".join(texts)

    def _shows(self, content: Any) -> bool:
        """Whether a content of this form appears in the rendered text."""
        try:
            return _PROBE in self._run([{"role": "user", "content": content}], {})
        except InvalidRequestError:
            return False

    def _shows_arguments(self, arguments: Any) -> bool:
        """Whether the arguments of a call appear in the rendered text, not escaped and not as Python prints them."""
        call = {"id": "Qz7call00", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": self._content([""]), "tool_calls": [call]},
        ]
        try:
            text = self._run(messages, {})
        except InvalidRequestError:
            return False
        return _PROBE in text and f"'{_PROBE}'" not in text and f'\\"{_PROBE}' not in text

    def _run(
        self,
        messages: list[dict[str, Any]],
        names: Mapping[str, Any],
        template: jinja2.Template | None = None,
    ) -> str:
        usual = {
            "documents": None,
            "tools": None,
            "strftime_now": self._now().strftime,
            **self._special_tokens,
        }
        try:
            return (template or self._template).render({**usual, **names, "messages": messages})
        except _TEMPLATE_FAILURES as error:
            raise InvalidRequestError(
                f"the chat template refuses these messages: {error}", param="messages"
            ) from error


def _text_parts(texts: Sequence[str]) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def _texts(content: Any, path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts of a content and the path of each; None, as beside tool calls, is an empty text."""
    if isinstance(content, list):
        paths = tuple(f"{path}[{index}]" for index in range(len(content)))
        texts = tuple(_part_text(part, part_path) for part, part_path in zip(content, paths, strict=True))
    elif content is None or isinstance(content, str):
        paths, texts = (path,), (content or "",)
    else:
        kind = type(content).__name__
        raise InvalidRequestError(
            f"{path} is of type {kind}, but must be a string or a list of parts", param=path
        )
    for text, text_path in zip(texts, paths, strict=True):
        check_unicode(text, text_path, param=text_path)
    return texts, paths


def _part_text(part: Any, path: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
    if not isinstance(kind, str) or kind not in TEXT_FIELDS:
        raise InvalidRequestError(
            f"{path} is a part of type {kind!r}, but this model reads text only; send parts of type 'text'",
            param=path,
        )
    text = part.get(TEXT_FIELDS[kind])
    if not isinstance(text, str):
        raise InvalidRequestError(f"{path}.{TEXT_FIELDS[kind]} must be a string", param=path)
    return text
