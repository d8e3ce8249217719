"""Replays a trace against a server at the pace of its arrivals (open loop).

A trace has no text: each block id becomes a fixed run of words, drawn by the seed and the id, so that equal ids give
equal beginnings. Lengths are scaled so that the longest request fits the context.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anaphora.bench.counters import Reading
from anaphora.bench.experiment import Bench, Conclusion, hit_rate, ms, share_cached, ttft
from anaphora.bench.measurement import Answer, CounterDelta, Log, Measurement, Prompt
from anaphora.bench.session import Plan, Session
from anaphora.bench.summary import achievable
from anaphora.bench.target import Target
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import ConfigError

ABANDONED = "abandoned, because the run was broken off"
_LONGEST = 4096
"""Tokens of the longest request, unless a scale is given: a replay should end in minutes on a small machine."""

_LAST_LOOK_S = 5.0
_ROOM = 64
"""Tokens of the context that are left free for what a server puts around a prompt."""


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """When a request came, how long it was, and which blocks its prompt was made of."""

    arrival_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request of the trace, made ready to send."""

    at_s: float
    prompt: Prompt
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayExperiment:
    """`scale` None makes the longest request 4,096 tokens long, or as long as the context.

    `speed` 2 sends twice as fast as the trace.
    """

    requests: tuple[TracedRequest, ...]
    block_size: int
    scale: float | None = None
    speed: float = 1.0
    name: str = "replay"
    arms: tuple[str, ...] = ("replay",)
    loop: str = "open, by the arrivals of the trace"
    same_length: bool = False
    as_planned: bool = False

    @property
    def num_requests(self) -> int:
        """Those of the trace."""
        return len(self.requests)

    @property
    def longest(self) -> int:
        """Unknown before the context is: what is not scaled must fit."""
        if self.scale is None:
            return 0
        return max(round((r.input_tokens + r.output_tokens) * self.scale) for r in self.requests)

    def scale_for(self, target: Target) -> float:
        """Return the scale that was given, or the largest that fits."""
        if self.scale is not None:
            return self.scale
        longest = max(request.input_tokens + request.output_tokens for request in self.requests)
        if target.max_model_len is not None and target.max_model_len <= _ROOM:
            raise ConfigError(
                f"{target.model} has a context of {target.max_model_len:,} tokens, too few for a replay; "
                "choose another model, or give --scale"
            )
        context = _LONGEST if target.max_model_len is None else target.max_model_len - _ROOM
        # Words that are two tokens in some tokenizers must fit too where the server does not count.
        room = min(_LONGEST, context / (1 if target.tokenize else 2))
        return min(1.0, room / longest)

    async def measure(self, bench: Bench) -> None:
        """Send each request at its time."""
        session = bench.session
        ready = await self.ready(session)
        await session.client.touch(min(len(ready), 16))
        before, start = await session.read(), asyncio.get_running_loop().time()
        tasks = [asyncio.ensure_future(_send_at(session, request, start)) for request in ready]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await _share_counters(session, before)

    async def ready(self, session: Session) -> list[Scheduled]:
        """Return the requests as prompts, each with what an endless cache would have of it when it comes."""
        scale = self.scale_for(session.target)
        per_block = max(1, round(self.block_size * scale))
        head = session.prompts.head_tokens
        seen: set[int] = set()
        found = []
        for number, request in enumerate(self.requests):
            num_words = max(1, round(request.input_tokens * scale))
            known = next(
                (i for i, block in enumerate(request.hash_ids) if block not in seen), len(request.hash_ids)
            )
            seen.update(request.hash_ids)
            words = _words(session.prompts, request, per_block, num_words, number)
            prompt = await session.prompts.prompt(" ".join(words))
            plan = Plan(
                arm="replay",
                number=number,
                axis=round(request.arrival_s * 1000),
                planned=min(head + known * per_block, prompt.num_tokens),
                max_tokens=max(1, round(request.output_tokens * scale)),
            )
            found.append(
                Scheduled((request.arrival_s - self.requests[0].arrival_s) / self.speed, prompt, plan)
            )
        return found

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Give hit rates over all requests and over the last half, beside what an endless cache could reach."""
        scale = self.scale_for(targets[0])
        good = sorted(log.good(), key=lambda entry: entry.number)
        half = [entry for entry in good if entry.number >= len(self.requests) // 2]
        conclusion = Conclusion(details={"scale": scale, "speed": self.speed})
        conclusion.findings.append(
            f"{len(good)} of {len(self.requests)} requests answered, at {self.speed:g} times the trace's pace, "
            f"lengths × {scale:.4f}; time to first token {ms(ttft(good))}"
        )
        for name, entries in (("all", good), ("last half", half)):
            is_whole = len(entries) == len(good)
            conclusion.findings.append(f"{name}: {_rates(entries, targets[0].unit, is_whole=is_whole)}")
        worst = max((entry.queue_s for entry in good), default=0.0)
        conclusion.findings.append(f"the client sent each request at most {worst * 1000:,.1f} ms late")
        conclusion.details["requests_in_last_half"] = len(half)
        return conclusion


async def _send_at(session: Session, request: Scheduled, start: float) -> None:
    """Send a request at its time; one that is still running when the run is broken off counts as a failure."""
    clock = asyncio.get_running_loop().time
    await asyncio.sleep(max(0.0, start + request.at_s - clock()))
    sent_at = clock()
    queue_s = max(0.0, sent_at - start - request.at_s)
    try:
        answer = await session.client.complete(request.prompt, request.plan.max_tokens)
    except asyncio.CancelledError:
        answer = Answer(e2e_s=clock() - sent_at, failure=ABANDONED)
        session.record(request.prompt, request.plan, answer, queue_s=queue_s)
        raise
    session.record(request.prompt, request.plan, answer, queue_s=queue_s)
    session.check()


async def _share_counters(session: Session, before: Reading | None) -> None:
    """Enter how far the counters went over the whole run with its first request, and nothing with the others.

    Where a request failed nobody knows what was counted of it, and a server that hangs is not waited for.
    """
    log = session.log
    if not all(entry.is_good for entry in log):
        return
    try:
        async with asyncio.timeout(_LAST_LOOK_S):
            moved = await session.moved(before, sum(entry.answer.prompt_tokens or 0 for entry in log))
    except TimeoutError:
        return
    if moved is None:
        return
    still = CounterDelta(0.0, 0.0)
    for place, entry in enumerate(log.entries):
        log.entries[place] = replace(entry, counters=still if place else moved)


def _words(
    prompts: PromptMaker, request: TracedRequest, per_block: int, num_words: int, number: int
) -> list[str]:
    """Return the words of a prompt; a part behind the last id is the request's own."""
    words = [word for block in request.hash_ids for word in prompts.fixed_words(f"block:{block}", per_block)]
    if len(words) < num_words:
        words += prompts.fixed_words(f"rest:{number}", num_words - len(words))
    return words[:num_words]


def _rates(entries: Sequence[Measurement], unit: int, *, is_whole: bool) -> str:
    """Return hit rates; the counters, which ran over the whole, say nothing of a part."""
    tokens = sum(entry.prompt_tokens for entry in entries)
    best = sum(achievable(entry, unit) for entry in entries)
    if not tokens:
        return "no request was answered"
    is_told = is_whole or all(entry.answer.cached_tokens is not None for entry in entries)
    told = share_cached(entries) if is_told else None
    text = (
        f"hit rate {hit_rate(entries) if is_told else 'not reported'}, an endless cache {best / tokens:.1%}"
    )
    if told is not None and best:
        text += f", achieved ÷ achievable {told * tokens / best:.3f}"
    return text
