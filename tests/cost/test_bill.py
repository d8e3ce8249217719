"""The arithmetic by hand, and that no number comes of an unknown."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cost.bill import (
    Bill,
    BreakEven,
    Unknown,
    break_even,
    charge,
    reads_per_write,
    seconds_saved,
    writes_paid,
)
from anaphora.cost.prices import Price
from anaphora.cost.usage import TokenSplit


def price(
    read: str | None = "0.1", short: str | None = "1.25", long: str | None = "2", **base: Decimal
) -> Price:
    def number(text: str | None) -> Decimal | None:
        return None if text is None else Decimal(text)

    return Price(read=number(read), write_short=number(short), write_long=number(long), **base)  # type: ignore[arg-type]


def test_each_class_is_charged_once_by_its_own_multiplier() -> None:
    bill = charge(TokenSplit(fresh=100, read=1000, write_short=200, write_long=10), price())
    assert bill == Bill(paid=Decimal(470), without_caching=Decimal(1310))  # 100 + 100 + 250 + 20
    assert bill.saved == 840


def test_writes_that_nobody_read_cost_more_than_no_cache() -> None:
    bill = charge(TokenSplit(write_short=100), price())
    assert isinstance(bill, Bill) and bill.saved == -25


def test_a_multiplier_that_is_not_in_the_table_gives_no_number() -> None:
    split = TokenSplit(fresh=1, read=1)
    assert charge(split, price(read=None)) == Unknown(
        "the price table has no read for this model; give it with --prices"
    )
    assert isinstance(charge(TokenSplit(fresh=1), price(read=None)), Bill)  # it is not needed


def test_tokens_without_a_class_are_charged_where_their_classes_cost_the_same() -> None:
    split = TokenSplit(read=10, fresh_or_written=10)
    assert charge(split, price(short="1")) == Bill(paid=Decimal(11), without_caching=Decimal(20))
    assert charge(split, price()) == Unknown(
        "provider did not report how many of the computed tokens were written, which costs more"
    )
    assert isinstance(charge(split, price(short=None)), Unknown)


def test_a_write_of_unknown_life_has_a_price_only_if_both_cost_the_same() -> None:
    split = TokenSplit(short_or_long=10)
    assert isinstance(charge(split, price()), Unknown)
    assert charge(split, price(long="1.25")) == Bill(paid=Decimal("12.5"), without_caching=Decimal(10))


def test_a_base_price_is_per_million_tokens() -> None:
    bill = charge(TokenSplit(fresh=1), Price(input=Decimal(3), currency="USD"))
    assert isinstance(bill, Bill)
    assert (bill.per_token, bill.currency) == (Decimal("0.000003"), "USD")


@pytest.mark.parametrize(
    ("name", "first_use", "ratio"),
    [("write_short", 2, Decimal("0.25") / Decimal("0.9")), ("write_long", 3, Decimal(1) / Decimal("0.9"))],
)
def test_a_short_write_pays_from_the_second_use_and_a_long_one_from_the_third(
    name: str, first_use: int, ratio: Decimal
) -> None:
    """1.25 + 0.1 < 2, and 2 + 0.2 < 3."""
    even = break_even(name, price())
    assert isinstance(even, BreakEven)
    assert (even.first_use, even.reads_per_write) == (first_use, ratio)


def test_a_free_write_pays_from_the_second_use_and_a_read_at_full_price_never() -> None:
    free, dear = break_even("write_short", price(short="1")), break_even("write_short", price(read="1"))
    assert isinstance(free, BreakEven) and isinstance(dear, BreakEven)
    assert (free.first_use, free.reads_per_write) == (2, Decimal(0))
    assert (dear.first_use, dear.reads_per_write) == (None, None)
    assert isinstance(break_even("write_long", price(long=None)), Unknown)


@given(st.integers(0, 400), st.integers(0, 99))
def test_the_break_even_is_the_first_use_that_is_cheaper(write_percent: int, read_percent: int) -> None:
    """By trying one use after the other."""
    write, read = Decimal(write_percent) / 100, Decimal(read_percent) / 100
    even = break_even("write_short", Price(read=read, write_short=write))
    first = next(uses for uses in range(1, 1000) if write + (uses - 1) * read < uses)
    assert isinstance(even, BreakEven) and even.first_use == first


@pytest.mark.parametrize(
    ("split", "paid"),
    [
        (TokenSplit(write_short=90, read=25), False),  # 22.5 more for the writes, 22.5 less for the reads
        (TokenSplit(write_short=90, read=26), True),
        (TokenSplit(write_long=90, read=100), False),
        (TokenSplit(write_long=90, read=101), True),
        (TokenSplit(write_short=90, write_long=90, read=125), False),
        (TokenSplit(write_short=90, write_long=90, read=126), True),
    ],
)
def test_the_writes_paid_when_the_reads_saved_more_than_they_cost(split: TokenSplit, paid: bool) -> None:
    assert writes_paid(split, price()) is paid


def test_reads_per_write_need_writes_that_were_reported() -> None:
    assert reads_per_write(TokenSplit(read=6, write_short=1, write_long=1, short_or_long=1)) == 2
    assert reads_per_write(TokenSplit(read=6)) == Unknown("nothing was written")
    unsaid = Unknown("provider did not report how many tokens were written")
    assert reads_per_write(TokenSplit(read=6, write_short=1, fresh_or_written=1)) == unsaid
    assert writes_paid(TokenSplit(read=6, fresh_or_written=1), price()) == unsaid


def test_seconds_are_the_tokens_read_over_the_rate() -> None:
    assert seconds_saved(TokenSplit(fresh=7, read=500), 2000.0) == 0.25


def test_a_read_that_costs_more_than_a_fresh_token_never_pays() -> None:
    """Nor does it after a cheap write: each further use takes back some of what that saved."""
    even = break_even("write_short", Price(read=Decimal("1.5"), write_short=Decimal("0.5")))
    assert not isinstance(even, Unknown) and even.first_use is None
