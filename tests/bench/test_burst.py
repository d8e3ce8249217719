"""Identical prompts at one moment."""

import pytest

from anaphora.bench.burst import BurstExperiment
from tests.bench.fakes import FakeServer, bench

SMALL = BurstExperiment(concurrency=4, tokens=100, rounds=3, output_tokens=2)


def test_identical_prompts_are_computed_once() -> None:
    """100 tokens for the first, and 4 for each of the three others."""
    report = bench(SMALL, FakeServer())
    assert report.conclusion.details == {
        "computed": [112] * 3,
        "computed_by_counters": [112] * 3,
        "limit": 164,
    }
    assert (
        "4 identical prompts of 100 tokens at once: 112 prompt tokens computed, 1.12 of one prompt"
        in (report.conclusion.findings[3])
    )
    assert [(arm.arm, arm.sent, arm.reported, arm.counted) for arm in report.arms] == [
        ("one", 3, 0, 0),
        ("identical", 12, 288 * 3, 288 * 3),
        ("different", 12, 0, 0),
    ]
    assert report.exit_code == 0


def test_a_server_that_computes_each_is_a_finding() -> None:
    """400 tokens for four times 100."""
    report = bench(SMALL, FakeServer(caching=False))
    assert report.conclusion.details["computed"] == [400] * 3
    assert report.exit_code == 2


def test_what_was_computed_is_unknown_where_nothing_is_reported() -> None:
    """Rather than zero."""
    report = bench(SMALL, FakeServer(reports="nothing", counts="nothing"))
    assert "the server reports no cached tokens: what was computed is unknown" in report.conclusion.findings


def test_twelve_requests_of_three_bursts_are_three_rounds_for_the_interval() -> None:
    """Those of one burst are not independent; two bursts give no interval at all."""
    report = bench(BurstExperiment(concurrency=4, tokens=100, rounds=2, output_tokens=2), FakeServer())
    identical = next(arm for arm in report.arms if arm.arm == "identical")
    assert identical.ttft and (identical.ttft.n, identical.ttft.low) == (8, None)


def test_what_was_computed_is_told_by_the_counters_where_the_answers_are_silent() -> None:
    """As with vLLM's defaults."""
    report = bench(SMALL, FakeServer(reports="nothing"))
    assert "112 prompt tokens computed by /metrics, 1.12 of one prompt" in report.conclusion.findings[3]
    assert report.exit_code == 0


def test_one_prompt_is_as_long_as_the_server_says() -> None:
    """100 words of two tokens each are one prompt of 200 tokens, not two prompts."""
    report = bench(SMALL, FakeServer(tokenize=None, per_word=2))
    assert (
        "4 identical prompts of 200 tokens at once: 224 prompt tokens computed, 1.12 of one prompt"
        in (report.conclusion.findings[3])
    )


def test_a_burst_of_which_one_failed_is_left_out() -> None:
    """Three of four computed less; that is no coalescing."""
    report = bench(
        BurstExperiment(concurrency=4, tokens=100, rounds=1, output_tokens=2),
        FakeServer(trouble={4: "500", 8: "500"}),
    )
    assert report.conclusion.details["computed"] in ([], [112])
    assert not report.is_comparable


def test_where_only_hits_are_reported_a_burst_is_counted_by_the_counters_alone() -> None:
    """The first is silent and holds the counters of all four: its 288 are the 96 that each of the others reports."""
    report = bench(SMALL, FakeServer(reports="hits"))
    identical = report.log.good("identical")[:4]
    assert sorted((e.answer.cached_tokens or 0) for e in identical) == [0, 96, 96, 96]
    assert (
        report.conclusion.details["computed"]
        == report.conclusion.details["computed_by_counters"]
        == [112] * 3
    )
    assert "112 prompt tokens computed by /metrics, 1.12 of one prompt" in report.conclusion.findings[3]
    assert (report.conclusion.disagreements, report.exit_code) == ([], 0)


def test_where_only_hits_are_reported_and_nothing_is_counted_what_was_computed_is_unknown() -> None:
    """Silence may be a miss, and may be nothing at all."""
    report = bench(SMALL, FakeServer(reports="hits", counts="nothing"))
    assert (
        "the server reports cached tokens of some requests only: what was computed is unknown"
        in report.conclusion.findings
    )
    assert report.exit_code == 2


def test_where_of_each_burst_one_failed_that_is_why_what_was_computed_is_unknown() -> None:
    """The server may well report cached tokens."""
    report = bench(
        BurstExperiment(concurrency=3, tokens=100, rounds=1, output_tokens=2),
        FakeServer(trouble=dict.fromkeys(range(2, 20, 3), "500")),
    )
    assert "no burst was answered in full: what was computed is unknown" in report.conclusion.findings
    assert (report.conclusion.details["computed"], report.conclusion.is_flagged) == ([], True)


@pytest.mark.parametrize(("tokens", "each"), [(100, 50), (600, 128)])
def test_where_the_size_of_a_block_is_unknown_128_tokens_or_half_of_the_prompt_are_let_pass(
    tokens: int, each: int
) -> None:
    """For each of four: a whole prompt for each would otherwise pass where prompts are short."""
    small = BurstExperiment(concurrency=4, tokens=tokens, rounds=3, output_tokens=2)
    report = bench(small, FakeServer(counts="nothing", caching=False))
    assert report.conclusion.details["limit"] == tokens + 4 * each
    assert (report.conclusion.details["computed"], report.exit_code) == ([4 * tokens] * 3, 2)
