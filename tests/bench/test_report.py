"""Exit codes, and what is left out when arms cannot be compared."""

from typing import Any

import pytest

from anaphora.bench.experiment import Conclusion
from anaphora.bench.measurement import Log
from anaphora.bench.report import Report
from tests.bench.fakes import measured, target


def _report(conclusion: Conclusion, log: Log | None = None, partial: str | None = None) -> Report:
    facts: dict[str, Any] = {
        "experiment": "prefix",
        "loop": "closed",
        "seed": 1,
        "client": {},
        "settings": {},
    }
    return Report(
        **facts,
        targets=[target()],
        lengths="known",
        log=log or Log([measured()]),
        arms=[],
        conclusion=conclusion,
        partial=partial,
    )


@pytest.mark.parametrize(
    ("conclusion", "log", "partial", "code", "line"),
    [
        (Conclusion(), None, None, 0, "comparable: yes"),
        (Conclusion(is_flagged=True), None, None, 2, "comparable: yes"),
        (Conclusion(disagreements=["x"]), None, None, 2, "comparable: yes"),
        (Conclusion(doubts=["x", "y"]), None, None, 2, "comparable: no (x; y)"),
        (Conclusion(), None, "stopped", 1, "comparable: no (partial: stopped)"),
        (Conclusion(), Log([measured(failure="lost")]), None, 1, "comparable: yes"),
    ],
)
def test_the_exit_code_and_the_exit_line(
    conclusion: Conclusion, log: Log | None, partial: str | None, code: int, line: str
) -> None:
    """0 fine, 2 something to look at, 1 nothing to look at, or not all of it."""
    report = _report(conclusion, log, partial)
    assert (report.exit_code, report.exit_line) == (code, line)


def test_claims_are_made_only_where_arms_can_be_compared() -> None:
    """The times stay; their ranking goes."""
    assert _report(Conclusion(findings=["a"], claims=["b"])).findings == ["a", "b"]
    doubtful = _report(Conclusion(findings=["a"], claims=["b"], doubts=["lengths differ"]))
    assert doubtful.findings == ["a", "no gain is claimed, since the run is not comparable"]
    assert _report(Conclusion(findings=["a"], doubts=["x"])).findings == ["a"]


def test_time_outs_are_counted_among_the_failures() -> None:
    """And told apart from them."""
    log = Log([measured(failure="time-out: no full answer in 5 s"), measured(failure="lost"), measured()])
    found = _report(Conclusion(), log).as_json()
    assert (found["requests_sent"], found["requests_failed"], found["timeouts"], found["retries"]) == (
        3,
        2,
        1,
        0,
    )
