"""Log probabilities from logits, against an independent computation in double precision."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from anaphora.request import TokenLogprobs
from anaphora.sampling.host import token_logprobs

INF = math.inf
NAN = math.nan


def row(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def expected(values: Sequence[float]) -> list[float]:
    """The logarithms of a softmax, by its definition, term by term."""
    largest = max(values)
    total = math.fsum(math.exp(value - largest) for value in values)
    return [value - largest - math.log(total) for value in values]


def test_values_are_the_logarithms_of_a_softmax() -> None:
    rng = np.random.default_rng(3)
    for scale in (0.1, 3.0, 30.0):
        logits = (rng.standard_normal(5_000) * scale).astype(np.float32)
        wanted = expected([float(value) for value in logits])
        found = token_logprobs(logits, 1234, 20)
        assert found.logprob == pytest.approx(wanted[1234], abs=2e-6)
        best = sorted(range(5_000), key=lambda i: -wanted[i])[:20]
        assert [token_id for token_id, _ in found.top] == best
        assert [logprob for _, logprob in found.top] == pytest.approx([wanted[i] for i in best], abs=2e-6)
        assert found.rank == 1 + sum(value > wanted[1234] for value in wanted)


def test_the_token_itself_is_told_of_even_if_it_is_not_among_the_most_likely() -> None:
    found = token_logprobs(row(0, 4, 2, 3), 0, 2)
    assert [token_id for token_id, _ in found.top] == [1, 3]
    assert (found.token_id, found.rank) == (0, 4)
    assert found.logprob == pytest.approx(expected([0, 4, 2, 3])[0])


def test_without_any_of_the_others_there_is_the_token_alone() -> None:
    found = token_logprobs(row(0, 4, 2), 2, 0)
    assert (found.token_id, found.rank, found.top) == (2, 2, ())


def test_of_equal_logits_the_lower_id_comes_first() -> None:
    logits = row(1, 3, 3, 0, 3)
    assert [token_id for token_id, _ in token_logprobs(logits, 0, 2).top] == [1, 2]
    assert [token_logprobs(logits, token_id, 0).rank for token_id in range(5)] == [4, 1, 2, 5, 3]


def test_more_than_there_are_gives_all() -> None:
    assert [token_id for token_id, _ in token_logprobs(row(1, 3, 2), 0, 20).top] == [1, 2, 0]


def test_a_token_that_cannot_be_has_minus_infinity() -> None:
    found = token_logprobs(row(0, -INF, 0), 1, 3)
    assert (found.logprob, found.rank) == (-INF, 3)
    assert found.top[2] == (1, -INF)
    assert found.top[0].token_id == 0
    assert found.top[0].logprob == pytest.approx(math.log(0.5))


@pytest.mark.parametrize(
    "logits, probabilities",
    [
        ([NAN, 0, 0], [0, 0.5, 0.5]),
        ([INF, 5, INF], [0.5, 0, 0.5]),
        ([NAN, INF, -INF], [0, 1, 0]),
        ([-INF, -INF], [0.5, 0.5]),
        ([NAN, NAN], [0.5, 0.5]),
    ],
)
def test_logits_that_are_no_numbers_give_probabilities_all_the_same(
    logits: list[float], probabilities: list[float]
) -> None:
    found = [math.exp(token_logprobs(row(*logits), i, 1).logprob) for i in range(len(logits))]
    assert found == pytest.approx(probabilities)


def test_logits_are_not_changed_and_values_are_plain_numbers() -> None:
    logits = row(1, NAN, 2)
    found = token_logprobs(logits, 0, 2)
    assert np.array_equal(logits, row(1, NAN, 2), equal_nan=True)
    assert isinstance(found, TokenLogprobs)
    assert {type(found.logprob), type(found.top[0].logprob)} == {float}
    assert {type(found.rank), type(found.top[0].token_id)} == {int}


def test_a_row_among_others_has_the_values_it_has_alone() -> None:
    """Bit for bit: rows of a matrix, and copies of them elsewhere in memory."""
    matrix = np.random.default_rng(4).standard_normal((7, 1001)).astype(np.float32)
    for place, one in enumerate(matrix):
        assert token_logprobs(one, place, 5) == token_logprobs(one.copy(), place, 5)


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40), st.data())
def test_a_token_of_rank_r_is_the_rth_of_the_most_likely(logits: list[float], data: st.DataObject) -> None:
    token_id = data.draw(st.integers(0, len(logits) - 1))
    found = token_logprobs(row(*logits), token_id, len(logits))
    assert found.top[found.rank - 1] == (token_id, found.logprob)
    assert sum(math.exp(logprob) for _, logprob in found.top) == pytest.approx(1, abs=1e-5)
