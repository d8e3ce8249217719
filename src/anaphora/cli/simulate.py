"""`anaphora simulate TRACE`: recorded traffic once more through the engine's own cache and scheduler."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from anaphora.assemble import body_renderer
from anaphora.cli.cost_files import read_cost, save_cost
from anaphora.cli.one_line import one_line
from anaphora.cli.plot import plot
from anaphora.cli.progress import pull_progress
from anaphora.cli.simulate_options import check_options, declare
from anaphora.cli.simulate_tables import show
from anaphora.cli.trace_files import TEXT_MIN_PREFILL_TOKENS, ReadOptions, read_trace
from anaphora.config import EVICTION_POLICIES, EvictionPolicyName, SchedulerConfig
from anaphora.errors import ConfigError, TraceError
from anaphora.sim.chats import Tokenize
from anaphora.sim.cost import CostModel
from anaphora.sim.export import FORMS, public_lines
from anaphora.sim.order import Hits, OrderReplay, Point
from anaphora.sim.recommend import block_size_ceilings, recommend
from anaphora.sim.report import Costs, Report
from anaphora.sim.steps import StepReplay, departures, num_absent
from anaphora.sim.timed import TimedPoint, TimedReplay
from anaphora.sim.trace import Trace, ceiling

NAME = "simulate"
SUMMARY = "replay recorded traffic through the cache: hit rate by pages and policy, and what to set"
EXAMPLE = "anaphora simulate traces/conversation_trace.jsonl.gz --pages 7027 14054"

DEMO_COST = CostModel(
    step_s=5e-3, prefill_token_s=2.2e-4, prefill_pair_s=1.2e-7, decode_s=6e-4, decode_pair_s=2.2e-6
)
"""About what the demo model takes on two quiet cores: an assumption for whoever gives no other."""
NUM_DEFAULT_PAGES = 5
_SCHEDULER = SchedulerConfig()
_MOST_SHOWN = 10
_TEXT_FORMATS = ("ShareGPT", "request log")

Tick = Callable[[int], None]
Bar = Callable[[str, int], AbstractContextManager[Tick]]


@contextmanager
def progress_bar(name: str, total: int) -> Iterator[Tick]:
    """Show how far it is, on standard error if that is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task(name, total=total)
        yield lambda num_more: bars.advance(task, num_more)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser)


def run(options: argparse.Namespace) -> int:
    """Print what was measured; 1 when that is not all that was asked for."""
    check_options(options)
    trace = _read(options)
    if options.verify:
        return _verify(options, trace)
    if options.export:
        return _export(options, trace)
    if options.mode == "timed":
        if not trace.has_times:
            raise ConfigError(
                f"--mode timed needs to know when requests came, but {options.trace} has no timestamps; "
                "use --mode order"
            )
        trace = trace.by_engine_law(TEXT_MIN_PREFILL_TOKENS)
    costs = _costs(options, trace)
    report = measure(options, trace, costs)
    if report is None:
        print("interrupted before anything was measured", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(report.as_json()))
    else:
        show(report, Console())
    if options.plot:
        plot(report, options.plot)
    if report.partial:
        print(f"error: the result is partial: {one_line(report.partial)}", file=sys.stderr)
    return 1 if report.partial else 0


def _read(options: argparse.Namespace) -> Trace:
    read = ReadOptions(block_size=options.block_size, page_size=options.page_size, limit=options.limit)
    trace = read_trace(options.trace, read, lambda: _tokenizer(options))
    if (options.model or options.chat_template) and trace.format not in _TEXT_FORMATS:
        raise ConfigError(
            f"--model and --chat-template are for texts, but {options.trace} is of the format {trace.format}"
        )
    return trace


def _tokenizer(options: argparse.Namespace) -> Tokenize:
    with pull_progress(options.model or "the demo model") as progress:
        renderer = body_renderer(options.model, options.chat_template, progress=progress)
    return lambda body: renderer.record("", body).token_ids


def _costs(options: argparse.Namespace, trace: Trace) -> Costs | None:
    """Return the cost model there is: fitted now, or read, or in timed mode the demo model's."""
    budget = options.max_num_batched_tokens or _scheduler_config(trace).max_num_batched_tokens
    if options.calibrate:
        from anaphora.cli.calibrate import calibrate, num_requests  # an HTTP client, for this alone

        with progress_bar("calibrate", num_requests()) as tick:
            fit = calibrate(options.calibrate, options.api_key, budget, tick)
        if options.save_cost:
            save_cost(options.save_cost, fit.model)
        source = f"fitted to {options.calibrate}"
        return Costs(model=fit.model, source=source, most_tokens_per_step=budget, fit=fit)
    if options.cost:
        return Costs(model=read_cost(options.cost), source=str(options.cost), most_tokens_per_step=budget)
    if options.mode == "timed":
        source = (
            "assumed, about the demo model on two quiet cores; give --calibrate URL or --cost FILE for yours"
        )
        return Costs(model=DEMO_COST, source=source, most_tokens_per_step=budget)
    if options.max_num_batched_tokens:
        raise ConfigError(
            "--max-num-batched-tokens changes times only; add --mode timed, --calibrate or --cost"
        )
    return None


def _scheduler_config(trace: Trace) -> SchedulerConfig:
    return trace.engine.scheduler if trace.engine else _SCHEDULER


def default_pages(trace: Trace) -> list[int]:
    """Return five sizes: from half of the recorded one, else up to a quarter of what the trace would fill.

    Each holds the largest request.
    """
    least = max(1, trace.num_pages_of_largest)
    if trace.engine:
        recorded = trace.engine.layout.num_usable_pages
        sizes = [recorded // 2, recorded, 2 * recorded, 4 * recorded, 8 * recorded]
    else:
        whole = -(-trace.num_unique_blocks * trace.block_size // trace.page_size)
        low = max(least, whole >> 6)
        growth = max(whole >> 2, min(whole, 4 * low), low) / low
        sizes = [int(low * growth ** (step / (NUM_DEFAULT_PAGES - 1))) for step in range(NUM_DEFAULT_PAGES)]
    return sorted({max(size, least) for size in sizes})


def _policies(options: argparse.Namespace, trace: Trace) -> list[EvictionPolicyName]:
    if options.policy:
        return [name for name in EVICTION_POLICIES if name in options.policy]
    if options.mode == "timed":
        return [trace.engine.eviction_policy if trace.engine else "lru"]
    return list(EVICTION_POLICIES)


def measure(
    options: argparse.Namespace, trace: Trace, costs: Costs | None, bar: Bar = progress_bar
) -> Report | None:
    """Measure point by point; an interruption keeps those that are done. None when there is none."""
    pages = sorted(set(options.pages or default_pages(trace)))
    policies, partial = _policies(options, trace), trace.error
    unbounded: Hits | None = None
    points: list[Point | TimedPoint] = []
    num_turns = (
        len(pages) * (len(policies) + 1) + 1 if options.mode == "order" else len(pages) * len(policies)
    )
    try:
        with bar("simulate", num_turns * len(trace.requests)) as tick:
            if options.mode == "timed" and costs:
                unbounded = Hits(ceiling(trace), [r.num_prompt_tokens for r in trace.requests])
                # One by one: those that are done are kept when the next is interrupted.
                points.extend(_timed_points(options, trace, costs, pages, policies, tick))
            else:
                order = OrderReplay(trace, tick)
                unbounded = order.unbounded()
                points.extend(_order_points(order, pages, policies))
    except KeyboardInterrupt:
        partial = "interrupted" if partial is None else f"interrupted, and {partial}"
    if unbounded is None:
        return None
    block_sizes = block_size_ceilings(trace)
    return Report(
        file=str(options.trace),
        trace=trace,
        mode=options.mode,
        unbounded=unbounded,
        points=points,
        block_sizes=block_sizes,
        recommendation=recommend(trace, points, unbounded, block_sizes, partial=partial),
        costs=costs,
        partial=partial,
    )


def _order_points(
    order: OrderReplay, pages: list[int], policies: list[EvictionPolicyName]
) -> Iterator[Point]:
    for num_pages in pages:
        for policy in policies:
            yield order.play(policy, num_pages)
        yield order.belady(num_pages)


def _timed_points(
    options: argparse.Namespace,
    trace: Trace,
    costs: Costs,
    pages: list[int],
    policies: list[EvictionPolicyName],
    tick: Tick,
) -> Iterator[TimedPoint]:
    config = replace(_scheduler_config(trace), max_num_batched_tokens=costs.most_tokens_per_step)
    if options.max_num_seqs:
        config = replace(config, max_num_seqs=options.max_num_seqs)
    if options.coalesce_deadline_ms is not None:
        config = replace(config, coalesce_deadline_ms=options.coalesce_deadline_ms)
    timed = TimedReplay(trace, config, costs.model, tick)
    for num_pages in pages:
        for policy in policies:
            yield timed.play(policy, num_pages)


def _export(options: argparse.Namespace, trace: Trace) -> int:
    try:
        with options.export.open("x", encoding="utf-8") as file:
            file.writelines(public_lines(trace, options.export_form or FORMS[0]))
    except FileExistsError as error:
        raise ConfigError(f"--export {options.export} exists already; choose another file") from error
    except OSError as error:
        raise ConfigError(f"--export {options.export} cannot be written: {error.strerror}") from error
    print(
        f"{len(trace.requests):,} requests with {trace.block_size} tokens a block written to {options.export}"
    )
    if trace.error:
        raise TraceError(f"the result is partial: {trace.error}")
    return 0


def _verify(options: argparse.Namespace, trace: Trace) -> int:
    """Say whether a recording, played again, reuses what was recorded; 0 if so, else 1 or 2."""
    with progress_bar("verify", len(trace.requests)) as tick:
        comparisons = StepReplay(trace, progress=tick).run()
    different = departures(comparisons)
    num_blocks = sum(len(comparison.recorded_ids) for comparison in comparisons)
    if options.json:
        facts = {
            "requests": len(comparisons),
            "recorded_blocks": num_blocks,
            "departures": [
                {
                    "number": found.number,
                    "recorded_blocks": len(found.recorded_ids),
                    "replayed_blocks": len(found.replayed_ids),
                }
                for found in different
            ],
            "absent_requests": num_absent(trace),
            "partial": trace.error,
        }
        print(json.dumps(facts))
    else:
        print(
            f"{len(comparisons) - len(different):,} of {len(comparisons):,} requests reuse exactly the blocks that "
            f"were recorded; {num_blocks:,} blocks were reused in all"
        )
        for found in different[:_MOST_SHOWN]:
            print(
                f"request {found.number}: {len(found.recorded_ids):,} blocks recorded, {len(found.replayed_ids):,} "
                f"replayed; preempted {found.recorded_preemptions} and {found.replayed_preemptions} times"
            )
        if len(different) > _MOST_SHOWN:
            print(f"and {len(different) - _MOST_SHOWN:,} requests more")
        if absent := num_absent(trace):
            print(
                f"not in the recording: {absent:,} of {absent + len(comparisons):,} requests that came; they left "
                "before they were admitted, had not ended, or their lines are missing, and what others reused may "
                "depend on them"
            )
    if trace.error:
        raise TraceError(f"the result is partial: {trace.error}")
    return 2 if different else 0
