"""Kinds of rewritten history: by whoever drops, edits, moves or quotes turns."""

import json
import re
from collections.abc import Mapping
from typing import Any

from anaphora.explain.alignment import common_length
from anaphora.explain.bodies import ChatBody
from anaphora.explain.comparison import Comparison, TextPair, changed_ranges
from anaphora.explain.finding import Finding, Fix
from anaphora.explain.structure_kinds import keep_old_text

MIN_MOVED_CHARS = 16
"""A shorter text may stand in two messages by chance."""

_CUT = re.compile(
    r"truncat|evict|omitted|summar|elided|redacted|removed|cleared|compact|condensed|pruned|trimmed|shortened|snipped"
    r"|\[\s*(?:\.\.\.|…)\s*\]|no longer shown|not shown"
    r"|zusammenfass|gekürzt|ausgelassen|résum|tronqu|resumen|resumo|truncad|omitid|riassunt|troncat|samenvatting"
    r"|сокращ|обрезан|摘要|总结|總結|省略|截断|要約|요약|생략",
    re.IGNORECASE,
)
_EARLIER = re.compile(
    r"continu(?:ed|ing|ation) (?:from|of)"
    r"|(?:previous|earlier|prior|past) (?:conversation|session|messages|turns|chat|context)"
    r"|(?:conversation|chat|session|context)[\s_-]+(?:so far|summary|history|was|has been)"
    r"|summary of (?:the|this|our|what)|bisherig|jusqu['’]ici|conversation précédente|hasta ahora|até agora|finora"
    r"|之前|此前|以上对话|これまで|이전|предыдущ",
    re.IGNORECASE,
)
_SNIPPET_CHARS = 60


def history_dropped(c: Comparison) -> Finding | None:
    """K9: the list of messages is the earlier one without some of its turns, and perhaps goes on."""
    if not c.has_diverged or not c.new_keys or c.tools_changed_text:
        return None
    start = c.num_equal_messages
    kept = _kept_in_order(c.old_keys, c.new_keys, start)
    if not kept or kept[0] == start:
        return None
    dropped = [i for i in range(start, kept[-1]) if i not in kept]
    new_keys = set(c.new_keys[start:])
    if any(c.old_keys[i] in new_keys or _stands_elsewhere(c, i) for i in dropped):
        return None
    first, last = dropped[0], dropped[-1]
    turns = f"Turns {first} to {last}" if last > first else f"Turn {first}"
    return Finding(
        code="history_dropped",
        advice=f"{turns} of the earlier request removed. A sliding window loses the cache on every turn. "
        "Cut rarely and in big steps.",
        path=_first_text_path(c.new.body, start),
        old=_text_of(c.old.body, start),
        new=_text_of(c.new.body, start),
        fix=lambda: _append_only(c, start + len(kept)),
    )


def _kept_in_order(old: list[str], new: list[str], start: int) -> list[int]:
    """The earlier messages that the new list goes on with at `start`, in their order."""
    kept: list[int] = []
    place = start
    for key in new[start:]:
        found = next((i for i in range(place, len(old)) if old[i] == key), None)
        if found is None:
            break
        kept.append(found)
        place = found + 1
    return kept


def _stands_elsewhere(c: Comparison, index: int) -> bool:
    texts = [part.text for part in c.old.body.parts(index) if len(part.text) >= MIN_MOVED_CHARS]
    start = c.num_equal_messages
    return any(
        text in part.text
        for text in texts
        for i in range(start, len(c.new_keys))
        for part in c.new.body.parts(i)
    )


def _append_only(c: Comparison, num_kept_new: int) -> Fix:
    appended = c.new.body.messages[num_kept_new:]
    grown = c.new.body.with_messages([*c.old.body.messages, *appended])
    return Fix("let the history only grow", bodies=(c.old.body, grown))


def history_edited(c: Comparison) -> Finding | None:
    """K9: a turn of the history was cut, summarised or otherwise rewritten."""
    pair = c.pair
    if pair is None or pair.index < 0 or not c.has_diverged or c.is_retokenised or c.tools_changed_text:
        return None
    if helper_call(c) is not None:
        return None  # a new conversation about the old one
    if pair.role is None and not _says_cut(pair) and not _stands_for_several(c):
        return None
    if pair.is_system and not (pair.index > 0 and _says_cut(pair)):
        return None
    aligned = c.later_messages_align()
    is_shorter, is_history = len(pair.new) < len(pair.old), pair.index < len(c.new_keys) - 1
    is_cut_reply = is_shorter and is_history and pair.role in {"assistant", "tool"}
    is_summary = _says_cut(pair) and (aligned or c.is_version or is_cut_reply or _is_compaction(c, pair))
    is_same_turn = (aligned and (c.is_version or is_shorter)) or (c.is_version and is_shorter)
    is_same_turn = is_same_turn or _stands_for_several(c)
    if not is_summary and not (is_same_turn and is_history and not _is_text_moved(c, pair)):
        return None
    how = "summarised or cut" if _says_cut(pair) else "shortened" if is_shorter else "edited"
    old, new = _changed_snippets(pair)
    return Finding(
        code="history_edited",
        certainty="inferred",
        advice=f"{pair.path} was {how} after it had been sent. Cut rarely and in big steps, "
        "and leave what stays as it was.",
        path=pair.path,
        old=old,
        new=new,
        fix=lambda: keep_old_text(c, pair, "leave the turn as it was sent"),
    )


def _says_cut(pair: TextPair) -> bool:
    return len(_CUT.findall(pair.new)) > len(_CUT.findall(pair.old))


def _is_compaction(c: Comparison, pair: TextPair) -> bool:
    """Whether one message stands in place of several, so that the list did not grow as lists of turns do."""
    is_quoting = len(pair.new) > len(pair.old) * 2 and len(c.new_keys) == pair.index + 1
    is_quoting = is_quoting and not _EARLIER.search(pair.new)
    return len(c.old_keys) - pair.index >= 2 and len(c.new_keys) <= len(c.old_keys) and not is_quoting


def _stands_for_several(c: Comparison) -> bool:
    """Whether some turns stand where there were more of them, before turns that both requests have."""
    start = c.num_equal_messages
    places = {key: index for index, key in reversed(list(enumerate(c.new_keys))) if index > start}
    old = next((i for i in range(start + 1, len(c.old_keys)) if c.old_keys[i] in places), None)
    return old is not None and places[c.old_keys[old]] < old


def history_moved(c: Comparison) -> Finding | None:
    """K9: a part stands in another message than before."""
    pair = c.pair
    if pair is None or pair.index < 0 or not c.has_diverged or c.tools_changed_text:
        return None
    found = _moved(c, pair)
    if found is None or helper_call(c) is not None:
        return None
    text, source, target = found
    return Finding(
        code="history_moved",
        advice=f"Part {_title(text)!r} moved from {source} to {target}. "
        "Leave each part in the message that first held it.",
        path=pair.path,
        old=pair.old[pair.offset :] or pair.old,
        new=pair.new[pair.offset :] or pair.new,
        fix=lambda: _unmoved(c),
    )


def _moved(c: Comparison, pair: TextPair) -> tuple[str, str, str] | None:
    """A text that stands in one message of the earlier request and in another of this one: (text, from, to)."""
    if (shift := _shift(c)) > 0:
        texts = c.old.body.parts(pair.index)
        before, behind = c.old.body.path(pair.index), c.new.body.path(pair.index + shift)
        return (texts[0].text if texts else before, before, behind)
    old_texts, new_texts = _all_texts(c.old.body), _all_texts(c.new.body)
    candidates = [
        *((text, True) for text in _lost_texts(c.old.body, c.new.body, pair, is_old=True)),
        *((text, False) for text in _lost_texts(c.new.body, c.old.body, pair, is_old=False)),
    ]
    for text, is_old in candidates:
        if len(text) < MIN_MOVED_CHARS:
            continue
        others = new_texts if is_old else old_texts
        homes = [index for index, whole in others if index != pair.index and text in whole]
        own = [index for index, whole in (old_texts if is_old else new_texts) if text in whole]
        # What both requests have there did not move.
        homes = [index for index in homes if index not in own]
        if homes:
            mine, other = (c.old.body, c.new.body) if is_old else (c.new.body, c.old.body)
            here, there = mine.path(pair.index), other.path(homes[0])
            return (text, here, there) if is_old else (text, there, here)
    return None


def _shift(c: Comparison) -> int:
    """By how many messages all that the earlier request goes on with stands further back now; 0 if it does not."""
    start = c.num_equal_messages
    rest = c.old_keys[start:]
    if len(rest) == 1 and len(rest[0]) < MIN_MOVED_CHARS + len('{"content":[""],"role":"user"}'):
        return 0
    places = [i for i in range(start + 1, len(c.new_keys)) if rest and c.new_keys[i] == rest[0]]
    return next((i - start for i in places[:8] if c.new_keys[i : i + len(rest)] == rest), 0)


def _is_text_moved(c: Comparison, pair: TextPair) -> bool:
    return _moved(c, pair) is not None


def _all_texts(body: ChatBody) -> list[tuple[int, str]]:
    return [(i, part.text) for i in range(len(body.messages)) for part in body.parts(i)]


def _lost_texts(mine: ChatBody, other: ChatBody, pair: TextPair, *, is_old: bool) -> list[str]:
    """What one side has at the divergence and the other has not: whole parts, or the stretch that was cut out."""
    other_texts = {part.text for part in other.parts(pair.index)}
    lost = [part.text.strip() for part in mine.parts(pair.index) if part.text not in other_texts]
    a, b = (pair.old, pair.new) if is_old else (pair.new, pair.old)
    behind = common_length(a[pair.offset :][::-1], b[pair.offset :][::-1])
    stretch = a[pair.offset : len(a) - behind].strip()
    if stretch and pair.old and pair.new and len(stretch) < len(a) and len(b) >= pair.offset + behind:
        lost.append(stretch)
    return lost


def _unmoved(c: Comparison) -> Fix:
    old_texts = {text for _, text in _all_texts(c.old.body)}
    appended = [
        message
        for index, message in enumerate(c.new.body.messages)
        if index >= len(c.old_keys)
        and c.new_keys[index] not in c.old_keys
        and not all(part.text in old_texts for part in c.new.body.parts(index))
    ]
    grown = c.new.body.with_messages([*c.old.body.messages, *appended])
    return Fix("leave each part in its place", bodies=(c.old.body, grown))


def helper_call(c: Comparison) -> Finding | None:
    """K4, K9: the earlier conversation is quoted behind an instruction, as calls for titles and summaries do."""
    if c.tools_changed_text and c.have_tools_in_common:
        return None
    old_text = _conversation(c.old)
    pair = c.pair
    if not old_text or (pair is None and c.new.body.prompt is None):
        return None
    for path, text in _quoting_places(c):
        start = _quote_start(text, old_text)
        if start is None or start == 0:
            continue
        return Finding(
            code="helper_call",
            certainty="inferred",
            advice=f"{path} quotes the earlier conversation behind an instruction. "
            "Put the instruction after the conversation, not before.",
            path=path,
            old=old_text[0],
            new=text[: start + _SNIPPET_CHARS],
            fix=lambda text=text, start=start: _instruct_behind(c, text[:start]),  # type: ignore[misc]
        )
    return None


def _conversation(record: Any) -> list[str]:
    body: ChatBody = record.body
    if body.prompt is not None:
        return [record.prompt.text] if len(record.prompt.text) >= 40 else []
    turns = [
        part.text.strip()
        for index in range(len(body.messages))
        if not body.is_system(index)
        for part in body.parts(index)
    ]
    return [text for text in turns if text]


def _quoting_places(c: Comparison) -> list[tuple[str, str]]:
    if c.new.body.prompt is not None:
        return [("prompt", c.new.prompt.text)]
    old_keys = set(c.old_keys)
    return [
        (part.path, part.text)
        for index in range(c.num_equal_messages, len(c.new_keys))
        if c.new_keys[index] not in old_keys
        for part in c.new.body.parts(index)
    ]


def _quote_start(text: str, turns: list[str]) -> int | None:
    """Where a text begins to quote turns, if it quotes nearly all of them in their order."""
    start, place, quoted = None, 0, 0
    for turn in turns:
        forms = (turn, json.dumps(turn)[1:-1], json.dumps(turn, ensure_ascii=False)[1:-1])
        found = min((spot for form in forms if (spot := text.find(form, place)) >= 0), default=-1)
        if found >= 0:
            start = found if start is None else start
            place, quoted = found + len(turn), quoted + len(turn)
    total = sum(map(len, turns))
    return start if total >= 12 and quoted * 5 >= total * 4 else None


def _instruct_behind(c: Comparison, instruction: str) -> Fix:
    if c.old.body.prompt is not None:
        return Fix("put the instruction behind it", common=(len(c.old_ids), len(c.new_ids)))
    message: Mapping[str, Any] = {"role": "user", "content": instruction.strip()}
    return Fix(
        "put the instruction behind the conversation",
        bodies=(c.old.body, c.old.body.with_messages([*c.old.body.messages, message])),
    )


def system_edited(c: Comparison) -> Finding | None:
    """The system text is another version of the earlier one."""
    pair = c.pair
    if pair is None or not pair.is_system or not c.has_diverged or c.is_retokenised or not c.is_version:
        return None
    if c.tools_changed_text or c.changed_settings:
        return None
    old, new = _changed_snippets(pair)
    return Finding(
        code="system_edited",
        advice=f"{pair.path} was edited. Put what changes behind what stays, or keep one version for a conversation.",
        path=pair.path,
        old=old,
        new=new,
        fix=lambda: keep_old_text(c, pair, "keep the earlier text"),
    )


def _changed_snippets(pair: TextPair) -> tuple[str, str]:
    ranges = changed_ranges(pair.old, pair.new)
    if not ranges:
        return pair.old[pair.offset :], pair.new[pair.offset :]
    old_start, old_end, new_start, new_end = ranges[0]
    return pair.old[old_start:old_end], pair.new[new_start:new_end]


def _first_text_path(body: ChatBody, index: int) -> str:
    parts = body.parts(index) if index < len(body.messages) else []
    return parts[0].path if parts else body.path(index)


def _text_of(body: ChatBody, index: int) -> str:
    parts = body.parts(index) if index < len(body.messages) else []
    return parts[0].text if parts else ""


def _title(text: str) -> str:
    line = text.strip().splitlines()[0]
    return line if len(line) <= 40 else line[:39] + "…"
