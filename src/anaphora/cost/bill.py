"""The arithmetic: what was paid, what would have been paid without a cache, and when a write pays.

Exact, in decimals. Where an input is not known there is no number, but an `Unknown` with the reason.
"""

from dataclasses import dataclass
from decimal import Decimal
from math import floor

from anaphora.cost.prices import Price
from anaphora.cost.usage import CLASSES, TokenSplit

MILLION = 1_000_000
WRITES = ("write_short", "write_long")


@dataclass(frozen=True, slots=True)
class Unknown:
    """There is no number, and this is why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Bill:
    """What a prompt cost with caching and would have cost without, in prices of one fresh prompt token.

    `per_token` is that price in `currency`, or None when the table has no base price.
    """

    paid: Decimal
    without_caching: Decimal
    per_token: Decimal | None = None
    currency: str | None = None

    @property
    def saved(self) -> Decimal:
        """Below 0 when more was written than was read again."""
        return self.without_caching - self.paid


@dataclass(frozen=True, slots=True)
class BreakEven:
    """When a class of writes pays.

    `first_use` is the use, the write counted as the first, from which on caching is cheaper; None: never.
    `reads_per_write` is what the tokens read per token written must exceed.
    """

    name: str
    write: Decimal
    read: Decimal
    first_use: int | None
    reads_per_write: Decimal | None


def multiplier(price: Price, name: str) -> Decimal | None:
    """Return what a token of a class costs, a fresh one being 1; None when the table does not say."""
    value: Decimal | None = Decimal(1) if name == "fresh" else getattr(price, name)
    return value


def charge(split: TokenSplit, price: Price) -> Bill | Unknown:
    """Return the bill of a prompt."""
    parts: list[tuple[int, tuple[str, ...]]] = [(getattr(split, name), (name,)) for name in CLASSES]
    parts += [(split.fresh_or_written, ("fresh", "write_short")), (split.short_or_long, WRITES)]
    paid = Decimal(0)
    for num_tokens, names in parts:
        if num_tokens:
            each = {multiplier(price, name) for name in names}
            if None in each:
                return Unknown(_not_in_table(price, names))
            if len(each) > 1:
                return Unknown(_not_split(names))
            paid += num_tokens * (each.pop() or Decimal(0))
    per_token = None if price.input is None else price.input / MILLION
    return Bill(paid, Decimal(split.total), per_token, price.currency)


def _not_in_table(price: Price, names: tuple[str, ...]) -> str:
    missing = " and ".join(name for name in names if multiplier(price, name) is None)
    note = f" ({price.note})" if price.note else ""
    return f"the price table has no {missing} for this model{note}; give it with --prices"


def _not_split(names: tuple[str, ...]) -> str:
    if "fresh" in names:
        return "provider did not report how many of the computed tokens were written, which costs more"
    return "provider did not report for how long the written tokens are kept, which decides their price"


def break_even(name: str, price: Price) -> BreakEven | Unknown:
    """Return when a class of writes pays: n uses cost write + (n - 1) × read with caching, and n without."""
    write, read = multiplier(price, name), multiplier(price, "read")
    if write is None or read is None:
        return Unknown(_not_in_table(price, (name, "read")))
    if read >= 1:  # each use after the first costs no less than without
        return BreakEven(name, write, read, 1 if write < 1 and read == 1 else None, None)
    needed = (write - 1) / (1 - read)
    return BreakEven(name, write, read, max(1, floor(needed) + 2), max(Decimal(0), needed))


def reads_per_write(split: TokenSplit) -> Decimal | Unknown:
    """Return the tokens read per token written."""
    if split.fresh_or_written:
        return Unknown("provider did not report how many tokens were written")
    written = split.write_short + split.write_long + split.short_or_long
    if not written:
        return Unknown("nothing was written")
    return Decimal(split.read) / written


def writes_paid(split: TokenSplit, price: Price) -> bool | Unknown:
    """Whether what the reads saved is more than what the writes cost above fresh tokens.

    A read does not say which write it reads, so this is one answer for both classes together.
    """
    ratio = reads_per_write(split)
    if isinstance(ratio, Unknown):
        return ratio
    bill = charge(split, price)
    return bill if isinstance(bill, Unknown) else bill.saved > 0


def seconds_saved(split: TokenSplit, tokens_per_second: float) -> float:
    """Return the prefill time of the tokens that were read."""
    return split.read / tokens_per_second
