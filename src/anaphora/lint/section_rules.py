"""L6: sections of the system text that some requests have and others have not."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from anaphora.lint.log import Log
from anaphora.lint.snippets import Snippets
from anaphora.lint.suspect import Suspect, trimmed

MIN_SECTION_CHARS = 8
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=#)")
_LINE_END = re.compile(r"\n")


class _Version(NamedTuple):
    """A system text as its sections, and their skeletons: a section is the same whatever its values are."""

    sections: tuple[str, ...]
    skeletons: tuple[str, ...]


def conditional_sections(log: Log) -> Iterator[Suspect]:
    """L6: whole sections that come and go between versions of one system text."""
    versions: dict[str, _Version] = {}
    holders: dict[str, str] = {}
    optional: dict[str, str] = {}
    path = ""
    for spots in log.spots:
        for spot in spots:
            if not spot.is_system or spot.text in versions:
                continue
            version = versions[spot.text] = _version(log, spot.text)
            earlier = _likest(version, versions, holders)
            for section, skeleton in _come_or_gone(earlier, version) if earlier else ():
                optional.setdefault(skeleton, section)
                path = path or spot.path
            holders.update(dict.fromkeys(version.skeletons, spot.text))
    if not optional:
        return
    snippets = Snippets()
    for index, spots in enumerate(log.spots):
        for spot in spots:
            if spot.is_system:
                for section, skeleton in zip(*versions[spot.text], strict=True):
                    if skeleton in optional:
                        snippets.add(index, spot.path, section)
    evidence = trimmed(next(iter(optional.values())).strip(), 100)
    num_more = len(optional) - 1
    yield Suspect(
        rule="L6",
        code="system_edited",
        path=path,
        evidence=f"{evidence!r} in {len(snippets.indices)} of {len(log)} requests"
        + (f", and {num_more} more" if num_more else ""),
        fix="Send the section always, or put it behind the last thing that stays the same.",
        indices=snippets.indices,
        mend=snippets.mend,
    )


def _version(log: Log, text: str) -> _Version:
    sections = _cut(_PARAGRAPH, text)
    if len(sections) < 2:
        sections = _cut(_LINE_END, text)
    return _Version(sections, tuple(log.skeleton(section.strip()) for section in sections))


def _cut(separator: re.Pattern[str], text: str) -> tuple[str, ...]:
    """The sections of a text, each with what separates it from the one before, the first from the one behind."""
    starts = [match.start() for match in separator.finditer(text)]
    if starts and not text[: starts[0]].strip():
        starts = starts[1:]
    edges = [0, *starts, len(text)]
    found = [text[start:end] for start, end in pairwise(edges)]
    behind = separator.match(text, edges[1]) if len(found) > 1 else None
    if behind is not None:
        found[0] += behind[0]
    return tuple(section for section in found if section.strip())


def _likest(version: _Version, versions: dict[str, _Version], holders: dict[str, str]) -> _Version | None:
    """The earlier text with which a version shares most, if that is half of the shorter one."""
    shared: Counter[str] = Counter()
    for skeleton in version.skeletons:
        if skeleton in holders:
            shared[holders[skeleton]] += len(skeleton)
    if not shared:
        return None
    text, num_chars = shared.most_common(1)[0]
    other = versions[text]
    shorter = min(sum(map(len, version.skeletons)), sum(map(len, other.skeletons)))
    return other if num_chars * 2 >= shorter else None


def _come_or_gone(old: _Version, new: _Version) -> Iterator[tuple[str, str]]:
    matcher = SequenceMatcher(None, old.skeletons, new.skeletons, autojunk=False)
    for verb, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if verb not in {"insert", "delete"}:
            continue
        owner, start, end = (new, new_start, new_end) if verb == "insert" else (old, old_start, old_end)
        for section, skeleton in zip(owner.sections[start:end], owner.skeletons[start:end], strict=True):
            if len(section.strip()) >= MIN_SECTION_CHARS:
                yield section, skeleton
