"""The price table: rows of multipliers and prices, as data. Reads no file: the text is handed in."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from anaphora.cost.usage import PROVIDERS
from anaphora.errors import ConfigError

MULTIPLIERS = ("read", "write_short", "write_long")
ROW_KEYS = frozenset(
    {"provider", "models", "source", "note", "input", "output"}
    | {*MULTIPLIERS}
    | {f"{name}_price" for name in MULTIPLIERS}
)
MAX_NUMBER = 10**9
"""Above any multiplier, and any price per million tokens in any currency."""

TABLE_KEYS = frozenset({"as_of", "currency", "price"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a model's tokens cost: multipliers of a fresh prompt token, and base prices per million tokens.

    None is "not in the table", which is neither 0 nor 1.
    """

    read: Decimal | None = None
    write_short: Decimal | None = None
    write_long: Decimal | None = None
    input: Decimal | None = None
    output: Decimal | None = None
    currency: str | None = None
    source: str | None = None
    note: str | None = None

    def over(self, below: "Price") -> "Price":
        """Return this price, with what it leaves out taken from another; the source names both then."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}
        is_filled = any(getattr(self, name) is None is not getattr(below, name) for name in MULTIPLIERS)
        source = f"{self.source}; the rest: {below.source}" if is_filled else self.source
        return replace(below, **{**own, "source": source})


@dataclass(frozen=True, slots=True)
class Row:
    """The price of the models of one provider whose names fit one of the patterns."""

    provider: str
    models: tuple[str, ...]
    price: Price

    def fits(self, provider: str, names: Sequence[str], *, exactly: bool) -> bool:
        """Whether it is about a model, by its own name or by a pattern."""
        if self.provider != provider:
            return False
        if exactly:
            return any(name in self.models for name in names)
        return any(fnmatchcase(name, pattern) for name in names or [""] for pattern in self.models)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Rows in the order of their files; `below` is the table that this one is merged over."""

    rows: tuple[Row, ...]
    as_of: str
    name: str
    below: "PriceTable | None" = None

    def find(self, provider: str, model: str | None) -> Price | None:
        """Return the price of a model, or None. A model nobody named fits only a row for all models."""
        names = [] if model is None else [model, *([model.rpartition("/")[2]] if "/" in model else [])]
        below = self.below.find(provider, model) if self.below else None
        for exactly in (True, False):
            for row in self.rows:
                if row.fits(provider, names, exactly=exactly):
                    return row.price.over(below) if below else row.price
        return below

    def names(self, provider: str) -> list[str]:
        """The models and patterns it has for a provider."""
        own = [model for row in self.rows if row.provider == provider for model in row.models]
        return own + [name for name in (self.below.names(provider) if self.below else []) if name not in own]

    def dates(self) -> dict[str, str]:
        """The day of each table, by its name."""
        return {self.name: self.as_of} | (self.below.dates() if self.below else {})


def parse_prices(text: str, name: str, below: PriceTable | None = None) -> PriceTable:
    """Return the table of a TOML text called `name`; ConfigError says what is wrong and where."""
    try:
        data = tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not TOML: {error}") from error
    _check_keys(data, TABLE_KEYS, name)
    as_of = str(data.get("as_of", ""))
    if not _is_day(as_of):
        raise ConfigError(
            f"{name}: as_of is {as_of!r}, but must be the day of the prices, such as 2026-11-30"
        )
    rows = data.get("price")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{name} has no prices; write each as a [[price]] table")
    currency = data.get("currency")
    if currency is not None and (not isinstance(currency, str) or not currency):
        raise ConfigError(f"{name}: currency is {currency!r}, but must be a name such as 'USD'")
    parsed = tuple(
        _row(row, f"{name}: price {number}", currency, name) for number, row in enumerate(rows, start=1)
    )
    return PriceTable(parsed, as_of, name, below)


def _is_day(text: str) -> bool:
    """Whether a text is a day of the calendar, which TOML knows."""
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None and bool(tomllib.loads(f"day = {text}"))
    except ValueError:
        return False


def _check_keys(table: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise ConfigError(
            f"{where}: {', '.join(unknown)} is not known; known are: {', '.join(sorted(known))}"
        )


def _row(row: Mapping[str, Any], where: str, currency: str | None, default_source: str) -> Row:
    _check_keys(row, ROW_KEYS, where)
    provider, models = row.get("provider"), row.get("models")
    if provider not in PROVIDERS:
        raise ConfigError(f"{where}: provider is {provider!r}, but must be one of: {', '.join(PROVIDERS)}")
    if (
        not isinstance(models, list)
        or not models
        or not all(isinstance(name, str) and name for name in models)
    ):
        raise ConfigError(f"{where}: models is {models!r}, but must be a list of names, such as ['gpt-5.6*']")
    for key in ("source", "note"):
        if not isinstance(row.get(key, ""), str):
            raise ConfigError(f"{where}: {key} must be text")
    base = _number(row, "input", where)
    if base is not None and currency is None:
        raise ConfigError(f"{where}: input is a price, but the file says no currency; add currency = 'USD'")
    if _number(row, "output", where) is not None and base is None:
        raise ConfigError(f"{where}: output is a price, but input is missing; give both per million tokens")
    price = Price(
        **{name: _multiplier(row, name, base, where) for name in MULTIPLIERS},
        input=base,
        output=_number(row, "output", where),
        currency=currency if base is not None else None,
        source=row.get("source", default_source),
        note=row.get("note"),
    )
    return Row(str(provider), tuple(models), price)


def _multiplier(row: Mapping[str, Any], name: str, base: Decimal | None, where: str) -> Decimal | None:
    price = _number(row, f"{name}_price", where)
    if price is None:
        return _number(row, name, where)
    if name in row:
        raise ConfigError(f"{where}: {name} and {name}_price say the same thing; give one of them")
    if not base:
        raise ConfigError(f"{where}: {name}_price needs input, the price of a fresh token, above 0")
    return price / base


def _number(row: Mapping[str, Any], key: str, where: str) -> Decimal | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ConfigError(f"{where}: {key} is {value!r}, but must be a number")
    number = Decimal(value)
    if not number.is_finite() or not 0 <= number <= MAX_NUMBER:
        raise ConfigError(f"{where}: {key} is {value}, but must be a number from 0 to {MAX_NUMBER:,}")
    return number
