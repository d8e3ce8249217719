"""`anaphora bench EXPERIMENT --base-url URL`: measures what a server's prefix cache is worth."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from anaphora.bench.ab import AbExperiment
from anaphora.bench.boundary import SHARED, BoundaryExperiment
from anaphora.bench.burst import BurstExperiment
from anaphora.bench.experiment import Experiment
from anaphora.bench.layout import LayoutExperiment
from anaphora.bench.multiturn import MultiturnExperiment
from anaphora.bench.own_servers import on_and_off
from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.replay import ReplayExperiment, TracedRequest
from anaphora.bench.run import run_experiment
from anaphora.bench.target import Access
from anaphora.cli.bench_output import check_files, ending_like_ctrl_c, progress_of, write
from anaphora.cli.numbers import count
from anaphora.cli.remote import API_KEY_VARIABLE
from anaphora.cli.trace_files import ReadOptions, read_trace
from anaphora.errors import ConfigError, TraceError
from anaphora.sim.chats import Tokenize

NAME = "bench"
SUMMARY = "measure what a server's prefix cache is worth"
EXAMPLE = "anaphora bench prefix --base-url http://127.0.0.1:8000"

_EXIT_CODES = "exit codes: 0 fine, 1 error or broken off, 2 something to look at"
_URL = "--base-url http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class Choice:
    """One experiment on the command line."""

    name: str
    summary: str
    example: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    make: Callable[[argparse.Namespace], Experiment]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the experiments and their arguments."""
    experiments = parser.add_subparsers(dest="experiment", metavar="EXPERIMENT", required=True)
    for choice in CHOICES:
        sub = experiments.add_parser(
            choice.name,
            help=choice.summary,
            description=choice.summary,
            epilog=f"example:\n  anaphora bench {choice.example}\n\n{_EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        choice.add_arguments(sub)
        _add_common(sub, needs_url=choice.name != "ab")


def _add_common(parser: argparse.ArgumentParser, *, needs_url: bool) -> None:
    server = parser.add_argument_group("server")
    server.add_argument(
        "--base-url", required=needs_url, metavar="URL", help="the server, with or without /v1"
    )
    server.add_argument("--model", metavar="NAME", help="default: the first that the server names")
    server.add_argument("--api-key", metavar="KEY", help=f"default: ${API_KEY_VARIABLE}, else none")
    server.add_argument(
        "--admin-api-key", metavar="KEY", help="key for resetting the cache; default: the API key"
    )
    server.add_argument(
        "--api",
        choices=("auto", "completions", "chat"),
        default="auto",
        help="which endpoint to use (default: auto)",
    )
    server.add_argument(
        "--timeout", type=_positive, default=120.0, metavar="S", help="of one request (default: 120)"
    )
    server.add_argument(
        "--block-size", type=_at_least_1, help="tokens of a block, where /metrics does not say it"
    )
    server.add_argument("--no-reset", action="store_true", help="leave the server's cache as it is")
    output = parser.add_argument_group("run and output")
    output.add_argument(
        "--seed",
        type=count,
        help="draws prompts and order; default: a new one, so that no prompt was seen before",
    )
    output.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write one JSON line to FILE, or instead of the table",
    )
    output.add_argument("--plot", type=Path, metavar="FILE", help="draw a picture, .png or .svg")


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _at_least_1(text: str) -> int:
    value = count(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below 1")
    return value


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(sorted({_at_least_1(part) for part in text.split(",")}))


def _add_numbers(parser: argparse.ArgumentParser, default: object, **helps: str) -> None:
    """Declare whole numbers of 1 and more, named and preset as the fields of the experiment."""
    for name, text in helps.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=_at_least_1,
            default=getattr(default, name),
            metavar="N",
            help=f"{text} (default: %(default)s)",
        )


def _prefix_arguments(parser: argparse.ArgumentParser) -> None:
    _add_numbers(
        parser,
        PrefixExperiment(),
        tokens="tokens of a prompt",
        rounds="how often each arm is measured",
        output_tokens="tokens of an output",
    )


def _boundary_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shared",
        type=_lengths,
        default=SHARED,
        metavar="N,N,…",
        help=f"shared lengths (default: {','.join(map(str, SHARED))})",
    )
    _add_numbers(parser, BoundaryExperiment(), rounds="how often each length is measured")


def _layout_arguments(parser: argparse.ArgumentParser) -> None:
    _add_numbers(
        parser,
        LayoutExperiment(),
        tokens="tokens of a prompt",
        rounds="how often each arm is measured",
        output_tokens="tokens of an output",
    )


def _burst_arguments(parser: argparse.ArgumentParser) -> None:
    _add_numbers(
        parser,
        BurstExperiment(),
        concurrency="requests at once",
        tokens="tokens of a prompt",
        rounds="how often each burst is sent",
        output_tokens="tokens of an output",
    )


def _ab_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--other-url", metavar="URL", help="the server with caching off; --base-url has it on"
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        const="",
        metavar="MODEL",
        help="instead of URLs: start our own server twice, caching on and off (default model: the demo model)",
    )
    _add_numbers(
        parser,
        AbExperiment(),
        tokens="tokens of a prompt",
        rounds="how often each arm is measured on each server",
        output_tokens="tokens of an output",
        batch="never-seen prompts at once, for the throughput at no hits",
    )


def _multiturn_arguments(parser: argparse.ArgumentParser) -> None:
    _add_numbers(
        parser,
        MultiturnExperiment(),
        turns="turns of a conversation",
        rounds="conversations",
        tokens="words of what the user says in a turn",
        output_tokens="tokens of a reply",
    )


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        type=Path,
        metavar="TRACE",
        help="Mooncake, Qwen-Bailian or a recording of anaphora serve --record, plain or .gz",
    )
    parser.add_argument(
        "--trace-block-size",
        type=_at_least_1,
        metavar="N",
        help="tokens of a block in the trace; default: the one size that fits every line, if there is only one",
    )
    parser.add_argument(
        "--max-requests",
        type=_at_least_1,
        default=40,
        metavar="N",
        help="only the first N (default: %(default)s)",
    )
    parser.add_argument(
        "--scale",
        type=_positive,
        metavar="X",
        help="factor on all lengths; default: such that the longest request takes 4,096 tokens, or the context",
    )
    parser.add_argument(
        "--speed",
        type=_positive,
        default=1.0,
        metavar="X",
        help="2 sends twice as fast as the trace (default: 1)",
    )


def _no_texts() -> Tokenize:
    raise TraceError(
        "a trace of texts has no pace and no blocks; record one with anaphora serve --record, or simulate it"
    )


def _of_the_trace(message: str) -> str:
    """Name our flag where the reader names that of `anaphora simulate`: here --block-size is the server's."""
    return message.replace("--block-size", "--trace-block-size")


def _make_replay(options: argparse.Namespace) -> Experiment:
    read = ReadOptions(block_size=options.trace_block_size, limit=options.max_requests)
    try:
        trace = read_trace(options.trace, read, _no_texts)
    except (TraceError, ConfigError) as error:
        raise type(error)(_of_the_trace(str(error))) from error
    if trace.error is not None:
        raise TraceError(_of_the_trace(f"{options.trace}, {trace.error}"))
    if not trace.has_times:
        raise TraceError(f"{options.trace} does not say when each request arrived, so it has no pace to keep")
    return ReplayExperiment(
        requests=tuple(
            TracedRequest(
                request.arrival_s or 0.0,
                request.num_prompt_tokens,
                max(1, request.num_output_tokens),
                request.block_ids,
            )
            for request in trace.requests
        ),
        block_size=trace.block_size,
        scale=options.scale,
        speed=options.speed,
    )


CHOICES = (
    Choice(
        "prefix",
        "cold, warm, warm and control requests: is caching on, and what is it worth?",
        f"prefix {_URL} --plot prefix.svg",
        _prefix_arguments,
        lambda o: PrefixExperiment(tokens=o.tokens, rounds=o.rounds, output_tokens=o.output_tokens),
    ),
    Choice(
        "boundary",
        "prompts that share 15, 16, 17, … tokens: hits round down to whole blocks",
        f"boundary {_URL} --shared 15,16,17,95,96,97",
        _boundary_arguments,
        lambda o: BoundaryExperiment(shared=o.shared, rounds=o.rounds),
    ),
    Choice(
        "layout",
        "the time of day at the beginning of the prompt, or at its end",
        f"layout {_URL} --tokens 2000",
        _layout_arguments,
        lambda o: LayoutExperiment(tokens=o.tokens, rounds=o.rounds, output_tokens=o.output_tokens),
    ),
    Choice(
        "ab",
        "caching on against caching off, interleaved; two servers, or our own started twice",
        "ab --serve smollm2-135m",
        _ab_arguments,
        lambda o: AbExperiment(
            tokens=o.tokens, rounds=o.rounds, output_tokens=o.output_tokens, batch=o.batch
        ),
    ),
    Choice(
        "burst",
        "many identical prompts at one moment: is the prompt computed once?",
        f"burst {_URL} --concurrency 16",
        _burst_arguments,
        lambda o: BurstExperiment(
            concurrency=o.concurrency, tokens=o.tokens, rounds=o.rounds, output_tokens=o.output_tokens
        ),
    ),
    Choice(
        "multiturn",
        "a conversation that grows, its replies sent back as text and as token ids",
        f"multiturn {_URL} --turns 8",
        _multiturn_arguments,
        lambda o: MultiturnExperiment(
            turns=o.turns, rounds=o.rounds, tokens=o.tokens, output_tokens=o.output_tokens
        ),
    ),
    Choice(
        "replay",
        "a trace at the pace of its arrivals",
        f"replay conversation_trace.jsonl.gz --trace-block-size 512 {_URL}",
        _replay_arguments,
        _make_replay,
    ),
)


def run(options: argparse.Namespace) -> int:
    """Measure, print or write the report, and return its exit code."""
    check_files(options)
    is_new_seed = options.seed is None
    seed = int.from_bytes(os.urandom(4)) if is_new_seed else options.seed
    choice = next(choice for choice in CHOICES if choice.name == options.experiment)
    experiment = choice.make(options)
    with ending_like_ctrl_c(), ExitStack() as stack:
        accesses = [_access(options, url) for url in _urls(options, stack)]
        with progress_of(experiment) as progress:
            report = run_experiment(experiment, accesses, seed, is_new_seed=is_new_seed, progress=progress)
    write(report, options)
    if report.partial:
        print(f"error: {report.partial}; the results are partial", file=sys.stderr)
    return report.exit_code


def _urls(options: argparse.Namespace, stack: ExitStack) -> list[str]:
    if options.experiment != "ab":
        return [options.base_url]
    if options.serve is not None:
        if options.base_url or options.other_url:
            raise ConfigError("--serve starts its own servers; leave out --base-url and --other-url")
        return list(stack.enter_context(on_and_off(options.serve or None)))
    if not options.base_url or not options.other_url:
        raise ConfigError(
            "ab needs two servers: --base-url with caching on and --other-url with it off, or --serve to start them"
        )
    if Access(base_url=options.base_url).root == Access(base_url=options.other_url).root:
        raise ConfigError("ab needs two servers, but --base-url and --other-url are the same one")
    return [options.base_url, options.other_url]


def _access(options: argparse.Namespace, url: str) -> Access:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no URL of a server; it must begin with http:// or https://")
    return Access(
        base_url=url,
        model=options.model,
        api_key=options.api_key or os.environ.get(API_KEY_VARIABLE),
        admin_api_key=options.admin_api_key,
        api=options.api,
        timeout_s=options.timeout,
        block_size=options.block_size,
        may_reset=not options.no_reset,
    )
