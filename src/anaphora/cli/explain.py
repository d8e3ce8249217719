"""`anaphora explain`: why a prompt was not reused by a server, or would not be, without one."""

import argparse
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console
from rich.table import Table

from anaphora.assemble import body_renderer
from anaphora.cli.numbers import count
from anaphora.cli.progress import pull_progress
from anaphora.cli.remote import API_KEY_VARIABLE, DEFAULT_BASE_URL, get_json
from anaphora.config import CacheConfig
from anaphora.errors import ConfigError, InvalidRequestError
from anaphora.explain.endless_cache import explain_after
from anaphora.explain.log_entries import read_entry
from anaphora.explain.records import Explanation, HitLaw, PromptRecord
from anaphora.explain.verdict import FINE_CAUSES
from anaphora.nesting import parse_json
from anaphora.server.prompt_records import BodyRenderer

NAME = "explain"
SUMMARY = "say why a prompt is not reused from the cache"
EXAMPLE = """anaphora explain turn2.json --against turn1.json
  anaphora explain --request-id chatcmpl-42 --base-url http://127.0.0.1:8000"""

MIN_PREFILL_TOKENS = 2
"""What the OpenVINO runner asks for: a prefill of one token is not computed as part of a longer one is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("request", type=Path, nargs="?", metavar="REQUEST.json", help="the body of a request")
    parser.add_argument(
        "--against",
        nargs="+",
        action="extend",
        default=[],
        metavar="EARLIER",
        help=(
            "files with the bodies of earlier requests, in their order: they are what the cache holds; "
            "with --request-id, the id of an earlier request to compare its text with"
        ),
    )
    _add_server_flags(parser.add_argument_group("ask a running server"))
    _add_offline_flags(parser.add_argument_group("without a server"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_server_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--request-id", metavar="ID", help="the id of an answer, such as chatcmpl-42")
    group.add_argument(
        "--base-url", metavar="URL", help=f"where the server listens (default: {DEFAULT_BASE_URL})"
    )
    group.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"key of the caller whose request it was; default: ${API_KEY_VARIABLE}",
    )


def _add_offline_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="whose tokenizer: a registry name, a .gguf file or an OpenVINO folder; default: the demo model's",
    )
    group.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template instead of the model's own"
    )
    group.add_argument(
        "--block-size",
        type=count,
        default=CacheConfig().block_size,
        help="tokens of a block (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the explanation; 0 when nothing is lost but what the law takes, else 2."""
    check_options(options)
    found = _ask(options) if options.request_id is not None else _find_out(options)
    if options.json:
        print(json.dumps(found.as_json()))
    else:
        show(found, Console())
    return 0 if found.cause in FINE_CAUSES else 2


def check_options(options: argparse.Namespace) -> None:
    """Raise ConfigError for flags that say nothing together."""
    if (options.request is None) == (options.request_id is None):
        raise ConfigError("give either REQUEST.json or --request-id ID, and not both")
    if options.request_id is not None and len(options.against) > 1:
        raise ConfigError(
            f"--against names {len(options.against)} requests, but with --request-id it takes one id; name one"
        )
    if options.request_id is not None and (options.model or options.chat_template):
        raise ConfigError(
            "--model and --chat-template are for files; the server knows its own, leave them out"
        )
    if options.request_id is None and (options.base_url or options.api_key):
        raise ConfigError("--base-url and --api-key ask a server; add --request-id ID, or leave them out")


def _ask(options: argparse.Namespace) -> Explanation:
    """Ask the server that answered the request."""
    answer = get_json(
        options.base_url or DEFAULT_BASE_URL,
        f"/v1/cache/requests/{quote(options.request_id, safe='')}",
        api_key=options.api_key,
        params={"against": options.against[0]} if options.against else {},
    )
    return Explanation.from_json(answer)


def _find_out(options: argparse.Namespace) -> Explanation:
    """Compare the bodies in files."""
    law = HitLaw(CacheConfig(block_size=options.block_size).block_size, MIN_PREFILL_TOKENS)
    paths = [*map(Path, options.against), options.request]
    bodies = [read_request(path) for path in paths]
    with pull_progress(options.model or "the demo model") as progress:
        renderer = body_renderer(options.model, options.chat_template, progress=progress)
    records = records_of(paths, bodies, renderer)
    return explain_after(records[-1], records[:-1], law, renderer)


def read_request(path: Path) -> dict[str, Any]:
    """Return the body in a file, taken out of a log's entry if it lies in one; ConfigError says what is wrong."""
    try:
        value = parse_json(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON that can be read: {error}") from error
    try:
        entry = read_entry(value)
    except InvalidRequestError as error:
        raise ConfigError(f"{path} holds {error}") from error
    return {**entry.body, "request_id": entry.request_id}


def records_of(paths: list[Path], bodies: list[dict[str, Any]], renderer: BodyRenderer) -> list[PromptRecord]:
    """Return the records of some bodies; one that names no model was sent to the model that others name."""
    models = [str(body["model"]) for body in reversed(bodies) if body.get("model")]
    records = []
    for path, body in zip(paths, bodies, strict=True):
        request_id = str(body.get("request_id") or path.stem)
        try:
            records.append(renderer.record(request_id, body, default_model=models[0] if models else None))
        except InvalidRequestError as error:
            raise ConfigError(f"{path}: {error}") from error
    return records


def show(found: Explanation, console: Console) -> None:
    """Print an explanation for people."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    where = [
        part
        for part, value in (
            (found.path, found.path),
            (f"character {found.char_offset or 0:,}", found.char_offset),
            (f"token {found.token_index or 0:,}", found.token_index),
        )
        if value is not None
    ]
    rows = [
        ("cause", f"{found.cause} ({found.certainty})"),
        (
            "reused",
            (
                f"{found.reused_tokens:,} of {found.prompt_tokens:,} tokens; largest possible hit "
                f"{found.best_possible_reuse:,}"
            ),
        ),
        ("stopped at", f"block {found.block_index:,}" if found.block_index is not None else ""),
        ("diverged at", ", ".join(filter(None, where))),
        ("earlier", "" if found.old is None else repr(found.old)),
        ("now", "" if found.new is None else repr(found.new)),
        ("lost", f"{found.tokens_lost:,} tokens" if found.tokens_lost else ""),
        ("uncached", ", ".join(f"{cause} {number:,}" for cause, number in found.uncached.items())),
        ("also", ", ".join(found.also)),
        ("against", found.compared_with or ""),
        ("advice", found.advice),
    ]
    for name, value in rows:
        if value:
            table.add_row(name, _plain(value))
    console.print(table, soft_wrap=False)


def _plain(text: str) -> Any:
    from rich.text import Text

    return Text(text)  # a prompt may hold what rich takes for markup
