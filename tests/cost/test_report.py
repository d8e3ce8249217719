"""The figures of a report, and the reason beside each one that is missing."""

from decimal import Decimal
from typing import Any

from anaphora.cost.bill import Unknown
from anaphora.cost.prices import Price, parse_prices
from anaphora.cost.report import FRESH_TOKEN, NO_RATE, Problem, model_figures, price_of, total
from anaphora.cost.tally import Tally
from anaphora.cost.usage import TokenSplit, Usage

PRICE = Price(read=Decimal("0.1"), write_short=Decimal("1.25"), write_long=Decimal(2), source="s")
DOLLARS = Price(
    read=Decimal("0.1"), write_short=Decimal(1), input=Decimal(2), output=Decimal(8), currency="USD"
)
TABLE = parse_prices(
    'as_of=2026-01-02\n[[price]]\nprovider="openai"\nmodels=["m", "n*"]\nread=0.1', "prices of today"
)


def tally(*splits: TokenSplit | None, provider: str = "openai", model: str | None = "m") -> Tally:
    sums = Tally(provider, model)
    for split in splits:
        said = None if split else "why"
        sums.add(Usage(provider=provider, split=split, not_said=said, output=5, raw={"x": 1}))
    return sums


def test_what_is_known_is_a_number() -> None:
    figures = model_figures(tally(TokenSplit(fresh=10, read=80, write_short=10)), PRICE, 40.0)
    assert figures == {
        "provider": "openai",
        "model": "m",
        "requests": 1,
        "not_reported": {},
        "tokens": {"total": 100, "fresh": 10, "read": 80, "write_short": 10, "write_long": 0, "output": 5},
        "unclassed": {"requests": 0, "fresh_or_written": 0, "short_or_long": 0},
        "raw": {"x": 1},
        "seconds_saved": 2.0,
        "money": {"unit": FRESH_TOKEN, "paid": 30.5, "without_caching": 100.0, "saved": 69.5},
        "break_even": {
            "write_short": {
                "write": 1.25,
                "read": 0.1,
                "pays_from_use": 2,
                "reads_per_written_token_above": float(Decimal("0.25") / Decimal("0.9")),
            },
            "write_long": {
                "write": 2.0,
                "read": 0.1,
                "pays_from_use": 3,
                "reads_per_written_token_above": float(1 / Decimal("0.9")),
            },
        },
        "reads_per_written_token": 8.0,
        "writes_paid": True,
        "price": {"source": "s", "note": None},
        "unknown": {},
    }


def test_with_a_base_price_it_is_money() -> None:
    figures = model_figures(tally(TokenSplit(read=100, fresh_or_written=100)), DOLLARS, 1.0)
    assert figures["money"] == {
        "unit": "USD",
        "paid": 0.00022,
        "without_caching": 0.0004,
        "saved": 0.00018,
        "output": 0.00004,
    }


def missing(value: Any, path: str = "") -> set[str]:
    """Return the paths of all figures that are None."""
    if isinstance(value, dict):
        return {
            name for key, inner in value.items() for name in missing(inner, f"{path}.{key}" if path else key)
        }
    return {path} if value is None else set()


def test_whatever_is_missing_has_a_reason() -> None:
    figures = model_figures(
        tally(TokenSplit(read=1, fresh_or_written=9), None), Unknown("no price"), Unknown(NO_RATE)
    )
    assert figures["unknown"] == {
        "tokens.fresh": "provider did not report",
        "tokens.write_short": "provider did not report",
        "seconds_saved": "prefill rate unknown: pass --prefill-rate or --base-url",
        "money": "no price",
        "break_even.write_short": "no price",
        "break_even.write_long": "no price",
        "reads_per_written_token": "provider did not report how many tokens were written",
        "writes_paid": "no price",
    }
    assert missing(figures) == figures["unknown"].keys() | {"price"}
    assert figures["not_reported"] == {"why": 1}


def test_of_requests_that_nobody_reported_there_is_no_number_at_all() -> None:
    """Not even 0."""
    figures = model_figures(tally(None, None), PRICE, 40.0)
    assert set(figures["tokens"].values()) == {None}
    assert figures["seconds_saved"] is figures["money"] is figures["writes_paid"] is None
    assert figures["unknown"]["money"] == "provider did not report"
    assert (figures["requests"], figures["not_reported"]) == (2, {"why": 2})


def test_a_model_that_the_table_lacks_is_a_problem_that_names_what_it_has() -> None:
    found = price_of(tally(model="x"), TABLE)
    assert isinstance(found, Problem)
    assert str(found) == (
        "prices of today: no price for the model 'x' of openai; it has: m, n*; add it with --prices"
    )
    assert price_of(tally(model="n1"), TABLE) == TABLE.rows[0].price


def test_a_request_without_a_model_and_a_server_of_ones_own_have_no_price_and_are_no_problem() -> None:
    nameless, own = price_of(tally(model=None), TABLE), price_of(tally(provider="server"), TABLE)
    assert isinstance(nameless, Unknown) and "pass --model" in nameless.reason
    assert isinstance(own, Unknown) and "unless --prices gives one" in own.reason


def test_a_problem_names_its_line() -> None:
    assert str(Problem("a.jsonl", 7, "is not JSON")) == "a.jsonl:7: is not JSON"


def test_models_add_up_when_their_units_do() -> None:
    one = model_figures(tally(TokenSplit(read=100, fresh=100)), DOLLARS, 50.0)
    assert total([one, one]) == {
        "requests": 2,
        "tokens_total": 400,
        "tokens_read": 200,
        "seconds_saved": 4.0,
        "money_saved": 0.00036,
        "unit": "USD",
        "unknown": {},
    }


def test_a_sum_that_would_mix_units_or_miss_a_part_is_none() -> None:
    dollars = model_figures(tally(TokenSplit(read=100)), DOLLARS, 50.0)
    tokens = model_figures(tally(TokenSplit(read=100)), PRICE, Unknown(NO_RATE))
    for groups in ([dollars, tokens], [tokens, tokens]):
        sums = total(groups)
        assert (sums["money_saved"], sums["unit"], sums["seconds_saved"]) == (None, None, None)
        assert sums["unknown"]["money_saved"].startswith("the models have no common unit")
    assert total([dollars, model_figures(tally(None), DOLLARS, 50.0)])["tokens_read"] is None


def test_tokens_of_sound_leave_no_sum_of_money() -> None:
    """They cost several times as much as those of text, and the table has one price."""
    sums = tally()
    sums.add(Usage(provider="openai", split=TokenSplit(fresh=10), output=5, audio=4))
    figures = model_figures(sums, DOLLARS, 40.0)
    assert (figures["money"], figures["writes_paid"]) == (None, None)
    assert figures["unknown"]["money"] == "4 of the prompt tokens are audio, which has a price of its own"
    assert figures["tokens"]["total"] == 10


def test_an_output_that_is_not_known_or_spoken_has_no_cost_and_a_reason() -> None:
    for usage, reason in (
        (Usage(provider="openai", split=TokenSplit(fresh=10)), "provider did not report"),
        (
            Usage(provider="openai", split=TokenSplit(fresh=10), output=5, audio_output=2),
            "2 of the output tokens are audio, which has a price of its own",
        ),
    ):
        sums = tally()
        sums.add(usage)
        figures = model_figures(sums, DOLLARS, 40.0)
        assert figures["money"]["output"] is None
        assert figures["unknown"]["money.output"] == reason
