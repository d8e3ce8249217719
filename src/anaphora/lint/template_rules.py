"""L7 and L8: what the chat template itself does: it rewrites the past, or it reads the clock."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anaphora.errors import RequestError
from anaphora.explain.alignment import common_length
from anaphora.explain.bodies import ChatBody
from anaphora.explain.comparison import Comparison
from anaphora.explain.records import Render
from anaphora.explain.render_kinds import template
from anaphora.lint.log import Log
from anaphora.lint.suspect import Severity, Suspect, against

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_tide",
        "description": "The tide at a harbour.",
        "parameters": {
            "type": "object",
            "properties": {"harbour": {"type": "string"}},
            "required": ["harbour"],
        },
    },
}
_CALL = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "get_tide", "arguments": '{"harbour": "north"}'},
}
_ASKED = [
    {"role": "system", "content": "You look after a harbour."},
    {"role": "user", "content": "When does the tide turn?"},
]
_AGAIN = {"role": "user", "content": "And tomorrow?"}
_LAST = [{"role": "assistant", "content": "An hour later."}, {"role": "user", "content": "Thank you."}]
_ANSWER = re.compile(r"[\w ]+\.$")
_THOUGHT = "The table says seven."


def _talk(reply: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*_ASKED, reply, _AGAIN, *_LAST]


DIALOGUES: Mapping[str, tuple[list[Mapping[str, Any]], bool]] = {
    "plain": (_talk({"role": "assistant", "content": "At seven."}), False),
    "thinking in the content": (
        _talk({"role": "assistant", "content": f"<think>\n{_THOUGHT}\n</think>\n\nAt seven."}),
        False,
    ),
    "thinking in its own field": (
        _talk({"role": "assistant", "content": "At seven.", "reasoning_content": _THOUGHT}),
        False,
    ),
    "tools": (
        [
            *_ASKED,
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call00001", "name": "get_tide", "content": "7:00"},
            {"role": "assistant", "content": "At seven."},
            _AGAIN,
            *_LAST,
        ],
        True,
    ),
}
"""The canned dialogues, and whether tools are declared."""


@dataclass(frozen=True, slots=True)
class Monotony:
    """How one dialogue fares: `is_kept` None where the template refuses it; else where the texts part."""

    dialogue: str
    is_kept: bool | None
    old: str = ""
    new: str = ""


def check_template(render: Render) -> list[Monotony]:
    """Render each canned dialogue turn by turn: each text must begin with the one before.

    A template that refuses it may still take it without its system message.
    """
    found = []
    for name, (messages, has_tools) in DIALOGUES.items():
        whole = _check(name, messages, has_tools, render)
        found.append(_check(name, messages[1:], has_tools, render) if whole.is_kept is None else whole)
    return found


def _check(name: str, messages: list[Mapping[str, Any]], has_tools: bool, render: Render) -> Monotony:
    tools = (_TOOL,) if has_tools else ()
    earlier = None
    for end in range(messages.index(_ASKED[1]) + 1, len(messages) + 1):
        try:
            text = _rendered(messages[:end], tools, render)
        except RequestError:
            return Monotony(name, None)
        if earlier is not None and not text.startswith(earlier):
            place = common_length(earlier, text)
            start = max(0, place - 16)
            return Monotony(name, False, earlier[start : place + 50], text[start : place + 50])
        earlier = text
    return Monotony(name, True)


def _rendered(messages: list[Mapping[str, Any]], tools: tuple[Mapping[str, Any], ...], render: Render) -> str:
    """A request as it is sent; or a reply as it stands when it is the newest turn, without what closes it."""
    reply = messages[-1] if messages[-1]["role"] == "assistant" else None
    settings = {} if reply is None else {"add_generation_prompt": False}
    text = render(ChatBody(tuple(messages), tools, settings)).text
    words = None if reply is None or reply.get("tool_calls") else _ANSWER.search(str(reply["content"]))
    place = text.rfind(words[0]) if words else -1
    return text if place < 0 or words is None else text[: place + len(words[0])]


def rewritten_history(log: Log, render: Render) -> Iterator[Suspect]:
    """L7: a prompt is no prefix of the next one, although the caller only added messages."""
    broken = [found for found in check_template(render) if found.is_kept is False]
    indices, lost, evidence = _rewritten_in(log)
    if not broken and not indices:
        return
    words = ", ".join(found.dialogue for found in broken) or "a conversation of this log"
    shown = evidence or against(broken[0].old, broken[0].new)
    yield Suspect(
        rule="L7",
        code="template",
        path="chat template",
        evidence=f"not a prefix of the next turn with: {words}; {shown}",
        fix="Use a template that keeps the history as it was sent (preserve_thinking), or --chat-template.",
        indices=indices,
        lost=lost,
    )


def _rewritten_in(log: Log) -> tuple[tuple[int, ...], int, str]:
    indices, lost, evidence = [], 0, ""
    for index, near in enumerate(log.nearest):
        earlier = log.previous_turn[index]
        earlier = near.request if earlier is None and near is not None else earlier
        if earlier is None or not _has_same_fields(log.records[earlier].body, log.records[index].body):
            continue
        c = Comparison(log.records[earlier], log.records[index])
        finding = template(c)
        if finding is None or finding.path == "template-preamble":
            continue
        indices.append(index)
        evidence = evidence or against(finding.old or "", finding.new or "")
        fix = finding.fix() if finding.fix is not None else None
        if fix is not None and fix.common is not None:
            total = len(c.new_ids)
            lost += max(0, log.law.hit(fix.common[0], total) - log.law.hit(c.num_matched, total))
    return tuple(indices), lost, evidence


def _has_same_fields(old: ChatBody, new: ChatBody) -> bool:
    """Whether two bodies differ in their messages alone, down to the order of keys."""
    return (repr(old.tools), repr(old.settings)) == (repr(new.tools), repr(new.settings))


_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_CLOCK = re.compile(r"strftime_now\s*\(\s*(?:\"([^\"]*)\"|'([^']*)')?")
_FINE = re.compile(r"%[-#]?[HIMSsfXcTRr+p]")


def clock_in_template(source: str, num_requests: int) -> Iterator[Suspect]:
    """L8: the template writes today's date, or the time, into every prompt."""
    plain = _COMMENT.sub("", source)
    calls = [(m[0], m[1] or m[2] or "") for m in _CLOCK.finditer(plain)]
    if not calls and "date_string" not in plain:
        return
    is_fine = any(_FINE.search(form) for _, form in calls)
    severity: Severity = "high" if is_fine else "medium" if calls else "low"
    how_often = (
        "each time the clock moves on" if is_fine else "once a day" if calls else "when date_string differs"
    )
    yield Suspect(
        rule="L8",
        code="template",
        path="chat template",
        evidence=repr(calls[0][0] + ("" if not calls[0][1] else ")")) if calls else "'date_string'",
        fix=f"Everything behind the date is computed again {how_often}: fix the date with a template argument "
        "(date_string) or --chat-template.",
        indices=tuple(range(num_requests)),
        severity=severity,
    )
