"""Adds up what the requests of each model used, and counts what nobody reported."""

from collections import Counter
from dataclasses import dataclass, field

from anaphora.cost.lines import Entry, LeftOut
from anaphora.cost.usage import TokenSplit, Usage

COUNTED_BEFORE = "repetitions of a response already counted"


@dataclass(slots=True)
class Tally:
    """The sums over one model. `num_requests` is None where a server does not say how many there were.

    `split` covers the requests whose provider reported it; `not_said` counts the others by reason, and
    `num_unclassed` those whose split has tokens without a class. `output` is None when one request of these,
    or the server, did not report it. `raw` adds up the providers' own fields, of all requests.
    """

    provider: str
    model: str | None
    num_requests: int | None = 0
    split: TokenSplit = field(default_factory=TokenSplit)
    num_unclassed: int = 0
    output: int | None = 0
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
        self.output = (
            None if None in (self.output, usage.output) else (self.output or 0) + (usage.output or 0)
        )


class Log:
    """All that was read: a tally per provider and model, and the lines that were left out.

    A response that comes again, with the same id and the same counts, is counted once: logs of streams repeat
    the usage, and a copy would charge its tokens twice.
    """

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._tallies: dict[tuple[str, str | None], Tally] = {}
        self._seen: set[tuple[str, str, str | None, TokenSplit]] = set()

    @property
    def tallies(self) -> list[Tally]:
        """In the order in which the models came."""
        return list(self._tallies.values())

    def take(self, found: Entry | LeftOut, default_model: str | None = None) -> None:
        """Count what a line says; `default_model` is the model of lines that name none."""
        if isinstance(found, LeftOut):
            self.left_out[found.reason] += 1
            return
        usage, model = found.usage, found.model or default_model
        if found.response_id and usage.split:
            copy = (found.response_id, usage.provider, model, usage.split)
            if copy in self._seen:
                self.left_out[COUNTED_BEFORE] += 1
                return
            self._seen.add(copy)
        self._tallies.setdefault((usage.provider, model), Tally(usage.provider, model)).add(usage)

    def take_tally(self, tally: Tally) -> None:
        """Take over the sums of a server."""
        self._tallies[tally.provider, tally.model] = tally
