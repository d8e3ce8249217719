"""The accuracy that docs/explain.md claims."""

import pytest

from anaphora.models.tokenizer import Tokenizer
from tests.explain.accuracy import Score, documented, score, tables, word_score
from tests.explain.corpus import cases
from tests.explain.word_tokenizer import WordTokenizer
from tests.models.conftest import demo_tokenizer

__all__ = ["demo_tokenizer"]  # a fixture


def _check(result: Score) -> None:
    total = result.total.total()
    assert result.books.total() == total, result.wrong
    assert result.causes.total() >= 0.95 * total, result.wrong
    assert result.places.total() >= 0.95 * total, result.wrong


def test_every_kind_has_twelve_cases_and_the_same_seed_gives_the_same_ones() -> None:
    """So the table can be repeated, by anybody."""
    encode = WordTokenizer().encode
    first, second = list(cases(encode)), list(cases(encode))
    assert [case.request for case in first] == [case.request for case in second]
    kinds = [case.kind for case in first]
    assert min(kinds.count(kind) for kind in kinds) >= 12


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_causes_and_places_are_right_and_the_books_add_up(seed: int) -> None:
    """In at least 95 of 100 cases; the books in all."""
    _check(word_score(seed))


def test_the_documented_tables_are_the_measured_ones() -> None:
    """Written by `python -m tests.explain.accuracy`."""
    for name, table in tables().items():
        assert documented(name) == table


@pytest.mark.model
def test_the_same_holds_with_a_real_tokenizer(demo_tokenizer: Tokenizer) -> None:
    """Byte pairs, with digits one by one."""
    _check(score(demo_tokenizer, seed=4, every=3))
