"""Finds which characters of a rendered conversation come from which part of it: contents, messages, tools, the rest.

Knows nothing of jinja: rendering is handed in.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from anaphora.models.chat_contents import Range, find_contents
from anaphora.models.chat_markup import Markup, RenderDialogue, Turn, learn_markup
from anaphora.models.chat_objects import FoundObject, Tools, find_objects
from anaphora.models.spans import CharSpan


class PartFinder:
    """Finds the parts in renderings of one template, whose habits it learns when it is made."""

    def __init__(self, render: RenderDialogue) -> None:
        self._markup = learn_markup(render)

    def find(
        self,
        text: str,
        turns: Sequence[Turn],
        tools: Tools,
        render: Callable[[Sequence[Turn]], str],
        render_marked: Callable[[Sequence[Turn], Tools], str],
        *,
        has_prompt: bool,
    ) -> tuple[CharSpan, ...]:
        """Return the parts of `text`, which is `turns` and `tools` rendered, in their order; one not found is left out.

        `render` is called once, with other texts in the turns; `render_marked` only if there are tools or calls,
        with such as show where they are written. `has_prompt` says that the text ends with a generation prompt.
        """
        objects = find_objects(text, tools, turns, render_marked)
        contents = _outside(find_contents(text, turns, render, self._markup.verbatim_roles), objects)
        parts = [CharSpan(turns[turn].paths[part], *place) for (turn, part), place in contents.items()]
        parts += [found.part for found in objects]
        runs = _runs(contents, objects)
        # Some templates move messages; what lies between them then belongs to nobody.
        if runs and all(a.turn < b.turn for a, b in pairwise(runs)):
            parts += _Frame(text, turns, runs, self._markup).parts(has_prompt=has_prompt)
        return tuple(sorted(parts, key=lambda part: (part.start, -part.end, len(part.path))))


class _Run(NamedTuple):
    """The range of the rendered text that holds the content and the tool calls of one message."""

    turn: int
    start: int
    end: int


def _outside(
    contents: dict[tuple[int, int], Range], objects: Sequence[FoundObject]
) -> dict[tuple[int, int], Range]:
    """The contents that touch no tool and no call: a content that was searched for may have been found in one."""
    taken = sorted((found.part.start, found.part.end) for found in objects if found.is_whole)
    starts = [start for start, _ in taken]

    def is_free(place: Range) -> bool:
        before = bisect_right(starts, place[1] - 1)  # those that start before the content ends
        return before == 0 or taken[before - 1][1] <= place[0]

    return {key: place for key, place in contents.items() if is_free(place)}


def _runs(contents: dict[tuple[int, int], Range], objects: Sequence[FoundObject]) -> list[_Run]:
    """One range for all contents and calls of a message that follow one another."""
    pieces = [_Run(turn, *place) for (turn, _), place in contents.items()]
    pieces += [
        _Run(found.turn, found.part.start, found.part.end)
        for found in objects
        if found.is_whole and found.turn is not None
    ]
    runs: list[_Run] = []
    for piece in sorted(pieces, key=lambda piece: (piece.start, piece.end)):
        if runs and runs[-1].turn == piece.turn:
            runs[-1] = runs[-1]._replace(end=piece.end)
        else:
            runs.append(piece)
    return runs


class _Frame:
    """Draws the borders of messages around their contents, where the text has the markup that is expected."""

    def __init__(self, text: str, turns: Sequence[Turn], runs: Sequence[_Run], markup: Markup) -> None:
        self._text = text
        self._turns = turns
        self._runs = runs
        self._markup = markup
        self._starts = {run.turn: run.start for run in runs}
        self._ends = {run.turn: run.end for run in runs}

    def parts(self, *, has_prompt: bool) -> list[CharSpan]:
        """Return the messages, the preamble and the generation prompt, those that are certain."""
        preamble_end = self._open_first()
        for before, after in pairwise(self._runs):
            self._divide(before, after)
        prompt_start = self._close_last(self._prompt_start() if has_prompt else len(self._text))
        parts = [CharSpan(f"messages[{k}]", start, self._ends[k]) for k, start in self._starts.items()]
        if preamble_end:
            parts.append(CharSpan("template-preamble", 0, preamble_end))
        if prompt_start is not None and prompt_start < len(self._text):
            parts.append(CharSpan("generation-prompt", prompt_start, len(self._text)))
        return parts

    def _open_first(self) -> int | None:
        """Give the first message its header; return where it starts, or None when others come before it."""
        first = self._runs[0]
        start = self._header_start(first, 0)
        self._starts[first.turn] = first.start if start is None else start
        return self._starts[first.turn] if first.turn == 0 else None

    def _divide(self, before: _Run, after: _Run) -> None:
        """Give two messages what lies between them, and one without a content between them its place there."""
        end = self._ending_end(before, after.start)
        start = self._header_start(after, before.end)
        if after.turn == before.turn + 1:
            end = start if end is None else end
            start = end
        elif after.turn == before.turn + 2:
            self._insert(before.turn + 1, end, start)
        self._ends[before.turn] = before.end if end is None else end
        self._starts[after.turn] = after.start if start is None else start

    def _close_last(self, prompt_start: int | None) -> int | None:
        """Give the last messages what is before the generation prompt; return where that starts, if known."""
        last, last_turn = self._runs[-1], len(self._turns) - 1
        end = self._ending_end(last, len(self._text))
        if last.turn == last_turn:
            prompt_start = end if prompt_start is None else prompt_start
            end = prompt_start if end is None else end
        elif last.turn == last_turn - 1:
            self._insert(last_turn, end, prompt_start)
        self._ends[last.turn] = last.end if end is None else end
        return prompt_start

    def _prompt_start(self) -> int | None:
        """Where the usual generation prompt starts; None when another one was rendered."""
        prompt = self._markup.generation_prompt
        start = len(self._text) - len(prompt)
        is_there = bool(prompt) and self._text.endswith(prompt) and start >= self._runs[-1].end
        return start if is_there else None

    def _insert(self, turn: int, start: int | None, end: int | None) -> None:
        if start is not None and end is not None and start < end:
            self._starts[turn], self._ends[turn] = start, end

    def _ending_end(self, run: _Run, limit: int) -> int | None:
        """Where the markup behind a message ends; None when it is not the expected one."""
        ending = self._markup.ending(self._turns[run.turn].role)
        if ending is None or run.end + len(ending) > limit or not self._text.startswith(ending, run.end):
            return None
        if not ending and self._turns[run.turn].fields.get("tool_calls"):
            return None  # the markup of a call may follow, and nothing says where it ends
        return run.end + len(ending)

    def _header_start(self, run: _Run, limit: int) -> int | None:
        """Where the markup before a message starts; None when it is not the expected one."""
        header = self._markup.header(self._turns[run.turn].role)
        start = run.start - len(header or "")
        if header is None or start < limit or not self._text.startswith(header, start):
            return None
        return start
