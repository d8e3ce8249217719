"""Adds up what the requests of each model used, and counts what nobody reported."""

from collections import Counter
from dataclasses import dataclass, field, replace

from anaphora.cost.lines import Entry, LeftOut
from anaphora.cost.shapes import prompt_fields
from anaphora.cost.usage import TokenSplit, Usage

_Prompt = TokenSplit | frozenset[tuple[str, int]] | None
"""What a response says of its prompt: a split, or the fields that make none; None while both may grow."""

_Key = tuple[str, str, str | None, _Prompt]

COUNTED_BEFORE = "lines that say again what a response had said"


@dataclass(slots=True)
class Tally:
    """The sums over one model. `num_requests` is None where a server does not say how many there were.

    `split` covers the requests whose provider reported it; `not_said` counts the others by reason, and
    `num_unclassed` those whose split has tokens without a class. `output` is None when one request of these,
    or the server, did not report it. `audio` and `audio_output` count tokens of sound. `raw` adds up the
    providers' own fields, of all requests.
    """

    provider: str
    model: str | None
    num_requests: int | None = 0
    split: TokenSplit = field(default_factory=TokenSplit)
    num_unclassed: int = 0
    output: int | None = 0
    audio: int = 0
    audio_output: int = 0
    not_said: Counter[str] = field(default_factory=Counter)
    raw: Counter[str] = field(default_factory=Counter)

    @property
    def num_not_said(self) -> int:
        """The requests of which nothing is in the sums."""
        return self.not_said.total()

    @property
    def is_reported(self) -> bool:
        """Whether the sums are about anything; without that their zeros mean nothing."""
        if self.num_requests is None:
            return not self.not_said
        return not self.not_said or self.num_not_said < self.num_requests

    def add(self, usage: Usage) -> None:
        """Count one request."""
        assert self.num_requests is not None, "the sums of a server take no single requests"
        self.num_requests += 1
        self.raw.update({name: value for name, value in usage.raw.items() if value is not None})
        if usage.split is None:
            self.not_said[usage.not_said or ""] += 1
            return
        self.split += usage.split
        self.num_unclassed += not usage.split.is_complete
        self.audio += usage.audio
        self.audio_output += usage.audio_output
        self.output = (
            None if None in (self.output, usage.output) else (self.output or 0) + (usage.output or 0)
        )


class Log:
    """All that was read: a tally per provider and model, and the lines that were left out.

    A response that comes again, with the same id and the same counts of its prompt, is counted once: logs of
    streams repeat the usage, and a copy would charge its tokens twice. So is one whose split only some lines tell,
    as long as what the others tell of the prompt is the same. The last line of a response has the last word on its
    output; on its prompt too, where its lines are those of a stream (`Entry.is_growing`). A line without counts
    (`Entry.is_empty`) is a request only if no line with the same id has any.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._tallies: dict[tuple[str, str | None], Tally] = {}
        self._counted: dict[_Key, Usage] = {}
        self._empty: dict[str, tuple[Usage, str | None]] = {}

    def take(self, found: Entry | LeftOut, default_model: str | None = None) -> None:
        """Take in what a line says; `default_model` is the model of lines that name none."""
        if isinstance(found, LeftOut):
            self.left_out[found.reason] += 1
            return
        usage, model = found.usage, found.model or default_model
        if found.is_empty and found.response_id:
            self._empty.setdefault(found.response_id, (usage, model))
            return
        tally = self._tally(usage, model)
        if not found.response_id:
            tally.add(usage)
            return
        prompt = None if found.is_growing else usage.split or prompt_fields(usage)
        key = (found.response_id, usage.provider, model, prompt)
        earlier = self._counted.get(key)
        self._counted[key] = usage if earlier is None else _later(earlier, usage)
        self.left_out[COUNTED_BEFORE] += earlier is not None

    def take_tally(self, tally: Tally) -> None:
        """Take over the sums of a server."""
        self._tallies[tally.provider, tally.model] = tally

    def finish(self) -> list[Tally]:
        """Return the tallies, in the order in which the models came; nothing more can be taken in then."""
        self._join_unsaid()
        with_counts = {response_id for response_id, *_ in self._counted}
        for (_, _, model, _), usage in self._counted.items():
            self._tally(usage, model).add(usage)
        for response_id, (usage, model) in self._empty.items():
            if response_id in with_counts:
                self.left_out[COUNTED_BEFORE] += 1
            else:
                self._tally(usage, model).add(usage)
        self._counted.clear()
        self._empty.clear()
        self.left_out = +self.left_out
        return list(self._tallies.values())

    def _join_unsaid(self) -> None:
        """Join lines without a split to the line of the same response that has one."""
        splits: dict[tuple[str, str, str | None], list[_Key]] = {}
        for key, usage in self._counted.items():
            if usage.split is not None:
                splits.setdefault(key[:3], []).append(key)
        for key in [key for key, usage in self._counted.items() if usage.split is None]:
            for other in splits.get(key[:3], ()):
                if prompt_fields(self._counted[key]) <= prompt_fields(self._counted[other]):
                    self._counted[other] = _later(self._counted.pop(key), self._counted[other])
                    self.left_out[COUNTED_BEFORE] += 1
                    break

    def _tally(self, usage: Usage, model: str | None) -> Tally:
        return self._tallies.setdefault((usage.provider, model), Tally(usage.provider, model))


def _later(earlier: Usage, usage: Usage) -> Usage:
    """Return what two lines of one response say together: a count that the later one lacks is the earlier one's."""
    if usage.split is None and earlier.split is not None:
        usage = replace(earlier, output=usage.output)
    outputs = [output for output in (earlier.output, usage.output) if output is not None]
    return replace(usage, output=max(outputs, default=None))
