"""Three witnesses, and every way in which they can agree or not."""

from typing import get_args

import pytest

from anaphora.bench.evidence import Caching, Says, Timing, judge, timing
from tests.bench.fakes import measured

FAST = [measured("warm", number, ttft_s=0.01) for number in range(5)]
SLOW = [measured("control", number, ttft_s=0.1) for number in range(5)]
SHORT = FAST
NOISY = [measured("warm", number, ttft_s=ttft_s) for number, ttft_s in enumerate((0.02, 0.3, 0.1, 0.05, 0.2))]


def test_timing_says_yes_only_by_both_the_rank_test_and_the_interval() -> None:
    """Two rounds are never enough."""
    assert timing(FAST, SLOW, 1.0).says == "yes"
    assert timing(FAST[:2], SLOW[:2], 1.0) == Timing("cannot tell", None, None)
    assert timing(FAST[:3], SLOW, 1.0).says == "yes"


def test_timing_says_no_only_where_half_of_the_saving_is_ruled_out() -> None:
    """A small share of reuse can hide in the noise."""
    assert timing(SLOW, SLOW, 1.0, SHORT).says == "no"
    assert timing(NOISY, SLOW, 1.0, SHORT).says == "cannot tell"
    assert timing(SLOW, SLOW, 0.0, SHORT).says == "cannot tell"


def test_timing_never_says_no_where_a_long_prompt_costs_no_more_than_a_short_one() -> None:
    """A far server, or a fast one: what the cache saves is too little to be seen, and so is what it does not."""
    assert timing(SLOW, SLOW, 1.0).says == "cannot tell"
    assert timing(SLOW, SLOW, 1.0, SLOW).says == "cannot tell"
    nearly = [measured("short", number, ttft_s=0.095 + number / 1e6) for number in range(5)]
    saved = [measured("warm", number, ttft_s=0.0965 + number / 1e6) for number in range(5)]
    assert timing(saved, SLOW, 0.1, nearly).says == "yes"


def test_three_rounds_that_are_all_faster_are_enough() -> None:
    """One order in twenty: just the level of the test."""
    found = timing(FAST[:3], SLOW[:3], 1.0)
    assert (found.says, found.p_value) == ("yes", 0.05)


@pytest.mark.parametrize(
    ("reported", "counted", "by_clock", "caching", "num_disagreements"),
    [
        (96, 96, "yes", "on", 0),
        (96, 96, "no", "doubtful", 2),
        (96, 96, "cannot tell", "on", 0),
        (0, 0, "yes", "on", 2),
        (0, 0, "no", "off", 0),
        (0, 0, "cannot tell", "off", 0),
        (96, 0, "cannot tell", "unknown", 1),
        (0, 96, "no", "doubtful", 2),
        (None, None, "yes", "on", 0),
        (None, None, "no", "off", 0),
        (None, None, "cannot tell", "unknown", 0),
        (None, 96, "cannot tell", "on", 0),
        (0, None, "no", "off", 0),
    ],
)
def test_the_verdict(
    reported: int | None, counted: float | None, by_clock: Says, caching: Caching, num_disagreements: int
) -> None:
    """Who says what, what is concluded, and how often they contradict each other."""
    warm = [measured(cached=reported, counted=counted, planned=100)]
    verdict = judge(warm, [measured("cold")], Timing(by_clock, (0.9, 1.1), 0.4), 16)
    assert (verdict.caching, len(verdict.disagreements)) == (caching, num_disagreements)
    assert verdict.caching in get_args(Caching)


def test_a_hit_on_what_was_never_sent_cannot_be() -> None:
    """The head of a template may be cached; more may not."""
    head = [measured("cold", cached=16, planned=20)]
    lie = [measured("control", cached=32, planned=20)]
    sure = Timing("yes", (0.1, 0.2), 0.001)
    assert judge(FAST, head, sure, 16).disagreements[1:] == ()
    assert (
        "1 of 1 never-seen prompts are reported as cached (32 tokens)"
        in judge(FAST, lie, sure, 16).disagreements[-1]
    )
