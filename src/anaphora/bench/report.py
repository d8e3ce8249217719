"""The whole outcome of a run, as one object for machines."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anaphora.bench.client import NUM_RETRIES
from anaphora.bench.experiment import Conclusion
from anaphora.bench.measurement import Log
from anaphora.bench.summary import ArmSummary
from anaphora.bench.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was measured, on what, and what may be said of it. `partial` says why a run was broken off."""

    experiment: str
    loop: str
    seed: int
    client: dict[str, Any]
    settings: dict[str, Any]
    targets: Sequence[Target]
    lengths: str
    log: Log
    arms: Sequence[ArmSummary]
    conclusion: Conclusion
    partial: str | None = None

    @property
    def reasons(self) -> list[str]:
        """What speaks against comparing the arms."""
        broken_off = [f"partial: {self.partial}"] if self.partial else []
        return broken_off + self.conclusion.doubts

    @property
    def findings(self) -> list[str]:
        """What was found; how arms compare is left out where they cannot be compared."""
        found, claims = self.conclusion.findings, self.conclusion.claims
        if not claims or self.is_comparable:
            return found + claims
        return [*found, "no gain is claimed, since the run is not comparable"]

    @property
    def timeouts(self) -> int:
        """How many requests got no full answer in time."""
        return sum((entry.answer.failure or "").startswith("time-out") for entry in self.log)

    @property
    def is_comparable(self) -> bool:
        """Whether nothing does."""
        return not self.reasons

    @property
    def exit_line(self) -> str:
        """The last line of every run."""
        return "comparable: yes" if self.is_comparable else f"comparable: no ({'; '.join(self.reasons)})"

    @property
    def exit_code(self) -> int:
        """0 fine, 1 broken off or nothing answered, 2 something to look at."""
        if self.partial or not self.log.good():
            return 1
        is_flagged = self.conclusion.is_flagged or bool(self.conclusion.disagreements)
        return 2 if is_flagged or not self.is_comparable else 0

    def as_json(self) -> dict[str, Any]:
        """Return all of it, every request included."""
        failed = [entry for entry in self.log if not entry.is_good]
        return {
            "experiment": self.experiment,
            "partial": self.partial,
            "comparable": self.is_comparable,
            "reasons": self.reasons,
            "findings": self.findings,
            "disagreements": self.conclusion.disagreements,
            "output_equality": asdict(self.conclusion.equality) if self.conclusion.equality else None,
            "loop": self.loop,
            "seed": self.seed,
            "prompt_set": self.log.prompt_set,
            "lengths": self.lengths,
            "client": self.client,
            "settings": self.settings,
            "targets": [target.as_json() for target in self.targets],
            "requests_sent": len(self.log),
            "requests_failed": len(failed),
            "requests_cut": sum(entry.answer.is_cut for entry in self.log),
            "timeouts": self.timeouts,
            "retries": NUM_RETRIES,
            "arms": [arm.as_json() for arm in self.arms],
            "details": self.conclusion.details,
            "requests": [entry.as_json() for entry in self.log],
        }
