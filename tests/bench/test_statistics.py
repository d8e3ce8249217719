"""Small samples with known answers."""

import itertools
import random

import pytest

from anaphora.bench.statistics import interleaved, median, quantile, rank_test, ratio_interval, slope, spread


def test_quantiles_lie_between_neighbours() -> None:
    """Of 1 to 5, the middle is 3 and nine tenths are below 4.6."""
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [median(values), quantile(values, 0.9), quantile(values, 1.0)] == pytest.approx([3.0, 4.6, 5.0])


def test_a_spread_of_nothing_is_none_and_two_rounds_have_no_interval() -> None:
    """Rather than an interval that says more than is known."""
    assert spread([]) is None
    found = spread([[1.0, 2.0], [3.0]])
    assert found is not None and (found.n, found.median, found.low, found.high) == (3, 2.0, None, None)


def test_the_interval_holds_the_median_and_is_the_same_each_time() -> None:
    """Resampling is seeded by the data."""
    groups = [[value] for value in (3.0, 1.0, 2.0, 5.0, 4.0)]
    found = spread(groups)
    assert found == spread(groups)
    assert found and found.low is not None and found.high is not None
    assert 1.0 <= found.low < 3.0 < found.high <= 5.0


def test_values_of_one_round_do_not_make_the_interval_narrower() -> None:
    """Each value ten times is no more knowledge than each value once."""
    single = [[value] for value in (3.0, 1.0, 2.0, 5.0, 4.0)]
    tenfold = [group * 10 for group in single]
    once, many = spread(single), spread(tenfold)
    assert once and many and once.low is not None and many.low is not None
    assert once.high is not None and many.high is not None
    assert many.high - many.low >= 0.8 * (once.high - once.low)


def test_a_ratio_of_equal_arms_holds_1_and_of_halves_a_half() -> None:
    """And none is given below three rounds."""
    values = [[1.0], [1.1], [0.9], [1.05], [0.95]]
    halves = [[value / 2 for value in group] for group in values]
    equal, half = ratio_interval(values, values), ratio_interval(halves, values)
    assert equal and equal[0] < 1 < equal[1]
    assert half and half[0] < 0.5 < half[1] < 1
    assert ratio_interval(values[:2], values) is None


@pytest.mark.parametrize(
    ("low", "high"), [([1, 2, 4], [3, 5, 6]), ([1, 2, 3], [4, 5, 6]), ([6, 2], [1, 3, 4])]
)
def test_the_rank_test_counts_every_order(low: list[float], high: list[float]) -> None:
    """Against all ways to deal the values to two groups."""
    wrong = sum(a > b for a in low for b in high)
    deals = list(itertools.combinations(sorted(low + high), len(low)))
    as_good = [d for d in deals if sum(a > b for a in d for b in set(low + high) - set(d)) <= wrong]
    assert rank_test(low, high) == pytest.approx(len(as_good) / len(deals))


def test_ties_are_no_evidence() -> None:
    """Two arms of equal values."""
    assert rank_test([1.0] * 5, [1.0] * 5) > 0.5


def test_a_slope_is_found_and_one_x_has_none() -> None:
    """Two milliseconds a token."""
    assert slope([0, 1, 2], [1.0, 3.0, 5.0]) == pytest.approx(2.0)
    assert slope([1, 1], [1.0, 2.0]) is None


def test_units_stay_together_and_every_round_has_all_arms() -> None:
    """In an order that changes from round to round."""
    arms = list(interleaved(random.Random(1), 20, (("cold",), ("warm", "control"))))
    rounds = [[arm for number, arm in arms if number == wanted] for wanted in range(20)]
    assert {tuple(r) for r in rounds} == {("cold", "warm", "control"), ("warm", "control", "cold")}
