"""Runs one experiment from the first look at the server to the report, whole or broken off."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from anaphora.bench.client import Client, open_http
from anaphora.bench.connect import connect
from anaphora.bench.experiment import Bench, Conclusion, Experiment, cached_of, check_fits
from anaphora.bench.identity import describe_client
from anaphora.bench.measurement import Log
from anaphora.bench.report import Report
from anaphora.bench.session import Progress, Session
from anaphora.bench.summary import counter_gaps, doubts, summarise
from anaphora.bench.target import Access, Target
from anaphora.bench.tokens import TokenCounter
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import TargetError

Runner = Callable[[Coroutine[Any, Any, None]], None]
INTERRUPTED = "interrupted"


@dataclass(slots=True)
class _Found:
    """What is known so far, whatever happens next."""

    log: Log = field(default_factory=Log)
    targets: list[Target] = field(default_factory=list)
    lengths: str = "unknown"


def run_experiment(
    experiment: Experiment,
    accesses: Sequence[Access],
    seed: int,
    *,
    is_new_seed: bool = True,
    progress: Progress = lambda _done: None,
    run: Runner = asyncio.run,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Report:
    """Measure and conclude. A run that is broken off after the first request gives a partial report.

    Raises TargetError or KeyboardInterrupt when nothing was measured before.
    """
    found, client, partial = _Found(), describe_client(), None
    try:
        run(_measure(experiment, accesses, seed, found, progress, transport))
    except KeyboardInterrupt:
        if not len(found.log):
            raise
        partial = f"{INTERRUPTED} after {len(found.log)} of {experiment.num_requests} requests"
    except TargetError as error:
        if not len(found.log):
            raise
        partial = str(error)
    report = _report(experiment, seed, found, client, partial)
    if not is_new_seed:
        report.conclusion.doubts += _old_seed(found)
    return report


def _old_seed(found: _Found) -> list[str]:
    """A seed that is given may have been used before; whether its prompts were, only a server that counts can say."""
    is_silent = all(cached_of(entry) is None for entry in found.log)
    if is_silent and any(target.reset != "yes" for target in found.targets):
        return [
            (
                "the seed was given, the cache was not reset, and the server reports no reuse: "
                "the prompts may have been sent before"
            )
        ]
    return []


async def _measure(
    experiment: Experiment,
    accesses: Sequence[Access],
    seed: int,
    found: _Found,
    progress: Progress,
    transport: httpx.AsyncBaseTransport | None,
) -> None:
    async with AsyncExitStack() as stack:
        sessions: list[Session] = []
        for access in accesses:
            http = await stack.enter_async_context(open_http(access, transport))
            target = await connect(http, access)
            check_fits(experiment, target)
            counter = TokenCounter(http, target)
            prompts = PromptMaker(counter, seed + len(sessions))
            await prompts.prepare()
            found.targets.append(target)
            found.lengths = f"by {counter.source}" if counter.is_exact else counter.source
            sessions.append(Session(Client(http, target, access.timeout_s), prompts, found.log, progress))
        for session in sessions:
            await session.start()
        order = random.Random(f"{seed}:order")
        await experiment.measure(Bench(sessions, found.log, order))


def _report(
    experiment: Experiment, seed: int, found: _Found, client: dict[str, Any], partial: str | None
) -> Report:
    log = found.log
    conclusion = experiment.conclude(log, found.targets) if log.good() else Conclusion()
    target = found.targets[0]
    conclusion.doubts += doubts(
        log, target, same_length=experiment.same_length, as_planned=experiment.as_planned
    )
    conclusion.disagreements += counter_gaps(log)
    settings = {name: value for name, value in asdict(experiment).items() if name != "requests"}  # type: ignore[call-overload]
    return Report(
        experiment=experiment.name,
        loop=experiment.loop,
        seed=seed,
        client=client,
        settings=settings,
        targets=found.targets,
        lengths=found.lengths,
        log=log,
        arms=summarise(log, target, experiment.arms),
        conclusion=conclusion,
        partial=partial,
    )
