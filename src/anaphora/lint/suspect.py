"""What a rule hands back, and what it becomes once its cost has been counted: plain data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anaphora.explain.records import Certainty
from anaphora.lint.spots import Source

Severity = Literal["high", "medium", "low"]
SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
"""Worst first."""

HIGH_SHARE, MEDIUM_SHARE = 0.10, 0.01
"""Of the prompt tokens of the log: what a finding must cost to be of that severity."""

MAX_EVIDENCE_CHARS = 160
MAX_LINES = 5

Mend: TypeAlias = Callable[[int, Source], Source]
"""The number of a request in the log and its body → the body without the fault; the same object if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What a rule has found, before anybody has counted what it costs.

    `indices` are the requests it was found in. `mend` is applied to all requests to count the cost; `lost` is the
    cost by the law where no body can be mended. `is_safe` says that `--fix` may apply it: it only moves or freezes.
    `severity` is for what costs nothing in this log, or cannot be counted in it.
    """

    rule: str
    code: str
    path: str
    evidence: str
    fix: str
    indices: tuple[int, ...]
    certainty: Certainty = "known"
    mend: Mend | None = None
    lost: int = 0
    is_safe: bool = False
    severity: Severity = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """A suspect with its cost: tokens that would have been reused without it."""

    suspect: Suspect
    severity: Severity
    tokens_lost: int
    lines: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the object that the command prints."""
        suspect = self.suspect
        return {
            "rule": suspect.rule,
            "severity": self.severity,
            "code": suspect.code,
            "certainty": suspect.certainty,
            "requests": len(suspect.indices),
            "tokens_lost": self.tokens_lost,
            "path": suspect.path,
            "evidence": suspect.evidence,
            "fix": suspect.fix,
            "lines": list(self.lines),
        }


def severity_of(tokens_lost: int, prompt_tokens: int, least: Severity) -> Severity:
    """Return the severity of a cost as a share of all prompt tokens, `least` or worse."""
    share = tokens_lost / prompt_tokens if prompt_tokens else 0.0
    by_share: Severity = "high" if share >= HIGH_SHARE else "medium" if share >= MEDIUM_SHARE else "low"
    return min(by_share, least, key=SEVERITIES.index)


def trimmed(text: str, limit: int = MAX_EVIDENCE_CHARS) -> str:
    """Return a text that fits a line of a report."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def against(old: str, new: str) -> str:
    """Return two versions of one thing as evidence."""
    half = MAX_EVIDENCE_CHARS // 2 - 8
    return f"{trimmed(old, half)!r} against {trimmed(new, half)!r}"
