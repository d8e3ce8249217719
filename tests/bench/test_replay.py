"""A trace at its own pace."""

from typing import Any

import pytest

from anaphora.bench.replay import ABANDONED, ReplayExperiment, TracedRequest
from anaphora.errors import ConfigError
from tests.bench.fakes import FakeServer, bench, target

TRACE = (
    TracedRequest(10.0, 64, 4, (0, 1)),
    TracedRequest(12.0, 60, 4, (0, 2)),
    TracedRequest(13.0, 64, 4, (0, 1)),
    TracedRequest(13.01, 32, 4, (3,)),
)


def _replay(**settings: Any) -> ReplayExperiment:
    known: dict[str, Any] = {"requests": TRACE, "block_size": 32, "scale": 1.0}
    return ReplayExperiment(**known | settings)


def test_equal_ids_give_equal_beginnings_and_the_ceiling_is_reached() -> None:
    """32 tokens of the second request and all of the third are known; the last token is always computed."""
    report = bench(_replay(), FakeServer())
    entries = sorted(report.log, key=lambda entry: entry.number)
    assert [(e.prompt_tokens, e.planned, e.answer.cached_tokens) for e in entries] == [
        (64, 0, 0),
        (60, 32, 32),
        (64, 64, 48),
        (32, 0, 0),
    ]
    assert report.conclusion.findings[1:3] == [
        "all: hit rate 36.4%, an endless cache 36.4%, achieved ÷ achievable 1.000",
        "last half: hit rate 50.0%, an endless cache 50.0%, achieved ÷ achievable 1.000",
    ]
    assert (report.arms[0].reported, report.arms[0].counted) == (80, 80)
    assert (report.exit_code, report.conclusion.disagreements) == (0, [])


def test_requests_are_sent_at_their_times_whatever_the_server_does() -> None:
    """The loop is open: a slow server is met by the next request all the same."""
    report = bench(_replay(speed=2.0), FakeServer(slow=100.0))
    assert all(entry.queue_s == pytest.approx(0.0, abs=1e-6) for entry in report.log)
    assert (
        "4 of 4 requests answered, at 2 times the trace's pace, lengths × 1.0000"
        in report.conclusion.findings[0]
    )


@pytest.mark.parametrize(
    ("facts", "scale"),
    [
        ({"max_model_len": 8192, "tokenize": "vllm"}, 4096 / 90_000),
        ({"max_model_len": 1024, "tokenize": "vllm"}, (1024 - 64) / 90_000),
        ({"max_model_len": 1024}, (1024 - 64) / 2 / 90_000),
        ({}, 2048 / 90_000),
    ],
)
def test_the_scale_is_such_that_the_longest_request_fits(facts: dict[str, Any], scale: float) -> None:
    """Where tokens are only estimated, half of the context is left free."""
    long = _replay(requests=(TracedRequest(0.0, 80_000, 10_000, ()),), scale=None)
    found = long.scale_for(target(**facts))
    assert found == pytest.approx(scale)
    assert _replay(scale=None).scale_for(target()) == 1.0


def test_what_was_under_way_when_the_server_went_away_is_counted() -> None:
    """The second hangs, the third finds no server, the fourth is never sent."""
    report = bench(_replay(), FakeServer(trouble={3: "hang", 4: "down"}))
    failures = [entry.answer.failure for entry in report.log if not entry.is_good]
    assert failures == ["no connection: refused", ABANDONED]
    assert report.partial is not None and "no connection" in report.partial
    assert (len(report.log), len(report.log.good()), report.exit_code) == (3, 1, 1)
    assert report.arms[0].counted is None  # a part of what was counted is of those that failed


def test_the_counters_say_nothing_of_a_half() -> None:
    """They ran over the whole."""
    report = bench(_replay(), FakeServer(reports="nothing"))
    assert "by /metrics" in report.conclusion.findings[1]
    assert report.conclusion.findings[2].startswith("last half: hit rate not reported")


def test_a_context_that_holds_no_request_is_refused() -> None:
    """Rather than replayed with prompts of one token."""
    with pytest.raises(ConfigError, match="a context of 60 tokens, too few for a replay"):
        bench(_replay(scale=None), FakeServer(max_model_len=60))


def test_where_only_hits_are_reported_the_whole_is_told_by_the_counters_alone() -> None:
    """The first request is silent and holds the counters of all."""
    report = bench(_replay(), FakeServer(reports="hits"))
    assert report.conclusion.findings[1] == (
        "all: hit rate 36.4% by /metrics, an endless cache 36.4%, achieved ÷ achievable 1.000"
    )
    assert (report.conclusion.disagreements, report.exit_code) == ([], 0)


def test_counters_that_come_late_are_waited_for() -> None:
    """The last requests would be missing otherwise."""
    report = bench(_replay(), FakeServer(late_s=0.4))
    assert (report.arms[0].counted, report.conclusion.disagreements, report.reasons) == (80, [], [])


def test_counters_that_never_come_are_not_waited_for_long() -> None:
    """A second for looks at a server that counts less than it answers, and what it says is then told as it is."""
    server = FakeServer(late_s=60.0, reports="nothing")
    report = bench(_replay(), server)
    assert (server.prompt_total, report.arms[0].counted) == (0, 0)
