"""One server under measurement: sends prompts, reads its counters before and after, and writes all of it down."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.bench.client import Client
from anaphora.bench.connect import read_metrics
from anaphora.bench.counters import Reading, delta
from anaphora.bench.measurement import Answer, CounterDelta, Log, Measurement, Phase, Prompt
from anaphora.bench.target import Target
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import TargetError

Progress = Callable[[int], None]
"""Told how many requests have been sent."""

MAX_FAILURES_IN_A_ROW = 3
_SETTLE_S = 0.05
_MAX_SETTLES = 40
_MAX_LATE_READS = 20
_START_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a request is for; `is_counted` says that `planned` is in the server's own tokens already."""

    arm: str
    number: int = 0
    planned: int = 0
    axis: int = 0
    max_tokens: int = 1
    phase: Phase = "measure"
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Together:
    """The answers to prompts that were sent at one moment, and how far the counters went over all of them."""

    answers: Sequence[Answer]
    counters: CounterDelta | None


class Session:
    """Sends to one server, and stops with TargetError when that one is gone."""

    def __init__(self, client: Client, prompts: PromptMaker, log: Log, progress: Progress) -> None:
        self.client = client
        self.prompts = prompts
        self.log = log
        self._progress = progress
        self._failures = 0
        self._waits_for_counters = True

    @property
    def target(self) -> Target:
        """The server's facts."""
        return self.client.target

    async def start(self) -> None:
        """Let the server count what it was asked so far, before anything is measured."""
        if self.target.has_metrics:
            await asyncio.sleep(_START_S)

    async def send(self, prompt: Prompt, plan: Plan, **more: Any) -> Measurement:
        """Send one prompt while nothing else runs, between two readings of the counters."""
        await self.client.touch()
        before = await self.read()
        answer = await self.client.complete(prompt, plan.max_tokens, **more)
        counters = await self.moved(before, answer.prompt_tokens)
        entry = self.record(prompt, plan, answer, counters)
        self.check()
        return entry

    def record(
        self,
        prompt: Prompt,
        plan: Plan,
        answer: Answer,
        counters: CounterDelta | None = None,
        queue_s: float = 0.0,
    ) -> Measurement:
        """Write a request down."""
        entry = Measurement(
            arm=plan.arm,
            number=plan.number,
            phase=plan.phase,
            prompt=prompt,
            planned=_in_tokens(plan, prompt, answer),
            axis=plan.axis,
            max_tokens=plan.max_tokens,
            answer=answer,
            counters=counters,
            queue_s=queue_s,
        )
        self.log.add(entry)
        self._progress(len(self.log))
        self._failures = 0 if entry.is_good else self._failures + 1
        return entry

    def check(self) -> None:
        """Raise TargetError when the server is gone, or fails again and again."""
        answer = self.log.entries[-1].answer
        if answer.is_unreachable or self._failures >= MAX_FAILURES_IN_A_ROW:
            raise TargetError(f"stopped after {self._failures} failed requests in a row: {answer.failure}")

    async def prime(self, prompt: Prompt, plan: Plan, **more: Any) -> Measurement:
        """Send a prompt that is not measured, and wait until the server has stored it."""
        entry = await self.send(prompt, plan, **more)
        await self.settle()
        return entry

    async def together(self, prompts: Sequence[Prompt], max_tokens: int) -> Together:
        """Send prompts at one moment, over connections that are open; nothing is written down."""
        await self.client.touch(len(prompts))
        before = await self.read()
        answers = await asyncio.gather(*(self.client.complete(prompt, max_tokens) for prompt in prompts))
        sent = sum(answer.prompt_tokens or 0 for answer in answers)
        counters = await self.moved(before, sent)
        # The server may have counted a part of what failed, so that the sum stands for nothing that is known.
        has_failed = any(answer.failure is not None for answer in answers)
        return Together(answers, None if has_failed else counters)

    async def moved(self, before: Reading | None, sent_tokens: int | None) -> CounterDelta | None:
        """Return how far the counters went; some servers count a moment after they have answered."""
        for _ in range(_MAX_LATE_READS):
            found = delta(before, await self.read(), sent_tokens)
            counted = None if found is None else found.prompt_tokens
            if (
                sent_tokens is None
                or counted is None
                or counted >= sent_tokens
                or not self._waits_for_counters
            ):
                return found
            await asyncio.sleep(_SETTLE_S)
        self._waits_for_counters = False  # it counts something else than what it answers
        return found

    def record_together(self, prompts: Sequence[Prompt], plans: Sequence[Plan], found: Together) -> None:
        """Write down what came of `together`; the way of the counters goes to the first request."""
        still = None if found.counters is None else CounterDelta(0.0, 0.0)
        for place, (prompt, plan, answer) in enumerate(zip(prompts, plans, found.answers, strict=True)):
            self.record(prompt, plan, answer, still if place else found.counters)
        self.check()

    async def settle(self) -> None:
        """Wait until the server says that nothing runs, two seconds at most."""
        for _ in range(_MAX_SETTLES):
            await asyncio.sleep(_SETTLE_S)
            reading = await self.read()
            if reading is None or not reading.running:
                return

    async def read(self) -> Reading | None:
        """Return the server's counters, or None where it shows none."""
        return await read_metrics(self.client.http) if self.target.has_metrics else None


def _in_tokens(plan: Plan, prompt: Prompt, answer: Answer) -> int:
    """Return planned reuse in the server's tokens; where it does not count before, words were planned."""
    if plan.is_counted or prompt.is_exact or answer.prompt_tokens is None or not prompt.num_tokens:
        return plan.planned
    return round(plan.planned * answer.prompt_tokens / prompt.num_tokens)
