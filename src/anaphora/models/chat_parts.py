"""Finds which characters of a rendered conversation come from which part of it: contents, messages, the rest.

Knows nothing of jinja: rendering is handed in.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from anaphora.models.chat_contents import find_contents
from anaphora.models.chat_markup import Markup, RenderDialogue, Turn, learn_markup
from anaphora.models.spans import CharSpan


class PartFinder:
    """Finds the parts in renderings of one template, whose habits it learns when it is made."""

    def __init__(self, render: RenderDialogue) -> None:
        self._markup = learn_markup(render)

    def find(
        self, text: str, turns: Sequence[Turn], render: Callable[[Sequence[Turn]], str], *, has_prompt: bool
    ) -> tuple[CharSpan, ...]:
        """Return the parts of `text`, which is `turns` rendered, in their order; a part not found is left out.

        `render` is called once, with other texts in the turns. `has_prompt` says that the text ends with a
        generation prompt.
        """
        contents = find_contents(text, turns, render, self._markup.verbatim_roles)
        parts = [CharSpan(turns[turn].paths[part], *place) for (turn, part), place in contents.items()]
        runs = _runs(contents)
        # Some templates move messages; what lies between them then belongs to nobody.
        if runs and all(a.turn < b.turn for a, b in pairwise(runs)):
            parts += _Frame(text, [turn.role for turn in turns], runs, self._markup).parts(
                has_prompt=has_prompt
            )
        return tuple(sorted(parts, key=lambda part: (part.start, -part.end, len(part.path))))


class _Run(NamedTuple):
    """The range of the rendered text that holds the content of one message."""

    turn: int
    start: int
    end: int


def _runs(contents: dict[tuple[int, int], tuple[int, int]]) -> list[_Run]:
    """One range for all contents of a message that follow one another."""
    runs: list[_Run] = []
    for (turn, _), (start, end) in contents.items():
        if runs and runs[-1].turn == turn:
            runs[-1] = runs[-1]._replace(end=end)
        else:
            runs.append(_Run(turn, start, end))
    return runs


class _Frame:
    """Draws the borders of messages around their contents, where the text has the markup that is expected."""

    def __init__(self, text: str, roles: Sequence[str], runs: Sequence[_Run], markup: Markup) -> None:
        self._text = text
        self._roles = roles
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
        last, last_turn = self._runs[-1], len(self._roles) - 1
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
        ending = self._markup.ending(self._roles[run.turn])
        if ending is None or run.end + len(ending) > limit or not self._text.startswith(ending, run.end):
            return None
        return run.end + len(ending)

    def _header_start(self, run: _Run, limit: int) -> int | None:
        """Where the markup before a message starts; None when it is not the expected one."""
        header = self._markup.header(self._roles[run.turn])
        start = run.start - len(header or "")
        if header is None or start < limit or not self._text.startswith(header, start):
            return None
        return start
