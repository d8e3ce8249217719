"""`anaphora cost USAGE.jsonl … | --base-url URL`: what caching saved, in tokens, seconds and money."""

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from rich.console import Console

from anaphora.cli.cost_table import show
from anaphora.cli.one_line import one_line
from anaphora.cli.scrape import TIMEOUT_S, read_server
from anaphora.cli.usage_files import UsageReader
from anaphora.cost.bill import Unknown
from anaphora.cost.prices import PriceTable, parse_prices
from anaphora.cost.report import NO_RATE, Problem, model_figures, price_of, total
from anaphora.cost.tally import Log
from anaphora.cost.usage import PROVIDERS
from anaphora.errors import ConfigError

NAME = "cost"
SUMMARY = "say what caching saved, in tokens, seconds and money"
EXAMPLE = "anaphora cost usage.jsonl --prices my.toml\n  anaphora cost --base-url http://127.0.0.1:8000"

MAX_PROBLEMS_SHOWN = 20
MAX_WATCH_S = 86_400


class Rate(NamedTuple):
    """Prompt tokens a second, or why they are not known, and whose word that is."""

    value: float | Unknown
    source: str | None


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "usage",
        type=Path,
        nargs="*",
        metavar="USAGE.jsonl",
        help="one JSON object a line: an API response, a usage object, a proxy's log entry that holds one, "
        "or a recorded trace; a stream as it came; or what /metrics said; may be compressed with gzip",
    )
    parser.add_argument(
        "--base-url",
        metavar="URL",
        help="read the metrics of a running anaphora or vLLM server; with files, only its prefill rate",
    )
    parser.add_argument(
        "--watch",
        type=positive,
        metavar="S",
        help="count only what the server does in the next S seconds, not since its start",
    )
    parser.add_argument(
        "--provider",
        choices=PROVIDERS,
        help="whose usage it is, for lines whose fields do not tell (default: an error); "
        "server: all lines are of a server of your own",
    )
    parser.add_argument("--model", metavar="NAME", help="the model of lines that name none")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE.toml", help="your prices, merged over those of the package"
    )
    parser.add_argument(
        "--prefill-rate",
        type=positive,
        metavar="N",
        help="prompt tokens a second, as measured (default: what the server of --base-url measured)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the report; 0 when everything could be read and priced, else 1, and the report is partial."""
    _check(options)
    table = load_prices(options.prices, date.today())  # noqa: DTZ011 - a table is dated by the day, anywhere
    reader = UsageReader(Log(), options.provider, options.model)
    rate = Rate(Unknown(NO_RATE), None)
    try:
        for path in options.usage:
            reader.read(path)
        if not reader.num_logs and not reader.problems:
            _check_no_lines_told(options)
        rate = _measure(options, reader)
    except KeyboardInterrupt:
        reader.problems.append(Problem("Ctrl-C", None, "broken off; what was read until then is counted"))
    if options.prefill_rate:
        rate = Rate(options.prefill_rate, "--prefill-rate")
    report = make_report(reader.log, table, rate, reader.problems)
    if options.json:
        print(json.dumps(report))
    else:
        show(report, Console())
    return _tell(reader.problems)


def _measure(options: argparse.Namespace, reader: UsageReader) -> Rate:
    """Return the prefill rate that metrics tell, and take over their counters where there is no log."""
    metrics, source, counted = reader.metrics, str(reader.metrics_path), reader.metrics
    if options.base_url:
        if reader.metrics_path is not None:
            reason = "holds metrics, and those of --base-url are asked for too; give one"
            reader.problems.append(Problem(str(reader.metrics_path), None, reason))
        try:
            with httpx.Client(timeout=TIMEOUT_S) as client:
                watched = read_server(client, options.base_url, options.watch, time.sleep)
        except ConfigError as error:
            reader.problems.append(Problem(options.base_url, None, str(error)))
            return Rate(Unknown(NO_RATE), None)
        metrics, source, counted = watched.now, options.base_url, watched.counted
        if watched.is_cut:
            reader.problems.append(Problem("Ctrl-C", None, "--watch was broken off before its time"))
    if metrics is None or counted is None:
        return Rate(Unknown(NO_RATE), None)
    for tally in [] if reader.num_logs else counted.tallies():
        reader.log.take_tally(tally)
    return Rate(metrics.prefill_rate(), f"measured by {source} since its start")


def _check(options: argparse.Namespace) -> None:
    if not options.usage and not options.base_url:
        raise ConfigError("nothing to read; name a USAGE.jsonl or pass --base-url")
    if options.watch is not None and (options.usage or not options.base_url):
        raise ConfigError("--watch is about the counters of a server; pass --base-url, and no files")
    if options.watch and options.watch > MAX_WATCH_S:
        raise ConfigError(f"--watch is {options.watch:,.0f} s, the limit is {MAX_WATCH_S:,}; give less")
    if not options.usage:
        _check_no_lines_told(options)


def _check_no_lines_told(options: argparse.Namespace) -> None:
    """Refuse what is about lines where there are none."""
    if options.model is not None or options.provider:
        raise ConfigError("--model and --provider are about the lines of files; name a USAGE.jsonl")


def load_prices(path: Path | None, today: date) -> PriceTable:
    """Return the table of the package, with a file merged over it."""
    text = resources.files("anaphora.cost").joinpath("prices.toml").read_text("utf-8")
    table = parse_prices(text, "the built-in price table")
    if path is None:
        return table
    try:
        own = path.read_text("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    prices = parse_prices(own, str(path), table)
    if date.fromisoformat(prices.as_of) > today + timedelta(days=1):
        raise ConfigError(f"{path}: as_of is {prices.as_of}, but today is {today}; date it when it was true")
    return prices


def make_report(log: Log, table: PriceTable, rate: Rate, problems: list[Problem]) -> dict[str, Any]:
    """Return the report; models without a price are added to the problems."""
    groups = []
    for tally in log.finish():
        price = price_of(tally, table)
        if isinstance(price, Problem):
            if tally.split.total:
                problems.append(price)
            price = Unknown(price.reason.partition(";")[0])
        groups.append(model_figures(tally, price, rate.value))
    if not groups and not problems:
        problems.append(Problem("nothing to report", None, f"no line has a usage: {_counts(log.left_out)}"))
    unknown = rate.value.reason if isinstance(rate.value, Unknown) else None
    return {
        "partial": bool(problems),
        "problems": [{"source": each.source, "line": each.line, "reason": each.reason} for each in problems],
        "prices": table.dates(),
        "prefill_rate": {
            "tokens_per_second": None if unknown else rate.value,
            "unknown": unknown,
            "source": None if unknown else rate.source,
        },
        "left_out": dict(log.left_out),
        "models": groups,
        "total": total(groups) if len(groups) > 1 else None,
    }


def _counts(left_out: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {reason}" for reason, number in left_out.items())


def _tell(problems: Sequence[Problem]) -> int:
    """Print what is wrong, and return the exit code."""
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        print(f"error: {one_line(str(problem))}", file=sys.stderr)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        print(
            f"error: and {len(problems) - MAX_PROBLEMS_SHOWN:,} more; --json lists them all", file=sys.stderr
        )
    return 1 if problems else 0
