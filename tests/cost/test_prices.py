"""The price table: what it finds, how a user's file goes over it, and what it refuses."""

from decimal import Decimal
from importlib import resources

import pytest

from anaphora.cost.prices import PriceTable, parse_prices
from anaphora.errors import ConfigError

BUILT_IN = parse_prices(
    resources.files("anaphora.cost").joinpath("prices.toml").read_text("utf-8"), "built-in"
)


def table(rows: str, below: PriceTable | None = None, head: str = "currency = 'USD'") -> PriceTable:
    return parse_prices(f"as_of = 2026-01-02\n{head}\n{rows}", "my.toml", below)


@pytest.mark.parametrize(
    ("provider", "model", "multipliers"),
    [
        ("anthropic", "claude-opus-5", ("0.1", "1.25", "2")),
        ("anthropic", None, ("0.1", "1.25", "2")),
        ("openai", "gpt-5.6", ("0.1", "1.25", None)),
        ("openai", "gpt-5.6-mini", ("0.1", "1.25", None)),
        ("openai", "openai/gpt-5.6", ("0.1", "1.25", None)),
        ("openai", "gpt-6", ("0.1", "1.25", None)),
        ("openai", "gpt-5.5", (None, "1", None)),
        ("openai", "gpt-5", (None, "1", None)),
        ("openai", "gpt-5-mini", (None, "1", None)),
        ("openai", "gpt-4o-mini", (None, "1", None)),
        ("gemini", "gemini-2.5-flash", ("0.1", None, None)),
        ("gemini", "models/gemini-3-pro", ("0.1", None, None)),
        ("gemini", "gemini-2.0-flash", ("0.25", None, None)),
    ],
)
def test_the_built_in_table_has_what_the_providers_publish(
    provider: str, model: str | None, multipliers: tuple[str | None, ...]
) -> None:
    price = BUILT_IN.find(provider, model)
    assert price is not None
    expected = tuple(None if text is None else Decimal(text) for text in multipliers)
    assert (price.read, price.write_short, price.write_long) == expected
    assert price.source


def test_the_built_in_table_has_no_base_price() -> None:
    """They change too often to be shipped: none is invented."""
    assert [row for row in BUILT_IN.rows if row.price.input is not None or row.price.currency] == []


@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "gpt-5.10"),
        ("openai", None),
        ("deepseek", "deepseek-chat"),
        ("server", "m"),
        ("gemini", "g"),
    ],
)
def test_what_is_not_in_the_table_has_no_price(provider: str, model: str | None) -> None:
    assert BUILT_IN.find(provider, model) is None


def test_a_users_row_goes_over_the_built_in_one_field_by_field() -> None:
    mine = table('[[price]]\nprovider="openai"\nmodels=["gpt-5.6"]\ninput=2.5\noutput=10\nread=0.2', BUILT_IN)
    price = mine.find("openai", "gpt-5.6")
    assert price is not None
    assert (price.read, price.write_short, price.input, price.output, price.currency) == (
        Decimal("0.2"),
        Decimal("1.25"),
        Decimal("2.5"),
        Decimal(10),
        "USD",
    )
    assert price.source is not None and price.source.startswith(
        "my.toml; the rest: OpenAI, prompt caching guide"
    )
    assert mine.find("openai", "gpt-5.6-mini") == BUILT_IN.find("openai", "gpt-5.6-mini")
    assert mine.dates() == {"my.toml": "2026-01-02", "built-in": "2026-11-30"}


def test_a_name_goes_before_a_pattern_and_an_earlier_row_before_a_later_one() -> None:
    rows = "".join(
        f'[[price]]\nprovider="server"\nmodels=["{name}"]\nread={read}\n'
        for name, read in (("m*", 0.1), ("mm", 0.2), ("*", 0.3))
    )
    found = [table(rows).find("server", name) for name in ("mm", "mx", "x", None)]
    assert [price and price.read for price in found] == [
        Decimal(text) for text in ("0.2", "0.1", "0.3", "0.3")
    ]


def test_a_price_per_million_becomes_a_multiplier() -> None:
    found = table('[[price]]\nprovider="server"\nmodels=["*"]\ninput=2\nread_price=0.5').find("server", "m")
    assert found is not None and found.read == Decimal("0.25")


def test_the_models_of_a_provider_can_be_named() -> None:
    mine = table('[[price]]\nprovider="gemini"\nmodels=["gemini-3*", "mine"]\nread=1', BUILT_IN)
    assert mine.names("gemini") == ["gemini-3*", "mine", "gemini-2.5*", "gemini-2.0*"]
    assert mine.names("deepseek") == []


ROW = '[[price]]\nprovider="server"\nmodels=["*"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "my.toml is not TOML: "),
        ("as_of = 2026-01-02", "my.toml has no prices"),
        ("as_of = 2026-01-02\nprice = []", "my.toml has no prices"),
        ("as_of = 2026-01-02\nprice = 3", "my.toml has no prices"),
        (ROW, "my.toml: as_of is '', but must be the day"),
        (f"as_of = 'today'\n{ROW}", "my.toml: as_of is 'today'"),
        (
            f"as_of = 2026-01-02\nprices = 1\n{ROW}",
            "my.toml: prices is not known; known are: as_of, currency, price",
        ),
        (f"as_of = 2026-01-02\ncurrency = 3\n{ROW}", "my.toml: currency is 3"),
        (f"as_of = 2026-01-02\n{ROW}reed=1", "my.toml: price 1: reed is not known"),
        (f"as_of = 2026-01-02\n{ROW}read='a'", "my.toml: price 1: read is 'a', but must be a number"),
        (f"as_of = 2026-01-02\n{ROW}read=true", "my.toml: price 1: read is True, but must be a number"),
        (f"as_of = 2026-01-02\n{ROW}read=-1", "my.toml: price 1: read is -1, but must be a number from 0 to"),
        (
            f"as_of = 2026-01-02\n{ROW}read=nan",
            "my.toml: price 1: read is NaN, but must be a number from 0 to",
        ),
        (
            f"as_of = 2026-01-02\n{ROW}input=1",
            "my.toml: price 1: input is a price, but the file says no currency",
        ),
        (f"as_of = 2026-01-02\n{ROW}output=1", "my.toml: price 1: output is a price, but input is missing"),
        (f"as_of = 2026-01-02\n{ROW}read_price=1", "my.toml: price 1: read_price needs input"),
        (
            f"as_of = 2026-01-02\ncurrency='EUR'\n{ROW}input=1\nread=1\nread_price=1",
            "my.toml: price 1: read and read_price say the same thing",
        ),
        (f"as_of = '2026-13-45'\n{ROW}", "my.toml: as_of is '2026-13-45'"),
        (f"as_of = 2026-01-02T00:00:00Z\n{ROW}", "my.toml: as_of is '2026-01-02 00:00:00+00:00'"),
        (
            f"as_of = 2026-01-02\ncurrency='EUR'\n{ROW}input=1e400",
            "my.toml: price 1: input is 1E+400, but must be a number from 0 to 1,000,000,000",
        ),
        (
            "as_of = 2026-01-02\n[[price]]\nprovider='server'\nmodels=['']",
            "my.toml: price 1: models is ['']",
        ),
        (f"as_of = 2026-01-02\n{ROW}source=1", "my.toml: price 1: source must be text"),
        (
            "as_of = 2026-01-02\n[[price]]\nprovider='x'",
            "my.toml: price 1: provider is 'x', but must be one of",
        ),
        ("as_of = 2026-01-02\n[[price]]\nprovider='server'", "my.toml: price 1: models is None"),
        ("as_of = 2026-01-02\n[[price]]\nprovider='server'\nmodels=[1]", "my.toml: price 1: models is [1]"),
    ],
)
def test_a_table_that_is_wrong_says_where(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_prices(text, "my.toml")
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
