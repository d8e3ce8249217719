"""`anaphora explain REQUEST.json --against EARLIER.json …`: why a prompt would not be reused, without a server."""

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from anaphora.assemble import body_renderer
from anaphora.cli.numbers import count
from anaphora.cli.progress import pull_progress
from anaphora.config import CacheConfig
from anaphora.errors import ConfigError, InvalidRequestError
from anaphora.explain.endless_cache import explain_after
from anaphora.explain.log_entries import read_entry
from anaphora.explain.records import Explanation, HitLaw, PromptRecord
from anaphora.explain.verdict import FINE_CAUSES
from anaphora.server.prompt_records import BodyRenderer

NAME = "explain"
SUMMARY = "say why a prompt is not reused from the cache"
EXAMPLE = "anaphora explain turn2.json --against turn1.json"

MIN_PREFILL_TOKENS = 2
"""What the OpenVINO runner asks for: a prefill of one token is not computed as part of a longer one is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("request", type=Path, metavar="REQUEST.json", help="the body of a request")
    parser.add_argument(
        "--against",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="EARLIER.json",
        help="the bodies of earlier requests, in their order; they are what the cache holds",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="whose tokenizer: a registry name, a .gguf file or an OpenVINO folder; default: the demo model's",
    )
    parser.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template instead of the model's own"
    )
    parser.add_argument(
        "--block-size",
        type=count,
        default=CacheConfig().block_size,
        help="tokens of a block (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the explanation; 0 when nothing is lost but what the law takes, else 2."""
    law = HitLaw(CacheConfig(block_size=options.block_size).block_size, MIN_PREFILL_TOKENS)
    bodies = [read_request(path) for path in [*options.against, options.request]]
    with pull_progress(options.model or "the demo model") as progress:
        renderer = body_renderer(options.model, options.chat_template, progress=progress)
    records = records_of([*options.against, options.request], bodies, renderer)
    found = explain_after(records[-1], records[:-1], law, renderer)
    if options.json:
        print(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        show(found, Console())
    return 0 if found.cause in FINE_CAUSES else 2


def read_request(path: Path) -> dict[str, Any]:
    """Return the body in a file, taken out of a log's entry if it lies in one; ConfigError says what is wrong."""
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
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
