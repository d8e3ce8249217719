"""Kinds by the form of what differs: a value, a client's stamp, the name of a user, a doubled special token."""

import re
from collections.abc import Sequence
from dataclasses import replace

from anaphora.explain.alignment import common_length
from anaphora.explain.bodies import ChatBody, at_path, difference_path
from anaphora.explain.comparison import Comparison, TextPair
from anaphora.explain.finding import Finding, Fix
from anaphora.explain.records import PromptRecord, RenderedPrompt
from anaphora.explain.stamps import stamp_at
from anaphora.explain.values import NAMES, ValuePair, changed_values, is_labelled_id

_WINDOW_BEFORE, _WINDOW_BEHIND = 200, 600
MIN_ALIGNED_CHARS = 8
"""So much text must be equal again behind a value in the last message, where nothing else can be lost."""

_MAX_FRONT_CHARS = 40
"""A doubled begin-of-text token shows before this."""

_MARKUP = re.compile(r"<[^<>\s]{1,30}>|\[[A-Z_]{2,12}\]")
_MARKUP_TWICE = re.compile(rf"({_MARKUP.pattern})\1")
_USER_WORD = (
    r"(?:user|account|customer|client|member|tenant|conversation|caller|employee|subscriber|patient|student|owner"
    r"|contact|organi[sz]ation|org|workspace|username|login|profile|person)"
)
_USER_FIELD = (
    r"(?:id|name|no|number|nr|handle|e-?mail(?:\s+address)?|address|full name|first name|uuid|key"
    r"|ref(?:erence)?)"
)
_OPENERS = r"[\s\"'`“(<>{\[]*"
_USER_LABEL = re.compile(
    rf"\b(?:{_USER_WORD}(?:['’]s)?[\s_\"'-]*(?:[:={{\s\"']*{_USER_FIELD}[\"']?)?\.?\s*(?:is|=|:|#|named|called)?"
    rf"|(?:logged|signed)\s+in\s+as){_OPENERS}\Z",
    re.IGNORECASE,
)
_NAME_LABEL = re.compile(
    r"\b(?i:my\s+name\s+is|names?(?:\s+is)?|named|called|assisting|assist|helping|help|talk(?:ing)?\s+(?:to|with)"
    r"|speak(?:ing)?\s+(?:to|with)|chat(?:ting)?\s+with|serving|serve|on\s+behalf\s+of|assistant\s+(?:to|of|for)"
    r"|(?:logged|signed)\s+in\s+as|address(?:ed)?\s+(?:the\s+\w+|them|him|her)?\s*(?:to|as)|welcome|hello|hi|dear"
    r"|greet|mr|ms|mrs|dr)\.?\s*[:,=]?"
    rf"{_OPENERS}(?:[A-Z][\w'’-]*\.?\s+){{0,2}}\Z",
)
_NO_PERSON = re.compile(
    r"\b(?:product|company|brand|app|application|service|bot|assistant|model|team|plan|project|file|function|tool"
    r"|agent|shop)\b[^.\n]{0,24}\b(?:is|named|called)\b[^.\n]{0,16}\Z",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?:(?:Dr|Mr|Mrs|Ms|Prof|St|[A-Z])\. ?)*[A-Z][\w'’-]*(?: (?:[A-Z]\.|[A-Z][\w'’-]*))*")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")


def special_tokens(c: Comparison) -> Finding | None:
    """K8: one of the prompts begins with its first special token twice."""
    if not c.has_diverged or c.num_common_chars > _MAX_FRONT_CHARS:
        return None
    for doubled, single, record in ((c.new_ids, c.old_ids, c.new), (c.old_ids, c.new_ids, c.old)):
        other = c.old if record is c.new else c.new
        markup = _doubled_token(record.prompt, doubled, single)
        if markup is None:
            markup = _doubled_text(record.prompt.text, other.prompt.text)
        if markup is not None:
            return _double_finding(c, record, markup)
    return None


def _doubled_token(prompt: RenderedPrompt, doubled: Sequence[int], single: Sequence[int]) -> str | None:
    """The markup of the first token if one prompt has it twice where the other has it once."""
    length = min(len(doubled) - 1, len(single), 8)
    if length < 1 or doubled[0] != doubled[1] or doubled[1 : length + 1] != single[:length]:
        return None
    markup = prompt.text[: prompt.char_of(1)]
    return markup if re.fullmatch(r"<.*>|\[.*\]|\s*", markup) else None


def _doubled_text(doubled: str, single: str) -> str | None:
    """The same for markup that this tokenizer cuts into several tokens."""
    match = _MARKUP_TWICE.match(doubled)
    if match is None or not single:
        return None
    rest = doubled[len(match[1]) :]
    length = min(len(rest), len(single), 64)
    return match[1] if rest[:length] == single[:length] else None


def doubled_front(prompt: RenderedPrompt) -> str | None:
    """Return the markup that one prompt begins with twice, as text or, in front of a text that has it, as tokens."""
    match = _MARKUP_TWICE.match(prompt.text)
    if match is not None:
        return match[1]
    ids = prompt.token_ids
    single = _MARKUP.match(prompt.text)
    return single[0] if single is not None and len(ids) > 1 and ids[0] == ids[1] else None


def _double_finding(c: Comparison, record: PromptRecord, markup: str) -> Finding:
    side = "This prompt" if record is c.new else "The earlier prompt"
    return Finding(
        code="special_tokens",
        advice=f"{side} begins with its begin-of-text token {markup!r} twice. "
        "Render with tokenize=True or add_special_tokens=False.",
        path="prompt" if record.body.prompt is not None else "template-preamble",
        old=_front(c.old.prompt.text, markup),
        new=_front(c.new.prompt.text, markup),
        fix=lambda: _without_double(c, markup),
    )


def _front(text: str, markup: str) -> str:
    return text[: max(2 * len(markup), 40)]


def _without_double(c: Comparison, markup: str) -> Fix | None:
    texts = [record.prompt.text for record in (c.old, c.new)]
    if markup and all(isinstance(record.body.prompt, str) for record in (c.old, c.new)):
        old, new = (text[len(markup) :] if text.startswith(2 * markup) else text for text in texts)
        bodies = (replace(c.old.body, prompt=old), replace(c.new.body, prompt=new))
        return Fix("send one begin-of-text token", bodies=bodies)
    ids = [i[1:] if len(i) > 1 and i[0] == i[1] else i for i in (c.old_ids, c.new_ids)]
    return Fix("send one begin-of-text token", common=(common_length(*ids), len(ids[1])))


def client_stamp(c: Comparison) -> Finding | None:
    """K2: a header line that a client puts before the first system text."""
    pair = c.pair
    if c.is_retokenised or pair is None or not _is_first_system(c, pair):
        return None
    stamps = [stamp_at(text, pair.offset) for text in (pair.old, pair.new)]
    if not any(stamps):
        return None
    old, new = (stamp or "" for stamp in stamps)
    return Finding(
        code="client_stamp",
        certainty="inferred",
        advice="Your client stamps each request. Set CLAUDE_CODE_ATTRIBUTION_HEADER=0, or use --strip-client-stamp.",
        path=pair.path,
        old=old,
        new=new,
        fix=lambda: _edit_pair(c, pair, "leave out the stamp", old, new),
    )


def _is_first_system(c: Comparison, pair: TextPair) -> bool:
    return pair.path == "prompt" or (pair.index == 0 and pair.is_system and c.num_equal_messages == 0)


def user_in_system(c: Comparison) -> Finding | None:
    """A user's name, e-mail or id in the system text, so that users cannot share it."""
    pair = c.pair
    if c.is_retokenised or pair is None or not pair.is_system or not _is_at(c, pair):
        return None
    start = _word_start(pair.new, pair.offset)
    if _word_start(pair.old, pair.offset) != start:
        return None
    before = pair.new[max(0, start - 80) : start].rpartition("\n")[2]
    old, new = _user_value(pair.old, start), _user_value(pair.new, start)
    is_email = _EMAIL.match(pair.old, start) and _EMAIL.match(pair.new, start)
    is_named = (
        _is_name(old) and _is_name(new) and _NAME_LABEL.search(before) and not _NO_PERSON.search(before)
    )
    is_labelled = _USER_LABEL.search(before) and max(len(old), len(new)) <= 64
    if not (is_email or is_named or is_labelled or _is_users_own(c, old, new)) or not old or not new:
        return None
    return Finding(
        code="user_in_system",
        certainty="inferred",
        advice=f"{pair.path} names the user. Move the name behind the shared part, so that users share it.",
        path=pair.path,
        old=old,
        new=new,
        fix=lambda: _move_values(c, pair, "move the user's name to the last user turn", old, new),
    )


def _word_start(text: str, offset: int) -> int:
    start = offset
    while start and (text[start - 1].isalnum() or text[start - 1] in "_@.+'-’"):
        start -= 1
    return start


def _user_value(text: str, start: int) -> str:
    match = (
        _EMAIL.match(text, start) or _NAME.match(text, start) or re.compile(r"[\w@.+-]*\w").match(text, start)
    )
    return match[0] if match else ""


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def _is_users_own(c: Comparison, old: str, new: str) -> bool:
    values = [
        [str(body.source.get(name)) for name in ("user", "safety_identifier") if body.source.get(name)]
        for body in (c.old.body, c.new.body)
    ]
    return old in values[0] and new in values[1]


def volatile_value(c: Comparison) -> Finding | None:
    """K1: a clock, an id, a counter … in what the caller wrote."""
    if c.is_retokenised:
        return None
    if c.tools_changed_text:
        return _volatile_tool(c)
    pair = c.pair
    if pair is None or not _is_at(c, pair):
        return None
    found = _value_at(pair)
    if found is None:
        return None
    value, num_aligned = found
    if _is_last_message(c, pair) and num_aligned < MIN_ALIGNED_CHARS:
        return None
    return Finding(
        code="volatile_value",
        certainty="inferred",
        advice=f"{pair.path} holds {NAMES[value.kind]} that changes, at character {{char_offset:,}} of the prompt. "
        "Move it to the last user turn, coarsen it to the day, or make it a tool.",
        path=pair.path,
        old=value.old,
        new=value.new,
        fix=lambda: _move_values(
            c, pair, f"move {NAMES[value.kind]} to the last user turn", value.old, value.new
        ),
    )


def _is_last_message(c: Comparison, pair: TextPair) -> bool:
    return pair.index == len(c.new_keys) - 1 and pair.index == len(c.old_keys) - 1


def _value_at(pair: TextPair) -> tuple[ValuePair, int] | None:
    """The value at the first difference, and how many characters are equal behind it."""
    offset = pair.offset
    start = max(0, offset - _WINDOW_BEFORE)
    end = offset + _WINDOW_BEHIND
    pairs, reached = changed_values(pair.old[start:end], pair.new[start:end])
    if not pairs:
        return _labelled_word_at(pair)
    value = pairs[0]
    value_end = value.new_start + len(value.new)
    is_all = start + reached >= len(pair.new)
    if reached <= value_end and not is_all:
        return None
    return value, reached - value_end


def _labelled_word_at(pair: TextPair) -> tuple[ValuePair, int] | None:
    """A word behind a label such as "token:", whatever its form, and how many characters are equal behind it."""
    offset = pair.offset
    start = max(pair.new.rfind(char, 0, offset) for char in " \t\n\"'=:<>()[]{},") + 1
    words = [re.compile(r"[^\s\"'<>()\[\]{},;]+").match(text, start) for text in (pair.old, pair.new)]
    if words[0] is None or words[1] is None or not is_labelled_id(pair.new, start):
        return None
    old, new = words[0][0].rstrip("."), words[1][0].rstrip(".")
    if not any(char.isdigit() for char in old + new):
        return None
    behind = common_length(pair.old[start + len(old) :], pair.new[start + len(new) :])
    return (ValuePair("id", old, new, start, start), behind) if behind >= MIN_ALIGNED_CHARS else None


def _volatile_tool(c: Comparison) -> Finding | None:
    path = difference_path(list(c.old.body.tools), list(c.new.body.tools), "tools")
    if path is None or not path.startswith("tools["):
        return None
    old, new = at_path(c.old.body.tools, path), at_path(c.new.body.tools, path)
    if not isinstance(old, str) or not isinstance(new, str):
        return None
    found = _value_at(TextPair(path, old, new))
    if found is None:
        return None
    value = found[0]
    return Finding(
        code="volatile_value",
        certainty="inferred",
        advice=f"{path} holds {NAMES[value.kind]} that changes. Take it out of the tool, and put it "
        "into the last user turn.",
        path=path,
        old=value.old,
        new=value.new,
        fix=lambda: Fix(
            "take the value out of the tools",
            bodies=(c.old.body, replace(c.new.body, tools=c.old.body.tools)),
        ),
    )


def _is_at(c: Comparison, pair: TextPair) -> bool:
    """Whether the prompts part in this text, and not in what the template wrote before it."""
    if c.changed_settings or not c.has_diverged:
        return False
    if pair.path == "prompt":
        return True
    region = c.new_region()
    return region.name != "template-preamble" and (region.message is None or region.message >= pair.index)


def _move_values(c: Comparison, pair: TextPair, change: str, old: str, new: str) -> Fix | None:
    """Take the changing values out of a text, and put them behind the last user turn of each request."""
    pairs, _ = changed_values(pair.old, pair.new)
    values = [(p.old, p.new, p.old_start, p.new_start) for p in pairs]
    if not any(value[0] == old for value in values):
        start = _word_start(pair.new, pair.offset)
        values = [(old, new, start, start)]
    old_text, new_text = pair.old, pair.new
    for old_value, new_value, old_start, new_start in reversed(values):
        old_text = old_text[:old_start] + old_text[old_start + len(old_value) :]
        new_text = new_text[:new_start] + new_text[new_start + len(new_value) :]
    moved = (" ".join(v[0] for v in values), " ".join(v[1] for v in values))
    bodies = [
        _with_moved(record.body, pair, text, value)
        for record, text, value in zip((c.old, c.new), (old_text, new_text), moved, strict=True)
    ]
    return None if None in bodies else Fix(change, bodies=(bodies[0], bodies[1]))  # type: ignore[arg-type]


def _with_moved(body: ChatBody, pair: TextPair, text: str, value: str) -> ChatBody | None:
    if pair.path == "prompt":
        return ChatBody(prompt=f"{text}\n{value}", source=body.source)
    if pair.part < 0:
        return None
    edited = body.with_part(pair.index, pair.part, text)
    users = [i for i, message in enumerate(edited.messages) if message.get("role") == "user"]
    if not users:
        return edited
    parts = edited.parts(users[-1])
    return edited.with_part(users[-1], len(parts) - 1, f"{parts[-1].text}\n{value}") if parts else edited


def _edit_pair(c: Comparison, pair: TextPair, change: str, old: str, new: str) -> Fix | None:
    """Take a snippet and the line end behind it out of both texts."""
    bodies = []
    for record, text, snippet in ((c.old, pair.old, old), (c.new, pair.new, new)):
        edited = re.sub(re.escape(snippet) + r"\n?", "", text, count=1) if snippet else text
        if pair.path == "prompt":
            bodies.append(ChatBody(prompt=edited, source=record.body.source))
        else:
            bodies.append(record.body.with_part(pair.index, pair.part, edited))
    return Fix(change, bodies=(bodies[0], bodies[1]))
