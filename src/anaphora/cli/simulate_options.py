"""What `anaphora simulate` can be told, and what of it makes no sense together."""

import argparse
from pathlib import Path

from anaphora.cli.numbers import count
from anaphora.cli.plot import check_can_plot
from anaphora.cli.remote import API_KEY_VARIABLE
from anaphora.cli.targets import check_can_write
from anaphora.config import EVICTION_POLICIES, SchedulerConfig
from anaphora.errors import ConfigError
from anaphora.sim.export import FORMS
from anaphora.sim.order import BELADY

_SCHEDULER = SchedulerConfig()
_COUNTS = ("pages", "limit", "block_size", "page_size", "max_num_batched_tokens", "max_num_seqs")
_OF_TIMES = ("calibrate", "cost", "max_num_batched_tokens", "max_num_seqs", "coalesce_deadline_ms")
_OF_CURVES = ("pages", "policy", "page_size", "plot", *_OF_TIMES)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="Mooncake or Qwen-Bailian lines, a file of `anaphora serve --record`, OpenAI request bodies or ShareGPT; "
        "may be compressed with gzip",
    )
    parser.add_argument(
        "--mode",
        choices=("order", "timed"),
        default="order",
        help="order: one request after another; timed: with arrivals, the scheduler and a cost model "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--pages",
        type=count,
        nargs="+",
        action="extend",
        metavar="N",
        help="usable pages of the pool; may repeat; default: five sizes below what the trace would fill",
    )
    parser.add_argument(
        "--policy",
        choices=(*EVICTION_POLICIES, BELADY),
        nargs="+",
        action="extend",
        help="eviction policies; may repeat; default: all, and in timed mode lru; order mode always adds belady",
    )
    parser.add_argument(
        "--block-size",
        type=count,
        metavar="N",
        help="tokens of a block; default: the trace's own, 16 for texts",
    )
    parser.add_argument(
        "--page-size",
        type=count,
        metavar="N",
        help="tokens of a page; default: the trace's own, 32 for texts",
    )
    parser.add_argument("--limit", type=count, metavar="N", help="read only the first N entries")
    _add_time_flags(parser.add_argument_group("time"))
    _add_text_flags(parser.add_argument_group("texts"))
    _add_output_flags(parser.add_argument_group("output"))


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--verify",
        action="store_true",
        help="replay a recording step by step and say whether every request reuses the blocks that were recorded",
    )
    group.add_argument(
        "--export",
        type=Path,
        metavar="FILE",
        help="write the trace in a form that other tools read, and stop",
    )
    group.add_argument("--export-form", choices=FORMS, help=f"which form that is (default: {FORMS[0]})")
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw the curve, as .png, .svg or .pdf")
    group.add_argument("--json", action="store_true", help="print one JSON object; rates are from 0 to 1")


def _add_time_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--calibrate", metavar="URL", help="fit the cost model to the server there")
    group.add_argument(
        "--api-key", metavar="KEY", help=f"key of the server to calibrate; default: ${API_KEY_VARIABLE}"
    )
    group.add_argument("--cost", type=Path, metavar="FILE", help="cost model written by --save-cost")
    group.add_argument("--save-cost", type=Path, metavar="FILE", help="write the cost model that was fitted")
    group.add_argument(
        "--max-num-batched-tokens",
        type=count,
        metavar="N",
        help=f"most tokens in a step (default: the recorded ones, else {_SCHEDULER.max_num_batched_tokens})",
    )
    group.add_argument("--max-num-seqs", type=count, metavar="N", help="timed: most requests at once")
    group.add_argument(
        "--coalesce-deadline-ms", type=count, metavar="MS", help="timed: longest wait for another's blocks"
    )


def _add_text_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", metavar="MODEL", help="whose tokenizer; default: the demo model's")
    group.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template instead of the model's own"
    )


def check_options(options: argparse.Namespace) -> None:
    """Refuse what would be ignored or could only fail late; raises ConfigError."""
    for name in _COUNTS:
        given = getattr(options, name)
        if given is not None and min(given if isinstance(given, list) else [given]) < 1:
            raise ConfigError(f"{_flag(name)} is 0, but must be at least 1")
    _check_tasks(options)
    _check_times(options)
    if options.plot:
        check_can_plot(options.plot, options.trace)
    if options.save_cost:
        check_can_write("--save-cost", options.save_cost, options.trace)


def _check_tasks(options: argparse.Namespace) -> None:
    """Refuse what belongs to a curve where none is measured."""
    if options.verify:
        # A recording stands in order of endings: its first lines are not the first requests.
        _refuse(options, "--verify", "plays a recording as it was", *_OF_CURVES, "limit", "export")
    if options.export:
        _refuse(options, "--export", "only writes the trace", *_OF_CURVES, "json")
    elif options.export_form:
        raise ConfigError("--export-form is of the file that --export FILE writes; give that too")


def _refuse(options: argparse.Namespace, task: str, what: str, *names: str) -> None:
    given = [_flag(name) for name in names if getattr(options, name) not in (None, False)]
    if options.mode == "timed":
        given.append("--mode timed")
    if given:
        raise ConfigError(
            f"{task} {what}, so {' and '.join(given)} would be ignored; leave one or the other out"
        )


def _check_times(options: argparse.Namespace) -> None:
    if options.cost and options.calibrate:
        raise ConfigError("--cost and --calibrate both give a cost model; leave one out")
    if not options.calibrate and (options.save_cost or options.api_key):
        raise ConfigError("--save-cost and --api-key go with --calibrate URL; give it, or leave them out")
    if options.mode != "timed" and (options.max_num_seqs or options.coalesce_deadline_ms is not None):
        raise ConfigError(
            "--max-num-seqs and --coalesce-deadline-ms mean nothing in order mode; add --mode timed"
        )
    if options.mode == "timed" and options.policy and BELADY in options.policy:
        raise ConfigError(f"--policy {BELADY} knows the future, which timed mode has not; use --mode order")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
