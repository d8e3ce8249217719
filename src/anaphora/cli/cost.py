"""`anaphora cost USAGE.jsonl … | --base-url URL`: what caching saved, in tokens, seconds and money."""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console

from anaphora.cli.cost_table import show
from anaphora.cost.bill import Unknown
from anaphora.cost.lines import read_line
from anaphora.cost.prices import PriceTable, parse_prices
from anaphora.cost.report import NO_RATE, Problem, model_figures, price_of, total
from anaphora.cost.server_metrics import ServerReading, parse_metrics
from anaphora.cost.tally import Log
from anaphora.cost.usage import PROVIDERS, UsageShapeError
from anaphora.errors import ConfigError

NAME = "cost"
SUMMARY = "say what caching saved, in tokens, seconds and money"
EXAMPLE = "anaphora cost usage.jsonl --prices my.toml\n  anaphora cost --base-url http://127.0.0.1:8000"

MAX_PROBLEMS_SHOWN = 20
MAX_WATCH_S = 86_400
TIMEOUT_S = 10.0


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
        "or a recorded trace",
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
    table = load_prices(options.prices)
    log, problems = Log(), []
    for path in options.usage:
        problems += read_log(path, log, options.provider, options.model)
    rate: float | Unknown = Unknown(NO_RATE)
    if options.base_url:
        try:
            with httpx.Client(timeout=TIMEOUT_S) as client:
                now, counted = read_server(client, options.base_url, options.watch, time.sleep)
            rate = now.prefill_rate()
        except ConfigError as error:
            problems.append(Problem(options.base_url, None, str(error)))
        else:
            for tally in [] if options.usage else counted.tallies():
                log.take_tally(tally)
    if options.prefill_rate:
        rate = options.prefill_rate
    report = make_report(log, table, rate, problems)
    report["prefill_rate"]["source"] = _source_of_rate(options, rate)
    if options.json:
        print(json.dumps(report))
    else:
        show(report, Console())
    return _tell(problems)


def _check(options: argparse.Namespace) -> None:
    if not options.usage and not options.base_url:
        raise ConfigError("nothing to read; name a USAGE.jsonl or pass --base-url")
    if options.watch and (options.usage or not options.base_url):
        raise ConfigError("--watch is about the counters of a server; pass --base-url, and no files")
    if options.watch and options.watch > MAX_WATCH_S:
        raise ConfigError(f"--watch is {options.watch:,.0f} s, the limit is {MAX_WATCH_S:,}; give less")
    if not options.usage and (options.model or options.provider):
        raise ConfigError("--model and --provider are about the lines of files; name a USAGE.jsonl")


def load_prices(path: Path | None) -> PriceTable:
    """Return the table of the package, with a file merged over it."""
    text = resources.files("anaphora.cost").joinpath("prices.toml").read_text("utf-8")
    table = parse_prices(text, "the built-in price table")
    if path is None:
        return table
    try:
        own = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error}") from error
    return parse_prices(own, str(path), table)


def read_log(path: Path, log: Log, provider: str | None, model: str | None) -> list[Problem]:
    """Count the lines of a file and return what is wrong with it; what is right counts all the same."""
    return list(_problems_of(path, log, provider, model))


def _problems_of(path: Path, log: Log, provider: str | None, model: str | None) -> Iterator[Problem]:
    num_found = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                num_found += 1
                try:
                    log.take(read_line(line.decode("utf-8-sig"), provider), model)
                except UnicodeDecodeError as error:
                    yield Problem(str(path), number, f"is not UTF-8 text: {error.reason}")
                except UsageShapeError as error:
                    yield Problem(str(path), number, str(error))
    except OSError as error:
        yield Problem(str(path), None, f"cannot be read: {error.strerror}")
        return
    if not num_found:
        yield Problem(str(path), None, "is empty; it must hold one JSON object a line")


def read_server(
    client: httpx.Client, base_url: str, watch_s: float | None, sleep: Callable[[float], None]
) -> tuple[ServerReading, ServerReading]:
    """Return what a server has counted since its start, and what is to be reported of it."""
    url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
    first = fetch_metrics(client, url)
    if watch_s is None:
        return first, first
    sleep(watch_s)
    second = fetch_metrics(client, url)
    return second, second.since(first)


def fetch_metrics(client: httpx.Client, url: str) -> ServerReading:
    """Scrape a server once; ConfigError says what is wrong."""
    try:
        response = client.get(url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{url} does not answer: {reason}; start the server or correct --base-url"
        ) from error
    if response.status_code != httpx.codes.OK:
        raise ConfigError(f"{url} answers {response.status_code}, not 200; is it the root of the server?")
    try:
        return parse_metrics(response.text)
    except ConfigError as error:
        raise ConfigError(f"{url}: {error}") from error


def make_report(
    log: Log, table: PriceTable, rate: float | Unknown, problems: list[Problem]
) -> dict[str, Any]:
    """Return the report; models without a price are added to the problems."""
    groups = []
    for tally in log.tallies:
        price = price_of(tally, table)
        if isinstance(price, Problem):
            if tally.split.total:
                problems.append(price)
            price = Unknown(price.reason)
        groups.append(model_figures(tally, price, rate))
    return {
        "partial": bool(problems),
        "problems": [{"source": each.source, "line": each.line, "reason": each.reason} for each in problems],
        "prices": table.dates(),
        "prefill_rate": {
            "tokens_per_second": None if isinstance(rate, Unknown) else rate,
            "unknown": rate.reason if isinstance(rate, Unknown) else None,
        },
        "left_out": dict(log.left_out),
        "models": groups,
        "total": total(groups) if len(groups) > 1 else None,
    }


def _source_of_rate(options: argparse.Namespace, rate: float | Unknown) -> str | None:
    if isinstance(rate, Unknown):
        return None
    return "--prefill-rate" if options.prefill_rate else f"measured by {options.base_url} since its start"


def _tell(problems: Sequence[Problem]) -> int:
    """Print what is wrong, and return the exit code."""
    for problem in problems[:MAX_PROBLEMS_SHOWN]:
        print(f"error: {problem}", file=sys.stderr)
    if len(problems) > MAX_PROBLEMS_SHOWN:
        print(
            f"error: and {len(problems) - MAX_PROBLEMS_SHOWN:,} more; --json lists them all", file=sys.stderr
        )
    return 1 if problems else 0
