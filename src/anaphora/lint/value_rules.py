"""L1 and L5: values that change, and users' own words, in front of what stays the same."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from anaphora.explain.bodies import tool_name
from anaphora.explain.comparison import Comparison, changed_ranges
from anaphora.explain.user_kinds import user_in_system
from anaphora.explain.values import NAMES, Piece, changed_values
from anaphora.lint.log import Log
from anaphora.lint.snippets import Snippets
from anaphora.lint.spots import Spot, sentence_around, text_leaves
from anaphora.lint.suspect import Suspect, against, trimmed

_SURE_KINDS = frozenset({"uuid", "time", "epoch", "ulid", "path"})
"""Values that are volatile by their form, even if they were seen once."""

_FIELDS_OF_USER = ("user", "safety_identifier")
_KINDS_OF_USER = frozenset({"email", "uuid", "ulid", "hex", "id", "number"})
"""Values that may well be a user's own."""

MIN_ID_CHARS = 4
MAX_GROUP_WITH_ONE_CHANGE = 3
MAX_LABEL_CHARS = 32
MAX_NAME_CHARS = 64
MIN_TEXT_BEHIND_CHARS = 64
MAX_RANGES = 8


class _Sentence(NamedTuple):
    """One sentence with a value, in one request. Its like stands at the same path of others."""

    request: int
    path: str
    text: str
    kinds: tuple[str, ...]
    values: tuple[str, ...]


def values_in_front(log: Log) -> Iterator[Suspect]:
    """L1 and L5; a sentence that names a user is not reported as a value once more."""
    named = _Named(log)
    named.add_all()
    yield from named.suspects()
    yield from _volatile_values(log, named.snippets)
    yield from _changing_history(log)
    yield from _changing_raw(log)


def _volatile_values(log: Log, named: Snippets) -> Iterator[Suspect]:
    """L1 in system texts and tools. Sentences are compared that differ in nothing but their values."""
    groups: dict[tuple[str, str, int, int], list[_Sentence]] = defaultdict(list)
    for index in range(len(log)):
        for key, path, text in _early_texts(log, index):
            alike: dict[str, list[_Sentence]] = defaultdict(list)
            for skeleton, sentence in _sentences(log, index, path, text):
                if not named.has(index, path, sentence.text):
                    alike[skeleton].append(sentence)
            for skeleton, sentences in alike.items():
                for number, sentence in enumerate(sentences):
                    groups[key, skeleton, number, len(sentences)].append(sentence)
    by_key: dict[str, list[list[_Sentence]]] = defaultdict(list)
    for (key, *_), group in groups.items():
        by_key[key].append(group)
    for several in by_key.values():
        yield from _changing([group for group in several if _is_changing(group)])
        yield from _seen_once(log, [group[0] for group in several if len(group) == 1])


def _early_texts(log: Log, index: int) -> Iterator[tuple[str, str, str]]:
    """Texts that stand before a conversation: what they are known by, their paths, and themselves."""
    for spot in log.spots[index]:
        if spot.is_system:
            yield spot.path, spot.path, spot.text
    for number, tool in enumerate(log.tools_of(index)):
        for path, text in text_leaves(tool, f"tools[{number}]"):
            yield f"tools {tool_name(tool)} {path.partition(']')[2]}", path, text


def _sentences(log: Log, index: int, path: str, text: str) -> Iterator[tuple[str, _Sentence]]:
    ranges: dict[tuple[int, int], list[Piece]] = defaultdict(list)
    for piece in log.pieces(text):
        if piece.kind:
            ranges[sentence_around(text, piece.start, piece.start + len(piece.text))].append(piece)
    for (start, end), found in ranges.items():
        sentence, kinds = text[start:end], tuple(str(piece.kind) for piece in found)
        yield log.skeleton(sentence), _Sentence(index, path, sentence, kinds, tuple(p.text for p in found))


def _is_changing(group: Sequence[_Sentence]) -> bool:
    """Whether values change from request to request; one change in a long log is a new version, not a value."""
    num_changes = sum(a.values != b.values for a, b in pairwise(group))
    return num_changes > 1 or (num_changes == 1 and len(group) <= MAX_GROUP_WITH_ONE_CHANGE)


def _changing(groups: Sequence[Sequence[_Sentence]]) -> Iterator[Suspect]:
    snippets, kinds, evidence = Snippets(), set(), ""
    for group in groups:
        columns = zip(group[0].kinds, *(sentence.values for sentence in group), strict=False)
        for kind, *values in columns:
            distinct = list(dict.fromkeys(values))
            if len(distinct) > 1:
                kinds.add(kind)
                evidence = evidence or against(distinct[0], distinct[1])
        for sentence in group:
            snippets.add(sentence.request, sentence.path, sentence.text)
    if evidence:
        names = ", ".join(NAMES[kind] for kind in sorted(kinds))
        yield Suspect(
            rule="L1",
            code="volatile_value",
            path=groups[0][0].path,
            evidence=evidence,
            fix=f"Move {names} to the last user message, coarsen it to the day, or make it a tool.",
            indices=snippets.indices,
            certainty="inferred",
            mend=snippets.mend,
            is_safe=True,
        )


def _seen_once(log: Log, sentences: Sequence[_Sentence]) -> Iterator[Suspect]:
    """A value in a sentence that no other request has, in the first half of a prompt: the next one may lose it."""
    snippets, evidence, path = Snippets(), "", ""
    for sentence in sentences:
        prompt = log.records[sentence.request].prompt.text
        sure = [v for k, v in zip(sentence.kinds, sentence.values, strict=True) if k in _SURE_KINDS]
        place = prompt.find(sentence.text)
        if sure and 0 <= place < len(prompt) // 2:
            snippets.add(sentence.request, sentence.path, sentence.text)
            path, evidence = path or sentence.path, evidence or repr(sure[0])
    if evidence:
        yield Suspect(
            rule="L1",
            code="volatile_value",
            path=path,
            evidence=f"{evidence}, in a sentence seen once",
            fix="If it changes, move it to the last user message: all that follows it is computed again.",
            indices=snippets.indices,
            certainty="inferred",
            mend=snippets.mend,
            is_safe=True,
        )


def _changing_history(log: Log) -> Iterator[Suspect]:
    """The same conversation sent again with another value in an earlier turn, and equal turns behind it."""
    snippets, evidence, path = Snippets(), "", ""
    for index, earlier in enumerate(log.previous_turn):
        pair = None if earlier is None else _first_other_turn(log.spots[earlier], log.spots[index])
        if earlier is None or pair is None:
            continue
        old, new = pair
        values, reached = changed_values(old.text, new.text)
        if values and reached == len(new.text):
            path, evidence = path or new.path, evidence or against(values[0].old, values[0].new)
            for value in values:
                for i, spot, start, size in (
                    (earlier, old, value.old_start, len(value.old)),
                    (index, new, value.new_start, len(value.new)),
                ):
                    snippets.add_sentence(i, spot.path, spot.text, start, start + size)
    if evidence:
        yield Suspect(
            rule="L1",
            code="volatile_value",
            path=path,
            evidence=evidence,
            fix="Leave an earlier turn as it was sent; put what changes into the newest one.",
            indices=snippets.indices,
            certainty="inferred",
            mend=snippets.mend,
        )


def _first_other_turn(old: Sequence[Spot], new: Sequence[Spot]) -> tuple[Spot, Spot] | None:
    a, b = ([spot for spot in spots if spot.message >= 0 and not spot.is_system] for spots in (old, new))
    for number, (x, y) in enumerate(zip(a, b, strict=False)):
        if x.text != y.text:
            rest = zip(a[number + 1 :], b[number + 1 :], strict=False)
            return (x, y) if x.role == y.role and any(p.text == q.text for p, q in rest) else None
    return None


def _changing_raw(log: Log) -> Iterator[Suspect]:
    snippets, evidence = Snippets(), ""
    for index, near in enumerate(log.nearest):
        old = log.sources[near.request].get("prompt") if near is not None else None
        new = log.sources[index].get("prompt")
        if near is None or not isinstance(old, str) or not isinstance(new, str):
            continue
        values, reached = changed_values(old, new)
        if values and reached - values[0].new_start >= MIN_TEXT_BEHIND_CHARS:
            evidence = evidence or against(values[0].old, values[0].new)
            value = values[0]
            snippets.add_sentence(
                near.request, "prompt", old, value.old_start, value.old_start + len(value.old)
            )
            snippets.add_sentence(index, "prompt", new, value.new_start, value.new_start + len(value.new))
    if evidence:
        yield Suspect(
            rule="L1",
            code="volatile_value",
            path="prompt",
            evidence=evidence,
            fix="Move it behind what stays the same, coarsen it to the day, or make it a tool.",
            indices=snippets.indices,
            certainty="inferred",
            mend=snippets.mend,
        )


# ---------------------------------------------------------------------------------------------------------------------
# L5


def _system_texts(log: Log, index: int) -> list[str]:
    return [spot.text for spot in log.spots[index] if spot.is_system]


class _Named:
    """L5: words of the system text that name a user or a session, known by what stands before them in their line."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._values: dict[str, set[str]] = defaultdict(set)
        self.path = self.evidence = ""

    def add_all(self) -> None:
        """Look at all requests."""
        for index, near in enumerate(self._log.nearest):
            self._add_declared(index)
            if near is not None and _system_texts(self._log, near.request) != _system_texts(self._log, index):
                self._add_compared(near.request, index)

    def suspects(self) -> Iterator[Suspect]:
        """Give the one suspect, if there is any."""
        if self.evidence:
            yield Suspect(
                rule="L5",
                code="user_in_system",
                path=self.path,
                evidence=self.evidence,
                fix="Move what names the user behind the part that all users share.",
                indices=self.snippets.indices,
                certainty="inferred",
                mend=self.snippets.mend,
                is_safe=True,
            )

    def _add_declared(self, index: int) -> None:
        """Look for the user whom the request itself names in a field of its own."""
        source = self._log.sources[index]
        metadata = source.get("metadata")
        values = [source.get(name) for name in _FIELDS_OF_USER]
        values.append(metadata.get("user_id") if isinstance(metadata, Mapping) else None)
        for spot in self._log.spots[index]:
            for value in values:
                if spot.is_system and isinstance(value, str) and len(value) >= MIN_ID_CHARS:
                    start = spot.text.find(value)
                    if start >= 0:
                        self._add(spot.path, spot.text, start, start + len(value), repr(trimmed(value)))

    def _add_compared(self, earlier: int, index: int) -> None:
        """Compare two requests whose system texts differ."""
        c = Comparison(self._log.records[earlier], self._log.records[index])
        finding, pair = user_in_system(c), c.pair
        if finding is None or pair is None:
            return
        evidence = against(finding.old or "", finding.new or "")
        for old_start, old_end, new_start, new_end in changed_ranges(pair.old, pair.new)[:MAX_RANGES]:
            words = (pair.old[old_start:old_end], pair.new[new_start:new_end])
            is_short = all(0 < len(text) <= MAX_NAME_CHARS and "\n" not in text for text in words)
            if is_short and not self._is_clock(pair.new, new_start, new_end):
                self._add(pair.path, pair.old, old_start, old_end, evidence)
                self._add(pair.path, pair.new, new_start, new_end, evidence)

    def _is_clock(self, text: str, start: int, end: int) -> bool:
        """Whether a range touches a value that changes by itself, not with the user."""
        return any(
            piece.kind not in {None, *_KINDS_OF_USER}
            and piece.start < end
            and start < piece.start + len(piece.text)
            for piece in self._log.pieces(text)
        )

    def _add(self, path: str, text: str, start: int, end: int, evidence: str) -> None:
        line_start = text.rfind("\n", 0, start) + 1
        label = text[max(line_start, start - MAX_LABEL_CHARS) : start]
        if end > start and label.strip():
            self._values[label].add(text[start:end])
            self.path, self.evidence = self.path or path, self.evidence or evidence

    @cached_property
    def snippets(self) -> Snippets:
        """What names users, in all requests: also in those that were compared with one of the same user."""
        snippets = Snippets()
        for index, spots in enumerate(self._log.spots):
            for spot in spots:
                for start, end in self._ranges(spot.text) if spot.is_system else ():
                    snippets.add_sentence(index, spot.path, spot.text, start, end)
        return snippets

    def _ranges(self, text: str) -> Iterator[tuple[int, int]]:
        for label, values in self._values.items():
            start = text.find(label)
            if start >= 0:
                start += len(label)
                ends = [start + len(value) for value in values if text.startswith(value, start)]
                if ends:
                    yield start, max(ends)
