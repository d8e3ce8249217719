"""Kinds by fields of the request: tools, settings, JSON written otherwise, and the form of a text."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from anaphora.explain.bodies import at_path, canonical, difference_path, tool_name
from anaphora.explain.comparison import Comparison, TextPair, changed_ranges
from anaphora.explain.finding import Finding, Fix, plural
from anaphora.nesting import is_deeper

_MAX_JSON_STARTS = 200
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("\u00a0\u2007\u202f\u2009\u200a\u2002\u2003", " "),
        "…": "...",
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", ""),
    }
)
_ASCII_SPACE = re.compile(r"[ \t\r\n\f\v]+")


def tool_order(c: Comparison) -> Finding | None:
    """K3: the same tools in another order."""
    old, new = c.tool_keys
    if not c.tools_changed_text or old == new or Counter(old) != Counter(new):
        return None
    index = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
    return Finding(
        code="tool_order",
        advice=f"Same {plural(len(new), 'tool')}, other order (first move: position {index}). "
        "Sort by unique name, or use --sort-tools.",
        path=f"tools[{index}]",
        old=tool_name(c.old.body.tools[index]),
        new=tool_name(c.new.body.tools[index]),
        fix=lambda: _sorted_tools(c),
    )


def _sorted_tools(c: Comparison) -> Fix:
    old, new = (
        replace(
            record.body, tools=tuple(sorted(record.body.tools, key=lambda t: (tool_name(t), canonical(t))))
        )
        for record in (c.old, c.new)
    )
    return Fix("sort the tools by name", bodies=(old, new))


def tool_set(c: Comparison) -> Finding | None:
    """K4: tools were added, removed or edited."""
    old, new = c.tool_keys
    if not c.tools_changed_text or Counter(old) == Counter(new) or not _is_same_application(c):
        return None
    path = _tool_path(c)
    values = [at_path(record.body.tools, path) for record in (c.old, c.new)]
    is_edit = "." in path and None not in values
    place = c.new.body.translated(path)
    return Finding(
        code="tool_set",
        advice=f"The tools differ: {_tool_changes(c)}. Send the same tools on every turn, and forbid "
        "calls with tool_choice.",
        path=place,
        old=_shown(values[0]) if is_edit else ", ".join(map(tool_name, c.old.body.tools)),
        new=_shown(values[1]) if is_edit else ", ".join(map(tool_name, c.new.body.tools)),
        fix=lambda: Fix(
            "send the same tools", bodies=(c.old.body, replace(c.new.body, tools=c.old.body.tools))
        ),
    )


def _is_same_application(c: Comparison) -> bool:
    return c.have_tools_in_common or c.num_equal_messages > 0 or c.is_version or c.pair is None


def _tool_changes(c: Comparison) -> str:
    old = {tool_name(tool): canonical(tool) for tool in c.old.body.tools}
    new = {tool_name(tool): canonical(tool) for tool in c.new.body.tools}
    groups = {
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "edited": [name for name in new if name in old and old[name] != new[name]],
    }
    return "; ".join(f"{verb} {', '.join(names)}" for verb, names in groups.items() if names) or "repeated"


def _tool_path(c: Comparison) -> str:
    old, new = c.old.body.tools, c.new.body.tools
    keys = c.tool_keys
    index = next((i for i, (a, b) in enumerate(zip(*keys, strict=False)) if a != b), min(map(len, keys)))
    path = f"tools[{index}]"
    if index < min(len(old), len(new)) and tool_name(old[index]) == tool_name(new[index]):
        return difference_path(old[index], new[index], path, ordered=False) or path
    return path


def settings(c: Comparison) -> Finding | None:
    """K4: a setting that the template renders."""
    if not c.changed_settings or c.is_retokenised:
        return None
    path = c.changed_settings[0]
    name, _, key = path.partition(".")
    old, new = (_setting(record.body.settings, name, key) for record in (c.old, c.new))
    where = c.new_region()
    place = f"messages[{where.message}]" if where.message is not None else where.name or "the prompt"
    return Finding(
        code="settings",
        advice=f"{path} differs, and the chat template renders it in {place}. Keep it the same between requests.",
        path=path,
        old=_shown(old),
        new=_shown(new),
        fix=lambda: Fix(
            f"send the same {name}",
            bodies=(c.old.body, replace(c.new.body, settings=c.old.body.settings)),
        ),
    )


def _setting(values: Mapping[str, Any], name: str, key: str) -> Any:
    value = values.get(name)
    return value.get(key) if key and isinstance(value, Mapping) else value


def _shown(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------------
# The same value or the same words, written otherwise


def whitespace(c: Comparison) -> Finding | None:
    """Texts equal but for white space and line ends."""
    return _folded(
        c,
        "whitespace",
        _fold_spaces,
        "{path} differs in white space only. Trim and normalise it once, where the text enters.",
        _mark_spaces,
    )


def unicode(c: Comparison) -> Finding | None:
    """Texts equal after Unicode normalisation and without typographic variants."""
    return _folded(
        c,
        "unicode",
        lambda text: _fold_spaces(
            unicodedata.normalize(
                "NFKC", unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY)
            ).translate(_TYPOGRAPHY)
        ),
        "{path} spells the same text with other code points. Normalise once, where the text enters.",
        _mark_code_points,
    )


_KEPT_CHARS = 64


def _fold_spaces(text: str) -> str:
    return _ASCII_SPACE.sub(" ", text).strip(" ")


def _mark_spaces(text: str) -> str:
    marks = {" ": "·", "\n": "⏎", "\r": "␍", "\t": "→"}
    return "".join(marks.get(char, char) for char in text)


def _mark_code_points(text: str) -> str:
    odd = [f"U+{ord(char):04X}" for char in text if ord(char) > 127]
    return f"{text} ({' '.join(odd[:8])})" if odd else text


def _folded(
    c: Comparison, code: str, fold: Callable[[str], str], advice: str, mark: Callable[[str], str]
) -> Finding | None:
    pair = c.pair
    if pair is None or c.is_retokenised or not c.has_diverged or c.tools_changed_text or c.changed_settings:
        return None
    # What both begin with folds alike; a little of it stays, so that nothing is cut that belongs together.
    equal = max(0, pair.offset - _KEPT_CHARS)
    a, b = fold(pair.old[equal:]), fold(pair.new[equal:])
    is_same = a == b or (pair.path == "prompt" and a and b and (a.startswith(b) or b.startswith(a)))
    if not is_same or (pair.role is None and pair.path != "prompt"):
        return None
    start = max(0, pair.offset - 20)
    return Finding(
        code=code,
        advice=advice.format(path=pair.path),
        path=pair.path,
        old=mark(pair.old[start : pair.offset + 20]),
        new=mark(pair.new[start : pair.offset + 20]),
        fix=lambda: keep_old_text(c, pair, "send the same bytes"),
    )


def keep_old_text(c: Comparison, pair: TextPair, change: str) -> Fix | None:
    """Put the earlier text of a part into this request too."""
    if pair.path == "prompt":
        return Fix(change, common=(c.num_matched + _num_changed(c) + c.num_behind, len(c.new_ids)))
    if pair.index < 0:
        return None
    messages = list(c.new.body.messages)
    messages[pair.index] = c.old.body.messages[pair.index]
    return Fix(change, bodies=(c.old.body, c.new.body.with_messages(messages)))


def _num_changed(c: Comparison) -> int:
    return max(0, c.runs[0].new_start - c.num_matched) if c.runs else 0


def json_written(c: Comparison) -> Finding | None:
    """K5: one JSON value, its keys in another order (`json_order`) or its text in another form (`json_format`)."""
    if c.is_retokenised:
        return None
    if c.tools_changed_text:
        return _json_tools(c)
    if c.rewritten_settings:
        return _json_setting(c, c.rewritten_settings[0])
    pair = c.pair
    if pair is None or not c.has_diverged or c.changed_settings:
        return None
    values = _json_at(pair)
    if values is None:
        return None
    old, new = values
    is_order = canonical_in_order(old) != canonical_in_order(new)
    spot = max(0, pair.offset - 20)
    return _json_finding(
        is_order=is_order,
        path=pair.path,
        old=pair.old[spot : pair.offset + 60],
        new=pair.new[spot : pair.offset + 60],
        fix=lambda: keep_old_text(c, pair, "send the same bytes"),
    )


def _json_tools(c: Comparison) -> Finding | None:
    old, new = c.tool_keys
    if old != new:
        return None
    path = difference_path(list(c.old.body.tools), list(c.new.body.tools), "tools") or "tools"
    path = c.new.body.translated(path)
    is_order = canonical_in_order(c.old.body.tools) != canonical_in_order(c.new.body.tools)
    place = c.num_common_chars
    texts = [record.prompt.text[max(0, place - 20) : place + 60] for record in (c.old, c.new)]
    return _json_finding(
        is_order=is_order,
        path=path,
        old=texts[0],
        new=texts[1],
        fix=lambda: Fix(
            "send the same bytes", bodies=(c.old.body, replace(c.new.body, tools=c.old.body.tools))
        ),
    )


def _json_setting(c: Comparison, name: str) -> Finding:
    old, new = c.old.body.settings, c.new.body.settings
    return _json_finding(
        is_order=canonical_in_order(old[name]) != canonical_in_order(new[name]),
        path=name,
        old=_shown(old[name]),
        new=_shown(new[name]),
        fix=lambda: Fix("send the same bytes", bodies=(c.old.body, replace(c.new.body, settings=old))),
    )


def _json_finding(*, is_order: bool, path: str, old: str, new: str, fix: Callable[[], Fix | None]) -> Finding:
    what = "its keys are in another order" if is_order else "its text has another form"
    return Finding(
        code="json_order" if is_order else "json_format",
        advice=f"{path} is the same JSON value, but {what}. Use the canonical serialiser, or keep the model's bytes.",
        path=path,
        old=old,
        new=new,
        fix=fix,
    )


def canonical_in_order(value: Any) -> str:
    """Return a text that keeps the order of keys and forgets how numbers and strings are written."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(k))}:{canonical_in_order(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical_in_order, value)) + "]"
    return canonical(value)


def _json_at(pair: TextPair) -> tuple[Any, Any] | None:
    """The JSON value around the first difference, as each side has it, if the two are equal."""
    return next(((old, new) for old, new in _json_values_at(pair) if canonical(old) == canonical(new)), None)


def _json_values_at(pair: TextPair) -> Iterator[tuple[Any, Any]]:
    """The JSON values around the first difference, outer ones first, as each side has them."""
    decoder = json.JSONDecoder()
    starts = [m.start() for m in re.finditer(r"[{\[]", pair.old[: pair.offset])]
    for start in starts[:_MAX_JSON_STARTS]:
        try:
            old, old_end = decoder.raw_decode(pair.old, start)
            new, new_end = decoder.raw_decode(pair.new, start)
        except (ValueError, RecursionError):
            continue
        if is_deeper(old) or is_deeper(new):
            continue
        if min(old_end, new_end) > pair.offset:
            yield old, new


# ---------------------------------------------------------------------------------------------------------------------
# The order of texts


_NUMBERING = re.compile(
    r"^\s*(?:[-*•]\s+|\[?\(?\d+[\])]?[.:)]?\s+|\[\d+\]\s*|(?:<\w{1,40}[^<>]{0,200}>\s*)|(?:doc(?:ument)?|source"
    r"|passage|chunk|result|snippet|context)"
    r"\s*#?\d+\s*[:.)\]-]*\s*)+",
    re.IGNORECASE,
)
_SPLITS = (
    re.compile(
        r"</(?:doc|document|passage|chunk|result|item|context)>\s*"
        r"|(?=<(?:doc|document|passage|chunk|result|item|context)\b)",
        re.IGNORECASE,
    ),
    re.compile(r"\n[ \t]*\n|\n-{3,}\n|\n={3,}\n"),
    re.compile(
        r"\n(?=[ \t]{0,8}(?:\[\d+\]|\(?\d+[.)]|#+\s|[-*•]\s|doc(?:ument)?\s?#?\d+|source\s?#?\d+))",
        re.IGNORECASE,
    ),
    re.compile(r"\n"),
    re.compile(r"[ \t](?=\[\w{1,12}\]\s|(?:doc(?:ument)?|source|passage)\s?#?\d{1,6}\s?[:.])", re.IGNORECASE),
)


def retrieved_docs_reordered(c: Comparison) -> Finding | None:
    """The same chunks of text in another order inside one message."""
    pair = c.pair
    if pair is None or c.is_retokenised or not c.has_diverged or c.tools_changed_text:
        return None
    if pair.part < 0 and pair.path != "prompt":
        return None
    counts = [_reordered(_chunks(split, pair.old), _chunks(split, pair.new)) for split in _SPLITS]
    counts.append(_reordered(*_part_texts(c, pair)))
    counts.append(_reordered_json(pair))
    count = next((count for count in counts if count), 0)
    if not count:
        return None
    old_start, old_end, new_start, new_end = (changed_ranges(pair.old, pair.new) or [(0, 0, 0, 0)])[0]
    return Finding(
        code="retrieved_docs_reordered",
        advice=f"Same {plural(count, 'document')} in {pair.path}, other order. Sort them by a stable id, "
        "or put the question first and keep the order of the first turn.",
        path=pair.path,
        old=pair.old[old_start : max(old_end, old_start + 60)],
        new=pair.new[new_start : max(new_end, new_start + 60)],
        fix=lambda: keep_old_text(c, pair, "keep the order of the first turn"),
    )


def _chunks(split: re.Pattern[str], text: str) -> list[str]:
    found = split.split(text)
    # What is asked behind the last document is no part of it.
    found[-1:] = re.split(r"\n\s*\n", found[-1])
    chunks = (_NUMBERING.sub("", chunk).strip() for chunk in found)
    return [chunk for chunk in chunks if chunk]


def _reordered_json(pair: TextPair) -> int:
    """How many items a JSON list has whose order differs; 0 when there is none at the first difference."""
    for old, new in _json_values_at(pair):
        if isinstance(old, list) and isinstance(new, list):
            a, b = [canonical(item) for item in old], [canonical(item) for item in new]
            if a != b and sorted(a) == sorted(b):
                return len(a)
    return 0


def _part_texts(c: Comparison, pair: TextPair) -> tuple[list[str], list[str]]:
    if pair.index < 0:
        return [], []
    old, new = c.old.body.parts(pair.index), c.new.body.parts(pair.index)
    return [part.text.strip() for part in old], [part.text.strip() for part in new]


def _reordered(old: list[str], new: list[str]) -> int:
    """How many chunks both sides have, if most are and their order differs; else 0."""
    if len(old) < 2 or len(new) < 2 or old == new:
        return 0
    common = Counter(old) & Counter(new)
    kept_old, kept_new = ([chunk for chunk in chunks if chunk in common] for chunks in (old, new))
    num_chars = sum(len(chunk) * times for chunk, times in common.items())
    if kept_old == kept_new or num_chars * 2 < max(sum(map(len, old)), sum(map(len, new))):
        return 0
    # The first difference must be a chunk that moved, not one that was replaced or added.
    first = next((pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]), ("", ""))
    return common.total() if first[0] in common and first[1] in common else 0
