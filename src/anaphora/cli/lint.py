"""`anaphora lint REQUESTS.jsonl`: what in a log of prompts keeps them from being reused."""

import argparse
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from anaphora.assemble import body_renderer
from anaphora.cli.explain import MIN_PREFILL_TOKENS
from anaphora.cli.log_file import LogFile, check_log, read_log, show_errors, write_log
from anaphora.cli.numbers import count
from anaphora.cli.pictures import pixel_decoder
from anaphora.cli.progress import pull_progress, work_progress
from anaphora.cli.targets import check_can_write
from anaphora.config import CacheConfig
from anaphora.errors import ModelError
from anaphora.explain.records import HitLaw
from anaphora.lint.hosted import read_limits
from anaphora.lint.linter import Means, Report, lint
from anaphora.lint.log import Log
from anaphora.lint.mending import Mended, mend
from anaphora.lint.reuse import page_size_of
from anaphora.lint.suspect import SEVERITIES, LintFinding
from anaphora.server.prompt_records import BodyRenderer

NAME = "lint"
SUMMARY = "find what keeps the prompts of a log from being reused"
EXAMPLE = "anaphora lint requests.jsonl --fix fixed.jsonl"

MAX_ERRORS_SHOWN = 20
_STAND_IN = "rendered with a plain stand-in template (tools first) and the demo model's tokenizer"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "requests", type=Path, metavar="REQUESTS.jsonl", help="bodies or a proxy's log, one a line"
    )
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT.jsonl",
        help="write the log again with values moved and JSON frozen, and replay both",
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        default="high",
        help="exit with 2 for findings that are at least so severe (default: %(default)s)",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="whose tokenizer and template: a registry name, a .gguf file or an OpenVINO folder; "
        "default: the demo model's tokenizer, and a plain template",
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
    parser.add_argument(
        "--pages", type=count, metavar="N", help="pages of the replayed cache; default: nothing is evicted"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the report; 1 when a line could not be processed, else 2 for findings of --fail-on, else 0."""
    law = HitLaw(CacheConfig(block_size=options.block_size).block_size, MIN_PREFILL_TOKENS)
    if options.pages is not None:
        CacheConfig(num_pages=options.pages + 1)
    check_log(options.requests)
    if options.fix is not None:
        check_can_write("--fix", options.fix, options.requests)
    renderer = _renderer(options)
    has_template = bool(options.model or options.chat_template)
    means = Means(
        render=renderer,
        count=renderer.token_ids,
        template_source=renderer.template_source if has_template else None,
        limits=read_limits(_packaged("hosted_limits.toml").read_text("utf-8")),
        decode_pixels=pixel_decoder(),
        num_pages=options.pages,
    )
    with work_progress() as tick:
        file = read_log(options.requests, renderer, tick)
        log = Log(file.requests, law)
        report = lint(log, means, tick)
        mended = None
        if options.fix is not None:
            mended = mend(log, [finding.suspect for finding in report.findings], means)
            write_log(options.fix, file, mended.sources)
    if options.json:
        print(json.dumps(_as_json(file, report, mended, has_template=has_template)))
    else:
        show(report, Console(), has_template=has_template)
        if mended is not None:
            _show_mended(report, mended, options)
        for line in show_errors(file.errors, MAX_ERRORS_SHOWN):
            print(f"error: {options.requests}: {line}", file=sys.stderr)
    return 1 if file.errors else 2 if is_failing(report, options.fail_on) else 0


def _renderer(options: argparse.Namespace) -> BodyRenderer:
    is_stand_in = options.model is None and options.chat_template is None
    try:
        with (
            resources.as_file(_packaged("stand_in.jinja")) as stand_in,
            pull_progress(options.model or "the demo model") as progress,
        ):
            template = stand_in if is_stand_in else options.chat_template
            return body_renderer(options.model, template, progress=progress)
    except ModelError as error:
        reason = str(error).rstrip(".")
        raise ModelError(
            f"no tokenizer to count tokens with: {reason}; fetch one with `anaphora pull smollm2-135m`, "
            "or name a .gguf file or an OpenVINO folder with --model"
        ) from error


def _packaged(name: str) -> Any:
    return resources.files("anaphora.lint").joinpath(name)


def is_failing(report: Report, fail_on: str) -> bool:
    """Whether a report holds a finding that is at least so severe."""
    worst = SEVERITIES.index(fail_on)
    return any(SEVERITIES.index(finding.severity) <= worst for finding in report.findings)


def _as_json(file: LogFile, report: Report, mended: Mended | None, *, has_template: bool) -> dict[str, Any]:
    return {
        **report.as_json(),
        "template": "given" if has_template else "stand-in",
        "fix": None
        if mended is None
        else {
            "changed_requests": mended.num_changed,
            "prompt_tokens": mended.reuse.prompt_tokens,
            "reused_tokens": mended.reuse.reused_tokens,
            "hit_rate": round(mended.reuse.hit_rate, 4),
        },
        "errors": [{"line": error.line, "reason": error.reason} for error in file.errors],
    }


def show(report: Report, console: Console, *, has_template: bool) -> None:
    """Print a report for people."""
    reuse = report.reuse
    if not has_template:
        console.print(Text(_STAND_IN))
    console.print(
        Text(
            f"{len(reuse.reused):,} requests, {reuse.prompt_tokens:,} prompt tokens; "
            f"{reuse.reused_tokens:,} reused ({reuse.hit_rate:.1%})"
        )
    )
    if report.findings:
        table = Table(pad_edge=False)
        for name in ("severity", "rule", "requests", "tokens lost"):
            table.add_column(
                name, no_wrap=True, justify="right" if name[0] in "rt" and name != "rule" else "left"
            )
        table.add_column("what, where, and what to do", overflow="fold")
        for finding in report.findings:
            table.add_row(*_row(finding, reuse.prompt_tokens))
        console.print(table)
    else:
        console.print(Text("nothing found"))
    for rule, reason in report.not_run.items():
        console.print(Text(f"{rule} did not run: {reason}"))


def _row(finding: LintFinding, prompt_tokens: int) -> list[Text]:
    suspect = finding.suspect
    share = finding.tokens_lost / prompt_tokens if prompt_tokens else 0.0
    more = ", …" if len(suspect.indices) > len(finding.lines) else ""
    lines = ", ".join(f"{line:,}" for line in finding.lines)
    words = [
        f"{suspect.code} ({suspect.certainty}) in {suspect.path}",
        suspect.evidence,
        suspect.fix,
        f"lines {lines}{more}" if lines else "",
    ]
    return [
        Text(finding.severity, style={"high": "bold red", "medium": "yellow"}.get(finding.severity, "")),
        Text(suspect.rule),
        Text(f"{len(suspect.indices):,}"),
        Text(f"{finding.tokens_lost:,}\n{share:.1%}"),
        Text("\n".join(filter(None, words))),  # a prompt may hold what rich takes for markup
    ]


def _show_mended(report: Report, mended: Mended, options: argparse.Namespace) -> None:
    before, after = report.reuse, mended.reuse
    law = HitLaw(options.block_size)
    cache = (
        f"a cache of {options.pages:,} pages of {page_size_of(law)} tokens"
        if options.pages
        else "an endless cache"
    )
    print(
        f"{options.fix}: {mended.num_changed:,} requests rewritten. Replayed through {cache}: "
        f"{before.reused_tokens:,} of {before.prompt_tokens:,} tokens reused before ({before.hit_rate:.1%}), "
        f"{after.reused_tokens:,} of {after.prompt_tokens:,} after ({after.hit_rate:.1%})"
    )
