"""The report as plain data: what `--json` prints and what the table is drawn from.

A figure whose inputs are not known is None here, and `unknown` holds the reason under its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.cost.bill import (
    MILLION,
    WRITES,
    Unknown,
    break_even,
    charge,
    reads_per_write,
    seconds_saved,
    writes_paid,
)
from anaphora.cost.prices import Price, PriceTable
from anaphora.cost.tally import Tally
from anaphora.cost.usage import CLASSES

NOTHING = Unknown("provider did not report")
NO_RATE = "prefill rate unknown: pass --prefill-rate or --base-url"
FRESH_TOKEN = "price of one fresh prompt token"  # noqa: S105 - a unit, no password


@dataclass(frozen=True, slots=True)
class Problem:
    """An input that could not be used; `line` is None where it is not about one line."""

    source: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.reason}"


def price_of(tally: Tally, table: PriceTable) -> Price | Unknown | Problem:
    """Return the price of a model; a Problem when the table should have it, Unknown when it cannot."""
    price = table.find(tally.provider, tally.model)
    if price is not None:
        return price
    known = ", ".join(table.names(tally.provider)) or "none"
    if tally.model is None:
        return Unknown(f"the requests name no model; pass --model (prices of {tally.provider}: {known})")
    if tally.provider == "server":
        return Unknown("a server of your own has no price unless --prices gives one")
    return Problem(
        table.name,
        None,
        f"no price for the model {tally.model!r} of {tally.provider}; it has: {known}; add it with --prices",
    )


class Reasons:
    """Collects why figures are not known, by their names."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}

    def known(self, name: str, value: Any | Unknown) -> Any:
        """Return a figure, or None after noting why there is none."""
        if isinstance(value, Unknown):
            self.by_name[name] = value.reason
            return None
        return value


def model_figures(tally: Tally, price: Price | Unknown, rate: float | Unknown) -> dict[str, Any]:
    """Return the figures of one model."""
    reasons = Reasons()
    known = reasons.known
    figures: dict[str, Any] = {
        "provider": tally.provider,
        "model": tally.model,
        "requests": known("requests", NOTHING if tally.num_requests is None else tally.num_requests),
        "not_reported": dict(tally.not_said),
        "tokens": {name: known(f"tokens.{name}", value) for name, value in _tokens(tally).items()},
        "unclassed": {
            "requests": tally.num_unclassed,
            "fresh_or_written": tally.split.fresh_or_written,
            "short_or_long": tally.split.short_or_long,
        },
        "raw": dict(tally.raw),
        "seconds_saved": known("seconds_saved", _seconds(tally, rate)),
        "money": known("money", _money(tally, price)),
        "break_even": {name: known(f"break_even.{name}", _even(name, price)) for name in WRITES},
        "reads_per_written_token": known("reads_per_written_token", _ratio(tally)),
        "writes_paid": known("writes_paid", _paid(tally, price)),
        "price": None if isinstance(price, Unknown) else {"source": price.source, "note": price.note},
    }
    if isinstance(price, Price) and price.output is not None and figures["money"]:
        figures["money"]["output"] = known("money.output", _output(tally, price))
    return {**figures, "unknown": reasons.by_name}


def _tokens(tally: Tally) -> dict[str, int | Unknown]:
    classes = {name: tally.split.exact(name) for name in CLASSES}
    values = {"total": tally.split.total, **classes, "output": tally.output}
    return {
        name: NOTHING if value is None or not tally.is_reported else value for name, value in values.items()
    }


def _seconds(tally: Tally, rate: float | Unknown) -> float | Unknown:
    if not tally.is_reported:
        return NOTHING
    return rate if isinstance(rate, Unknown) else seconds_saved(tally.split, rate)


def _ratio(tally: Tally) -> float | Unknown:
    ratio = reads_per_write(tally.split) if tally.is_reported else NOTHING
    return ratio if isinstance(ratio, Unknown) else float(ratio)


def _paid(tally: Tally, price: Price | Unknown) -> bool | Unknown:
    if not tally.is_reported:
        return NOTHING
    if isinstance(price, Unknown):
        return price
    return _audio(tally) or writes_paid(tally.split, price)


def _audio(tally: Tally) -> Unknown | None:
    """Why the prompts have no price, if they hold sound."""
    if not tally.audio:
        return None
    return Unknown(f"{tally.audio:,} of the prompt tokens are audio, which has a price of its own")


def _money(tally: Tally, price: Price | Unknown) -> dict[str, Any] | Unknown:
    if not tally.is_reported:
        return NOTHING
    if isinstance(price, Unknown):
        return price
    bill = _audio(tally) or charge(tally.split, price)
    if isinstance(bill, Unknown):
        return bill
    amounts = {"paid": bill.paid, "without_caching": bill.without_caching, "saved": bill.saved}
    if bill.per_token is None:
        return {"unit": FRESH_TOKEN, **{name: float(amount) for name, amount in amounts.items()}}
    money = {name: float(amount * bill.per_token) for name, amount in amounts.items()}
    return {"unit": bill.currency, **money, "output": None}


def _output(tally: Tally, price: Price) -> float | Unknown:
    if tally.output is None:
        return NOTHING
    if tally.audio_output:
        return Unknown(f"{tally.audio_output:,} of the output tokens are audio, which has a price of its own")
    return float((price.output or 0) * tally.output / MILLION)


def _even(name: str, price: Price | Unknown) -> dict[str, Any] | Unknown:
    even = price if isinstance(price, Unknown) else break_even(name, price)
    if isinstance(even, Unknown):
        return even
    needed = even.reads_per_write
    return {
        "write": float(even.write),
        "read": float(even.read),
        "pays_from_use": even.first_use,
        "reads_per_written_token_above": None if needed is None else float(needed),
    }


def total(groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums over models; a sum that would miss a part, or mix units, is None with the reason."""
    unknown: dict[str, str] = {}
    sums: dict[str, Any] = {}
    for name, values in (
        ("requests", [each["requests"] for each in groups]),
        ("tokens_total", [each["tokens"]["total"] for each in groups]),
        ("tokens_read", [each["tokens"]["read"] for each in groups]),
        ("seconds_saved", [each["seconds_saved"] for each in groups]),
        ("money_saved", [each["money"] and each["money"]["saved"] for each in groups]),
    ):
        if None in values:
            unknown[name] = "not known for every model above"
        sums[name] = None if None in values else sum(values)
    units = {each["money"]["unit"] for each in groups if each["money"]}
    if sums["money_saved"] is not None and (len(units) > 1 or (len(groups) > 1 and FRESH_TOKEN in units)):
        sums["money_saved"] = None
        unknown["money_saved"] = (
            "the models have no common unit: give base prices in one currency by --prices"
        )
    unit = units.pop() if len(units) == 1 and sums["money_saved"] is not None else None
    return {**sums, "unit": unit, "unknown": unknown}
