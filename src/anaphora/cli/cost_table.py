"""Draws the report of `anaphora cost` for people."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anaphora.cost.report import FRESH_TOKEN

CLASS_NAMES = {
    "fresh": "fresh",
    "read": "read from the cache",
    "write_short": "written, short life",
    "write_long": "written, long life",
}


def show(report: dict[str, Any], console: Console) -> None:
    """Print the report."""
    if report["partial"] and report["models"]:
        console.print(Text("PARTIAL: not all was counted; the errors say what is missing", style="bold"))
    for figures in report["models"]:
        _show_rows(_title(figures), _rows(figures, report), console)
    if report["total"]:
        _show_rows("all models", _total_rows(report["total"]), console)
    notes = [f"left out: {number:,} {reason}" for reason, number in report["left_out"].items()]
    if report["models"]:
        notes += [f"prices: {name}, of {day}" for name, day in report["prices"].items()]
    for note in notes:
        console.print(Text(note))


def _show_rows(title: str, rows: list[tuple[str, str]], console: Console) -> None:
    table = Table(
        title=Text(title, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False
    )
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, Text(value))
    console.print(table)
    console.print()


def _title(figures: dict[str, Any]) -> str:
    return f"{figures['provider']} {figures['model'] or '(no model named)'}"


def _rows(figures: dict[str, Any], report: dict[str, Any]) -> list[tuple[str, str]]:
    unknown, tokens = figures["unknown"], figures["tokens"]
    rows = [("requests", _number(figures["requests"], unknown.get("requests")))]
    rows += [("  not in the sums", f"{n:,}: {reason}") for reason, n in figures["not_reported"].items()]
    rows.append(("prompt tokens", _number(tokens["total"], unknown.get("tokens.total"))))
    if tokens["total"] is None:
        return rows
    for name, words in CLASS_NAMES.items():
        rows.append((f"  {words}", _number(tokens[name], unknown.get(f"tokens.{name}"))))
    unclassed = figures["unclassed"]
    for name, words in (("fresh_or_written", "fresh or written"), ("short_or_long", "written, any life")):
        if unclassed[name]:
            said = f"{unclassed[name]:,}: provider did not say which"
            where = f", in {unclassed['requests']:,} of the requests" if unclassed["requests"] else ""
            rows.append((f"  {words}", said + where))
    rows.append(("output tokens", _number(tokens["output"], unknown.get("tokens.output"))))
    rows.append(("prefill saved", _seconds(figures, report)))
    rows += _money_rows(figures)
    rows += [
        (f"{words} pays", _even(figures["break_even"][name], unknown.get(f"break_even.{name}")))
        for name, words in (("write_short", "short write"), ("write_long", "long write"))
        if figures["break_even"][name] or tokens[name] != 0
    ]
    rows.append(("reads per write", _observed(figures)))
    price = figures["price"]
    if price:
        rows += [(name, price[name]) for name in ("source", "note") if price[name]]
    return rows


def _number(value: int | None, reason: str | None) -> str:
    return _why(reason) if value is None else f"{value:,}"


def _why(reason: str | None) -> str:
    """A reason in the place of a number."""
    text = reason or ""
    return text if text.startswith(("provider did not", "prefill rate unknown")) else f"unknown: {text}"


def _seconds(figures: dict[str, Any], report: dict[str, Any]) -> str:
    seconds, rate = figures["seconds_saved"], report["prefill_rate"]
    if seconds is None:
        return _why(figures["unknown"]["seconds_saved"])
    return f"{seconds:,.2f} s, at {rate['tokens_per_second']:,.1f} tokens/s ({rate['source']})"


def _money_rows(figures: dict[str, Any]) -> list[tuple[str, str]]:
    money = figures["money"]
    if money is None:
        return [("money saved", _why(figures["unknown"]["money"]))]
    unit, share = money["unit"], ""
    if money["without_caching"]:
        share = f" ({money['saved'] / money['without_caching']:.1%})"
    if unit == FRESH_TOKEN:
        detail = f"{money['paid']:,.1f} paid, {money['without_caching']:,.1f} without caching"
        words = f"{money['saved']:,.1f} × the {unit}{share}: {detail}; no base price, give it with --prices"
        return [("money saved", words)]
    detail = f"{money['paid']:,.6f} paid, {money['without_caching']:,.6f} without caching"
    rows = [("money saved", f"{money['saved']:,.6f} {unit}{share}: {detail}, for prompts")]
    if money["output"] is not None:
        rows.append(("output cost", f"{money['output']:,.6f} {unit}, with caching or without"))
    elif "money.output" in figures["unknown"]:
        rows.append(("output cost", _why(figures["unknown"]["money.output"])))
    return rows


def _even(even: dict[str, Any] | None, reason: str | None) -> str:
    if even is None:
        return _why(reason)
    cost = f"write {even['write']:g}, read {even['read']:g}"
    if even["pays_from_use"] is None:
        return f"never ({cost})"
    needed = even["reads_per_written_token_above"]
    more = "" if needed is None else f"; needs more than {needed:.3f} tokens read per token written"
    return f"from use {even['pays_from_use']} on ({cost}){more}"


def _observed(figures: dict[str, Any]) -> str:
    ratio, paid = figures["reads_per_written_token"], figures["writes_paid"]
    if ratio is None:
        return _why(figures["unknown"]["reads_per_written_token"])
    verdict = {True: "the writes paid", False: "the writes did not pay", None: None}[paid]
    return f"{ratio:.3f} tokens read per token written: {verdict or figures['unknown']['writes_paid']}"


def _total_rows(sums: dict[str, Any]) -> list[tuple[str, str]]:
    unknown = sums["unknown"]
    seconds, money = sums["seconds_saved"], sums["money_saved"]
    return [
        ("requests", _number(sums["requests"], unknown.get("requests"))),
        ("prompt tokens", _number(sums["tokens_total"], unknown.get("tokens_total"))),
        ("read from the cache", _number(sums["tokens_read"], unknown.get("tokens_read"))),
        ("prefill saved", _why(unknown["seconds_saved"]) if seconds is None else f"{seconds:,.2f} s"),
        (
            "money saved",
            _why(unknown["money_saved"]) if money is None else f"{money:,.6f} {sums['unit']}",
        ),
    ]
