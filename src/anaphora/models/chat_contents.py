"""Finds where the contents of messages stand in a rendered conversation.

The conversation is rendered once more with a marker in place of each content. Where the markers lie shows
where the contents lie, and putting the contents back must give the real text. What cannot be proved this way
is searched for, and what is not certain is left out.
"""

import re
import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_markup import Turn

MIN_SEARCHED_CHARS = 8
"""A shorter content may stand by chance where it was not rendered."""

MAX_SEARCHED_CHARS = 50_000_000
"""Contents times characters of the text: above, nothing is searched for."""

Range: TypeAlias = tuple[int, int]


class Core(NamedTuple):
    """The inside of a text, without the white space and the tags at its ends, by which templates decide."""

    turn: int
    part: int
    start: int
    end: int
    inner: str


def find_contents(
    text: str,
    turns: Sequence[Turn],
    render: Callable[[Sequence[Turn]], str],
    verbatim_roles: frozenset[str] = frozenset(),
) -> dict[tuple[int, int], Range]:
    """Return the range of each content by turn and part, in the order of the text.

    `text` is `turns` rendered; `render` is called once, with other texts in them. A content of a role that
    is not rendered verbatim gets the range without the white space at its ends.
    """
    placed: dict[tuple[int, int], list[tuple[Range, Core]]] = {}
    for core, place in _place(text, turns, render):
        placed.setdefault((core.turn, core.part), []).append((place, core))
    contents = {}
    for (turn, part), cores in placed.items():
        (first_start, _), first = cores[0]
        whole, start = turns[turn].texts[part], first_start - first.start
        if turns[turn].role in verbatim_roles and start >= 0 and text.startswith(whole, start):
            contents[turn, part] = (start, start + len(whole))
        else:
            contents[turn, part] = (first_start, cores[-1][0][1])
    return dict(sorted(contents.items(), key=lambda item: item[1]))


def _place(
    text: str, turns: Sequence[Turn], render: Callable[[Sequence[Turn]], str]
) -> list[tuple[Core, Range]]:
    cores: list[Core] = []
    marker = secrets.token_hex(8)  # no caller can know it, so no content holds it
    masked_turns = [_mask(index, turn, marker, cores) for index, turn in enumerate(turns)]
    try:
        masked = render(masked_turns)
    except InvalidRequestError:  # the template asks for something in a content
        masked = ""
    pieces = re.split(f"{marker}x([0-9]+)z", masked)  # literal, number, literal, number, … literal
    order = [int(number) for number in pieces[1::2]]
    ranges, gap = _align(text, pieces[::2], [cores[number].inner for number in order])
    # A content that is rendered twice has no one place.
    times = Counter(order)
    placed = {order[i]: place for i, place in ranges.items() if times[order[i]] == 1}
    if gap is not None:
        wanted = {number: core.inner for number, core in enumerate(cores) if number not in placed}
        placed |= _search(text, gap, wanted)
    return [(cores[number], placed[number]) for number in sorted(placed)]


# ---------------------------------------------------------------------------------------------------------------------
# Marking

# Tags like <tool_response>, which templates look for at the ends of a content.
_OPENING = re.compile(r"<\w+>\s*")
_CLOSING = re.compile(r"\s*</\w+>\Z")
_CLOSING_MAX_CHARS = 80
_END_OF_THOUGHT = "</think>"


def _mask(index: int, turn: Turn, marker: str, cores: list[Core]) -> Turn:
    """Return the turn with the marker and a number in place of each core; append the cores, in their order."""
    texts = []
    for part, text in enumerate(turn.texts):
        masked, end = "", 0
        for core_start, core_end in _core_ranges(turn.role, text):
            masked += f"{text[end:core_start]}{marker}x{len(cores)}z"
            cores.append(Core(index, part, core_start, core_end, text[core_start:core_end]))
            end = core_end
        texts.append(masked + text[end:])
    return Turn(turn.role, turn.fields, tuple(texts), turn.paths)


def _core_ranges(role: str, text: str) -> list[Range]:
    thought_end = text.rfind(_END_OF_THOUGHT) if role == "assistant" else -1
    if thought_end < 0:
        return _trimmed(text, 0, len(text))
    # Templates keep, move or drop what an assistant thought, so it is a core of its own.
    return _trimmed(text, 0, thought_end) + _trimmed(text, thought_end + len(_END_OF_THOUGHT), len(text))


def _trimmed(text: str, start: int, end: int) -> list[Range]:
    """The range without white space and tags at its ends, alone in a list; an empty list for mere white space."""
    left = text[start:end].lstrip()
    outer = left.rstrip()
    if not outer:
        return []
    outer_start = end - len(left)
    outer_end = outer_start + len(outer)
    opening = _OPENING.match(text, outer_start, outer_end) if outer[0] == "<" else None
    inner_start = opening.end() if opening else outer_start
    closing_start = max(inner_start, outer_end - _CLOSING_MAX_CHARS)
    closing = _CLOSING.search(text, closing_start, outer_end) if outer[-1] == ">" else None
    inner_end = closing.start() if closing else outer_end
    return [(inner_start, inner_end) if inner_start < inner_end else (outer_start, outer_end)]


# ---------------------------------------------------------------------------------------------------------------------
# Placing


def _align(
    text: str, literals: Sequence[str], inners: Sequence[str]
) -> tuple[dict[int, Range], Range | None]:
    """Lay literals and inner texts over the rendered text by turns, from the left and then from the right.

    Returns the range of each inner text that is proved, by its index, and the gap in which the two disagree;
    None instead of the gap when they agree from end to end.
    """
    ranges = _align_left(text, literals, inners)
    end = ranges[len(ranges) - 1][1] if ranges else 0
    if len(ranges) == len(inners) and text == text[:end] + literals[-1]:
        return ranges, None
    mirrored = _align_left(text[::-1], _mirror(literals), _mirror(inners))
    from_right = {
        len(inners) - 1 - i: (len(text) - right, len(text) - left)
        for i, (left, right) in mirrored.items()
        if len(text) - right >= end
    }
    gap_end = min((start for start, _ in from_right.values()), default=len(text))
    return from_right | ranges, (end, gap_end)


def _align_left(text: str, literals: Sequence[str], inners: Sequence[str]) -> dict[int, Range]:
    """The ranges up to the first disagreement; an inner text counts once the literal behind it is right too."""
    ranges: dict[int, Range] = {}
    if not text.startswith(literals[0]):
        return ranges
    start = len(literals[0])
    for i, (inner, literal) in enumerate(zip(inners, literals[1:], strict=True)):
        end = start + len(inner)
        if not (text.startswith(inner, start) and text.startswith(literal, end)):
            break
        ranges[i] = (start, end)
        start = end + len(literal)
    return ranges


def _mirror(texts: Sequence[str]) -> list[str]:
    return [text[::-1] for text in reversed(texts)]


def _search(text: str, gap: Range, wanted: Mapping[int, str]) -> dict[int, Range]:
    """Find inner texts that stand exactly once in the gap, and in no other inner text."""
    if len(wanted) * (gap[1] - gap[0]) > MAX_SEARCHED_CHARS:
        return {}
    everything = "\0".join(wanted.values())
    found = {}
    for number, inner in wanted.items():
        start = text.find(inner, *gap)
        is_only = (
            start >= 0
            and start == text.rfind(inner, *gap)
            and everything.find(inner) == everything.rfind(inner)
        )
        if len(inner) >= MIN_SEARCHED_CHARS and is_only:
            found[number] = (start, start + len(inner))
    return found
