"""What a volatile value costs at the beginning of a prompt."""

from anaphora.bench.layout import LayoutExperiment
from tests.bench.fakes import FakeServer, bench

SMALL = LayoutExperiment(tokens=100, rounds=4, output_tokens=2)


def test_a_time_of_day_at_the_beginning_costs_everything_and_at_the_end_almost_nothing() -> None:
    """The date is one word and the time another, so that 98 of 99 words are shared when it stands last."""
    report = bench(SMALL, FakeServer())
    assert [(arm.arm, arm.prompt_tokens, arm.achievable, arm.reported) for arm in report.arms] == [
        ("first", 400, 0, 0),
        ("last", 400, 4 * 96, 4 * 96),
        ("control", 800, 0, 0),
    ]
    assert report.conclusion.findings[:2] == [
        "time of day first: hit rate 0.0%, time to first token 110.0 ms [110.0 to 110.0]",
        "time of day last: hit rate 96.0%, time to first token 14.0 ms [14.0 to 14.0]",
    ]
    assert report.findings[3] == (
        "with the value last (hit rate 96.0%), the first token takes 0.127 to 0.127 of the time with the value first "
        "(0.0%), on prompts of 100 tokens, one request at a time"
    )
    assert (report.is_comparable, report.exit_code) == (True, 0)


def test_without_caching_no_gain_is_claimed() -> None:
    """And the planned reuse is missed."""
    report = bench(SMALL, FakeServer(caching=False))
    assert report.findings[3].startswith("no gain is claimed, since last is not clearly below first (ratio ")
    assert "planned and seen reuse differ in 4 of 4 last requests" in report.exit_line
