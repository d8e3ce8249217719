"""Two requests side by side: where their tokens, their texts and their bodies part, and which field did it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from anaphora.errors import RequestError
from anaphora.explain.alignment import Run, align, common_length, gaps_between
from anaphora.explain.bodies import (
    SETTINGS,
    SYSTEM_ROLES,
    TEMPLATE_ARGUMENTS,
    ChatBody,
    Part,
    canonical,
    message_key,
    tool_key,
    tool_name,
)
from anaphora.explain.records import PromptRecord, Render, RenderedPrompt

MIN_CONTENT_TOKENS = 4
"""A run with fewer tokens of the caller is only the template's markup, which stands in every prompt."""

_NESTED_SETTINGS = frozenset({TEMPLATE_ARGUMENTS, "reasoning", "text", "thinking", "output_config"})
"""Settings that hold several, each with a name of its own."""

_MESSAGE_PATH = re.compile(r"(messages)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class TextPair:
    """The two texts of one part, and where they part: the caller's own words at the divergence.

    `index` and `part` count messages and their parts; `role` is the message's, or None outside messages.
    """

    path: str
    old: str
    new: str
    index: int = -1
    part: int = 0
    role: str | None = None

    @property
    def offset(self) -> int:
        """The first character that differs."""
        return common_length(self.old, self.new)

    @property
    def is_system(self) -> bool:
        """Whether the application speaks here, not a user."""
        return self.role in SYSTEM_ROLES


class Region(NamedTuple):
    """What a place in a rendered prompt belongs to: a message by its number, or a part of the template."""

    name: str
    message: int | None = None


class Comparison:
    """One prompt against an earlier one. Everything is computed when first asked for, once."""

    def __init__(self, old: PromptRecord, new: PromptRecord, render: Render | None = None) -> None:
        self.old, self.new = old, new
        self._render = render
        self.old_ids, self.new_ids = tuple(old.token_ids), tuple(new.token_ids)

    # Tokens.

    @cached_property
    def num_matched(self) -> int:
        """D: the length of the longest common token prefix."""
        return common_length(self.old_ids, self.new_ids)

    @property
    def has_diverged(self) -> bool:
        """Whether each of the two goes on with a token that the other does not have."""
        return self.num_matched < min(len(self.old_ids), len(self.new_ids))

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The stretches behind the divergence that both have; none if all they share there is markup."""
        runs = align(self.old_ids, self.new_ids, self.num_matched)
        counted = [run for run in runs if self._num_content_tokens(run) >= MIN_CONTENT_TOKENS]
        if counted:
            return tuple(run for run in runs if run.length >= MIN_CONTENT_TOKENS or run in counted)
        return tuple(runs) if runs and self._is_small_change(runs[0]) else ()

    def _num_content_tokens(self, run: Run) -> int:
        spans = [span for span in self.new.prompt.spans if "content" in span.path]
        if not spans:
            return run.length - self._num_tail_tokens(run)
        start, end = run.new_start, run.new_start + run.length
        return sum(max(0, min(end, span.token_end) - max(start, span.token_start)) for span in spans)

    def _num_tail_tokens(self, run: Run) -> int:
        return 0 if run.old_start + run.length < len(self.old_ids) else min(run.length, MIN_CONTENT_TOKENS)

    def _is_small_change(self, first: Run) -> bool:
        """Whether a short stretch changed at the end of a part, so that only markup follows it."""
        pair = self.pair
        is_end = first.old_start + first.length == len(self.old_ids)
        size = max(first.old_start, first.new_start) - self.num_matched
        return pair is not None and size <= 40 and pair.offset >= 8 and not is_end

    @property
    def num_behind(self) -> int:
        """How many tokens behind the divergence both have."""
        return sum(run.length for run in self.runs)

    # Text.

    @cached_property
    def num_common_chars(self) -> int:
        """The length of the longest common prefix of the rendered texts."""
        return common_length(self.old.prompt.text, self.new.prompt.text)

    @cached_property
    def is_retokenised(self) -> bool:
        """Whether the same characters were cut into other tokens, before any character differs."""
        old, new, place = self.old.prompt, self.new.prompt, self.num_matched
        if not self.has_diverged or old.char_starts is None or new.char_starts is None:
            return False
        if old.char_of(place) != new.char_of(place) or old.char_of(place) >= self.num_common_chars:
            return False
        if self.num_common_chars in {len(old.text), len(new.text)}:
            return True  # a token lies across the end of the shorter text
        # Words are cut independently of one another, so a difference two words on cannot be the reason.
        end = max(old.char_of(place + 1), new.char_of(place + 1))
        return re.search(r"\w\W+\w\W", new.text[end : self.num_common_chars]) is not None

    @property
    def is_seam(self) -> bool:
        """Whether only the token in which the earlier text ends was cut otherwise, as more text follows it now."""
        is_prefix = self.num_common_chars == len(self.old.prompt.text)
        return self.is_retokenised and is_prefix and self.num_matched >= len(self.old_ids) - 1

    @property
    def char_offset(self) -> int:
        """Where the texts part in the new prompt, or where the tokens do while the texts are equal."""
        if self.is_retokenised or self.num_common_chars == len(self.new.prompt.text):
            return self.new.prompt.char_of(self.num_matched)
        return self.num_common_chars

    def old_region(self) -> Region:
        """What the divergence belongs to in the earlier prompt."""
        return _region(self.old.prompt, min(self.num_common_chars, len(self.old.prompt.text) - 1))

    def new_region(self) -> Region:
        """What the divergence belongs to in this prompt."""
        return _region(self.new.prompt, min(self.char_offset, len(self.new.prompt.text) - 1))

    # Bodies.

    @cached_property
    def old_keys(self) -> list[str]:
        """What identifies each message of the earlier request."""
        return [message_key(message) for message in self.old.body.messages]

    @cached_property
    def new_keys(self) -> list[str]:
        """What identifies each message of this request."""
        return [message_key(message) for message in self.new.body.messages]

    @cached_property
    def num_equal_messages(self) -> int:
        """How many leading messages are the same, or differ in nothing that the template shows."""
        equal = common_length(self.old_keys, self.new_keys)
        places = [
            _message_at(region, len(keys))
            for region, keys in ((self.old_region(), self.old_keys), (self.new_region(), self.new_keys))
        ]
        shown = min(place for place in places if place is not None) if None not in places else 0
        return max(equal, shown) if self.has_diverged else equal

    @cached_property
    def pair(self) -> TextPair | None:
        """The two texts of the first message that differs, or of the raw prompts; None if one request ends there."""
        if self.new.body.prompt is not None or self.old.body.prompt is not None:
            return TextPair("prompt", self.old.prompt.text, self.new.prompt.text)
        index = self.num_equal_messages
        if index >= min(len(self.old_keys), len(self.new_keys)):
            return None
        return _message_pair(self.old.body, self.new.body, index)

    @cached_property
    def tools_changed_text(self) -> bool:
        """Whether the tools are why the texts part here: with the earlier ones they part later, or not at all."""
        if self.old.body.tools == self.new.body.tools and _same_bytes(
            self.old.body.tools, self.new.body.tools
        ):
            return False
        return self._parts_later_with(replace(self.new.body, tools=self.old.body.tools))

    @cached_property
    def changed_settings(self) -> tuple[str, ...]:
        """The paths of the settings that are why the texts part here."""
        paths = []
        for name in (*SETTINGS, TEMPLATE_ARGUMENTS):
            old, new = self.old.body.settings.get(name), self.new.body.settings.get(name)
            if canonical(old) == canonical(new):
                continue
            settings = {k: v for k, v in self.new.body.settings.items() if k != name}
            if old is not None:
                settings[name] = old
            if self._parts_later_with(replace(self.new.body, settings=settings)):
                paths.append(_setting_path(name, old, new))
        return tuple(paths)

    @cached_property
    def rewritten_settings(self) -> tuple[str, ...]:
        """The settings that hold the same in other bytes, and are why the texts part here."""
        return tuple(
            name
            for name in (*SETTINGS, TEMPLATE_ARGUMENTS)
            if canonical(old := self.old.body.settings.get(name))
            == canonical(self.new.body.settings.get(name))
            and not _same_bytes(old, self.new.body.settings.get(name))
            and self._parts_later_with(replace(self.new.body, settings={**self.new.body.settings, name: old}))
        )

    def _parts_later_with(self, body: ChatBody) -> bool:
        if self.num_common_chars == min(len(self.old.prompt.text), len(self.new.prompt.text)):
            return False  # the texts do not part
        prompt = self.render(body)
        if prompt is None:
            return False
        length = common_length(self.old.prompt.text, prompt.text)
        return length > self.num_common_chars or length == len(self.old.prompt.text)

    @cached_property
    def have_tools_in_common(self) -> bool:
        """Whether some tool is in both requests, by its name."""
        names = {tool_name(tool) for tool in self.old.body.tools}
        return any(tool_name(tool) in names for tool in self.new.body.tools)

    @cached_property
    def tool_keys(self) -> tuple[list[str], list[str]]:
        """What identifies each tool of the earlier and of this request."""
        return [tool_key(t) for t in self.old.body.tools], [tool_key(t) for t in self.new.body.tools]

    @cached_property
    def is_version(self) -> bool:
        """Whether the two texts that part are versions of one another, not two texts with a like beginning."""
        return self.pair is not None and are_versions(self.pair.old, self.pair.new)

    def later_messages_align(self) -> bool:
        """Whether the requests have messages in common behind the first that differs."""
        later = set(self.old_keys[self.num_equal_messages + 1 :])
        return any(key in later for key in self.new_keys[self.num_equal_messages + 1 :])

    def render(self, body: ChatBody) -> RenderedPrompt | None:
        """Return an edited body as the model would get it; None when that cannot be done."""
        if self._render is None:
            return None
        try:
            return self._render(body)
        except RequestError:
            return None


def are_versions(old: str, new: str) -> bool:
    """Whether most of the shorter of two texts stands in the longer one, in the same order."""
    shorter, same = min(len(old), len(new)), common_length(old, new)
    if same * 2 > shorter:
        return True
    a, b = re.findall(r"\w+|\W", old[same:]), re.findall(r"\w+|\W", new[same:])
    runs = align(a, b, 0, (16, 5))
    same += sum(len(piece) for run in runs for piece in a[run.old_start : run.old_start + run.length])
    return shorter > 0 and same * 2 > shorter


def changed_ranges(old: str, new: str) -> list[tuple[int, int, int, int]]:
    """Return the stretches of two texts that differ, by characters, at the edges of words."""
    a, b = re.findall(r"\w+|\W", old), re.findall(r"\w+|\W", new)
    start = common_length(a, b)
    gaps = gaps_between(align(a, b, start, (16, 8, 3)), start, len(a), len(b))
    a_ends, b_ends = _ends(a), _ends(b)
    return [
        (a_ends[gap.old_start], a_ends[gap.old_end], b_ends[gap.new_start], b_ends[gap.new_end])
        for gap in gaps
        if gap.old_start < gap.old_end or gap.new_start < gap.new_end
    ]


def _ends(words: list[str]) -> list[int]:
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    return ends


def _same_bytes(a: Any, b: Any) -> bool:
    return repr(a) == repr(b)


def _setting_path(name: str, old: Any, new: Any) -> str:
    if name not in _NESTED_SETTINGS:
        return name
    old = old if isinstance(old, Mapping) else {}
    new = new if isinstance(new, Mapping) else {}
    changed = [key for key in {**new, **old} if old.get(key) != new.get(key)]
    return f"{name}.{changed[0]}" if changed else name


def _message_pair(old: ChatBody, new: ChatBody, index: int) -> TextPair:
    a, b = old.parts(index), new.parts(index)
    old_role, new_role = old.messages[index].get("role"), new.messages[index].get("role")
    role = str(new_role) if old_role == new_role else None
    for part, (x, y) in enumerate(zip(a, b, strict=False)):
        if x.text != y.text:
            return TextPair(y.path, x.text, y.text, index, part, role)
    if len(a) != len(b):
        place = min(len(a), len(b))
        x, y = (c[place] if place < len(c) else Part("", "") for c in (a, b))
        return TextPair(y.path or x.path, x.text, y.text, index, place, role)
    return _call_pair(old.messages[index], new.messages[index], new, index, role)


def _call_pair(
    old: Mapping[str, Any], new: Mapping[str, Any], body: ChatBody, index: int, role: str | None
) -> TextPair:
    path = f"messages[{index}]"
    calls = zip(old.get("tool_calls") or (), new.get("tool_calls") or (), strict=False)
    for number, (a, b) in enumerate(calls):
        place = f"{path}.tool_calls[{number}]"
        x, y = (str((call.get("function") or {}).get("arguments", "")) for call in (a, b))
        if x != y:
            return TextPair(body.translated(f"{place}.function.arguments"), x, y, index, -1, role)
        if canonical(a) != canonical(b):
            return TextPair(body.translated(place), canonical(a), canonical(b), index, -1, role)
    names = [name for name in {**new, **old} if canonical(old.get(name)) != canonical(new.get(name))]
    name = names[0] if names else "content"
    place = body.translated(f"{path}.{name}")
    return TextPair(place, str(old.get(name) or ""), str(new.get(name) or ""), index, -1, role)


def _message_at(region: Region, num_messages: int) -> int | None:
    return num_messages if region.name == "generation-prompt" else region.message


def _region(prompt: RenderedPrompt, char_offset: int) -> Region:
    span = prompt.span_at(char_offset)
    if span is None:
        return Region("")
    match = _MESSAGE_PATH.match(span.path)
    return Region("messages", int(match[2])) if match else Region(span.path.partition("[")[0])
