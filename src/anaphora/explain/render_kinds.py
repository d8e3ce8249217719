"""Kinds by how a request was rendered: the template rewrites the past, or the tokenizer cuts it otherwise."""

from typing import Any

from anaphora.explain.comparison import Comparison, Region
from anaphora.explain.finding import Finding, Fix

_SNIPPET_CHARS = 60


def template(c: Comparison) -> Finding | None:
    """K6: the caller sent the same, and the template wrote something else."""
    if not c.has_diverged or c.is_retokenised or c.tools_changed_text:
        return None
    if c.changed_settings or c.rewritten_settings:
        return None
    if c.new.body.prompt is not None or c.old.body.prompt is not None:
        return None
    old, new = c.old_region(), c.new_region()
    if not _is_templates_doing(c, old, new):
        return None
    place = c.num_common_chars
    if "template-preamble" in {old.name, new.name} and not (old.message or new.message):
        path = "template-preamble"
        advice = (
            "The template itself writes something that changes before your messages. "
            "Fix it with --chat-template or a template argument."
        )
    else:
        span = c.new.prompt.span_at(min(place, len(c.new.prompt.text) - 1))
        path = c.new.body.translated(span.path) if span else "messages"
        advice = (
            f"You sent the same turn, and the chat template rendered it differently ({path}) once it became history. "
            "Use preserve_thinking, or --stable-history."
        )
    return Finding(
        code="template",
        advice=advice,
        path=path,
        old=c.old.prompt.text[place : place + _SNIPPET_CHARS],
        new=c.new.prompt.text[place : place + _SNIPPET_CHARS],
        fix=lambda: _stable_render(c),
    )


def _is_templates_doing(c: Comparison, old: Region, new: Region) -> bool:
    equal = c.num_equal_messages
    num_old, num_new = len(c.old_keys), len(c.new_keys)
    at = [_place(old, num_old), _place(new, num_new)]
    if max(at) < equal:
        return True
    # One request goes on where the other asks for a reply: the reply's header is the template's in both.
    if equal == num_old == at[0] and num_new > num_old and at[1] == equal:
        return c.new.body.messages[equal].get("role") == "assistant" and _is_header_other(c)
    if equal == num_new == at[1] and num_old > num_new and at[0] == equal:
        return c.old.body.messages[equal].get("role") == "assistant" and _is_header_other(c)
    return False


def _place(region: Region, num_messages: int) -> int:
    """Return the message that holds a region: -1 before all messages, their number behind the last one."""
    if region.message is not None:
        return region.message
    return num_messages if region.name in {"generation-prompt", ""} else -1


def _is_header_other(c: Comparison) -> bool:
    """Whether the invitation to reply holds something that the same turn does not have as history."""
    return min(len(c.old.prompt.text), len(c.new.prompt.text)) > c.num_common_chars


def _stable_render(c: Comparison) -> Fix:
    num_same = c.num_behind + max(0, c.runs[0].old_start - c.num_matched) if c.runs else 0
    kept = c.num_matched + num_same if c.runs else len(c.old_ids)
    grown = (c.runs[0].old_start - c.runs[0].new_start) if c.runs else len(c.old_ids) - c.num_matched
    return Fix("keep the history as it was rendered", common=(kept, len(c.new_ids) + max(0, grown)))


def retokenised(c: Comparison) -> Finding | None:
    """K7: the same characters, cut into other tokens."""
    if not c.is_retokenised:
        return None
    old, new, start = c.old.prompt, c.new.prompt, c.num_matched
    span = new.span_at(min(new.char_of(start), len(new.text) - 1))
    path = c.new.body.translated(span.path) if span else "prompt" if c.new.body.prompt is not None else None
    return Finding(
        code="retokenised",
        advice="The same text was encoded to other tokens. Use --splice-generated-tokens, or send ids.",
        path=path,
        old=_split(c.old.prompt.char_of, old.text, start, len(c.old_ids)),
        new=_split(c.new.prompt.char_of, new.text, start, len(c.new_ids)),
        fix=lambda: _spliced(c),
    )


def _split(char_of: Any, text: str, start: int, end: int) -> str:
    pieces = [text[char_of(i) : char_of(i + 1)] for i in range(start, min(start + 4, end))]
    return "|".join(pieces)


def _spliced(c: Comparison) -> Fix:
    old = c.old.prompt
    kept = sum(old.char_of(i + 1) <= c.num_common_chars for i in range(c.num_matched, len(c.old_ids)))
    return Fix(
        "keep the generated tokens", common=(c.num_matched + kept, max(len(c.new_ids), c.num_matched + kept))
    )
