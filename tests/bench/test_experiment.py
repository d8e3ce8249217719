"""What experiments have in common."""

import pytest

from anaphora.bench.experiment import hit_rate, sum_cached
from tests.bench.fakes import measured


@pytest.mark.parametrize(
    ("reported", "counted", "total"),
    [
        ((0, 96, 96), (192, 0, 0), 192),
        ((0, 96, 96), (None, None, None), 192),
        ((None, 96, 96), (192, 0, 0), 192),
        ((None, None, None), (192, 0, 0), 192),
        ((None, 96, 96), (None, 0, 0), None),
        ((None, None, None), (None, None, None), None),
        ((), (), None),
    ],
)
def test_two_witnesses_are_never_added_up(
    reported: tuple[int | None, ...], counted: tuple[float | None, ...], total: int | None
) -> None:
    """All answers, else all counters: the first of a burst holds those of all."""
    entries = [measured(cached=a, counted=b) for a, b in zip(reported, counted, strict=True)]
    assert sum_cached(entries) == total


def test_a_hit_rate_that_some_answers_leave_out_is_that_of_the_counters() -> None:
    """And says so."""
    assert (
        hit_rate([measured(cached=None, counted=50), measured(cached=50, counted=0)]) == "25.0% by /metrics"
    )
