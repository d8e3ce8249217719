"""Timed mode: a trace with its arrivals through the engine's own scheduler and cache, on a clock that is not real.

A cost model says how long each step takes. What the clock shows is as good as that model; what the cache does is not
a model at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.manager import KVManager
from anaphora.config import EvictionPolicyName, SchedulerConfig
from anaphora.errors import ContextLengthError
from anaphora.ids import RequestId
from anaphora.request import Request
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.scheduler import Scheduler
from anaphora.sim.cost import CostModel, Work
from anaphora.sim.order import Hits, Progress, no_progress
from anaphora.sim.synthetic import SyntheticRequest, SyntheticRunner
from anaphora.sim.trace import Trace

IDLE_S = 0.005
"""How long the engine waits before it plans again when nothing could run."""


@dataclass(slots=True)
class Turn:
    """When what happened to one request, in seconds since the first one arrived; None is never."""

    arrival_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    cached_tokens: int = 0

    @property
    def ttft_s(self) -> float | None:
        """The time to its first token, or to its end if it asked for none."""
        first = self.finished_s if self.first_token_s is None else self.first_token_s
        return None if first is None else first - self.arrival_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPoint:
    """What one policy reaches with so many pages, in time. `num_refused` requests can never fit."""

    policy: EvictionPolicyName
    pages: int
    hits: Hits
    turns: Sequence[Turn]
    num_refused: int
    num_steps: int
    end_s: float
    most_waiting: int
    num_coalesced: int
    coalesced_tokens: int
    coalesce_timeouts: int
    num_preemptions: int
    recomputed_tokens: int

    @property
    def ttfts_s(self) -> list[float]:
        """The times to first token of all requests that got one."""
        return [ttft for turn in self.turns if (ttft := turn.ttft_s) is not None]

    @property
    def queueing_s(self) -> list[float]:
        """How long each admitted request waited to be admitted."""
        return [turn.admitted_s - turn.arrival_s for turn in self.turns if turn.admitted_s is not None]


@dataclass(slots=True)
class Watch(SchedulerListener):
    """Counts what the scheduler tells."""

    turns: dict[RequestId, Turn]
    num_coalesced: int = 0
    coalesced_tokens: int = 0
    coalesce_timeouts: int = 0
    num_preemptions: int = 0
    recomputed_tokens: int = 0
    finished: list[RequestId] = field(default_factory=list)

    def request_admitted(self, request: Request, now: float) -> None:
        """Note the end of the wait, and what was found."""
        turn = self.turns[request.request_id]
        turn.admitted_s, turn.cached_tokens = now, request.num_cached_tokens or 0

    def request_coalesced(self, request: Request, num_tokens: int) -> None:
        """Count."""
        self.num_coalesced += 1
        self.coalesced_tokens += num_tokens

    def coalescing_timed_out(self, request: Request) -> None:
        """Count."""
        self.coalesce_timeouts += 1

    def request_preempted(self, request: Request) -> None:
        """Count."""
        self.num_preemptions += 1

    def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
        """Count."""
        self.recomputed_tokens += num_tokens

    def token_appended(self, request: Request, now: float) -> None:
        """Note the first."""
        turn = self.turns[request.request_id]
        if turn.first_token_s is None:
            turn.first_token_s = now

    def request_finished(self, request: Request, now: float) -> None:
        """Note the end."""
        self.turns[request.request_id].finished_s = now
        self.finished.append(request.request_id)


class TimedReplay:
    """Plays one trace, which has times and follows the engine's law, through pools of several sizes and policies."""

    def __init__(
        self,
        trace: Trace,
        config: SchedulerConfig,
        cost: CostModel,
        progress: Progress = no_progress,
    ) -> None:
        assert trace.has_times, "nobody knows when the requests came"
        assert not trace.counts_tail, "an engine has no digests for parts of blocks"
        self.trace = trace
        self._config = config
        self._cost = cost
        self._progress = progress

    def play(self, policy: EvictionPolicyName, num_pages: int) -> TimedPoint:
        """Return what a policy reaches with so many usable pages."""
        return _Run(self.trace, self._config, self._cost, policy, num_pages, self._progress).point()


class _Run:
    """One pool, one policy, one clock."""

    def __init__(
        self,
        trace: Trace,
        config: SchedulerConfig,
        cost: CostModel,
        policy: EvictionPolicyName,
        num_pages: int,
        progress: Progress,
    ) -> None:
        # What the requests could not fill if all were there at once would only take memory.
        layout = trace.layout(min(num_pages, _num_pages_without_eviction(trace, config)))
        exact_reuse = trace.engine is not None and trace.engine.exact_reuse
        self._trace, self._policy, self._cost = trace, policy, cost
        self._progress = progress
        arrivals = [request.arrival_s or 0.0 for request in trace.requests]
        self._turns = [Turn(arrival_s - arrivals[0]) for arrival_s in arrivals]
        self._live: dict[RequestId, SyntheticRequest] = {}
        self._watch = Watch({})
        self._scheduler = Scheduler(
            config,
            KVManager(layout, policy=make_policy(policy, layout), exact_reuse=exact_reuse),
            model_fingerprint=b"",
            max_model_len=max(1, layout.num_usable_pages * layout.page_size),
            exact_reuse=exact_reuse,
            listener=self._watch,
        )
        self._runner = SyntheticRunner(layout, self._live)
        self._pages = num_pages
        self._next = self._num_refused = self._num_steps = self._most_waiting = 0
        self._now = 0.0

    def point(self) -> TimedPoint:
        while self._next < len(self._turns) or self._scheduler.has_work:
            if not self._scheduler.has_work:
                self._now = max(self._now, self._turns[self._next].arrival_s)
            self._arrive()
            self._step()
            self._forget()
        watch, lengths = self._watch, [request.num_prompt_tokens for request in self._trace.requests]
        return TimedPoint(
            policy=self._policy,
            pages=self._pages,
            hits=Hits([turn.cached_tokens for turn in self._turns], lengths),
            turns=self._turns,
            num_refused=self._num_refused,
            num_steps=self._num_steps,
            end_s=self._now,
            most_waiting=self._most_waiting,
            num_coalesced=watch.num_coalesced,
            coalesced_tokens=watch.coalesced_tokens,
            coalesce_timeouts=watch.coalesce_timeouts,
            num_preemptions=watch.num_preemptions,
            recomputed_tokens=watch.recomputed_tokens,
        )

    def _arrive(self) -> None:
        """Queue everyone who has come by now."""
        while self._next < len(self._turns) and self._turns[self._next].arrival_s <= self._now:
            number, turn = self._next, self._turns[self._next]
            self._next += 1
            request = self._trace.requests[number]
            request_id = RequestId(f"request-{number}")
            synthetic = SyntheticRequest(request, number, self._trace.block_size)
            self._watch.turns[request_id] = turn
            try:
                self._scheduler.add(
                    synthetic.engine_request(request_id, request.num_output_tokens, turn.arrival_s)
                )
            except ContextLengthError:
                self._num_refused += 1
                self._progress(1)
            else:
                self._live[request_id] = synthetic
        self._most_waiting = max(self._most_waiting, self._scheduler.num_waiting)

    def _step(self) -> None:
        """Run one step, or let time pass when nothing can run."""
        plan = self._scheduler.plan(self._now)
        if plan.is_empty:
            if self._scheduler.has_work:
                self._now += IDLE_S
            return
        self._now += self._cost.time(Work.of_plan(plan))
        self._num_steps += 1
        self._scheduler.commit(plan, self._runner.run(plan), self._now)

    def _forget(self) -> None:
        for request_id in self._watch.finished:
            del self._live[request_id]
        self._progress(len(self._watch.finished))
        self._watch.finished.clear()


def _num_pages_without_eviction(trace: Trace, config: SchedulerConfig) -> int:
    """Return a number of pages with which nothing is ever evicted, nobody waits for pages, nothing is held back."""
    tokens = (request.num_prompt_tokens + request.num_output_tokens for request in trace.requests)
    num_pages = sum(-(-num_tokens // trace.page_size) for num_tokens in tokens)
    return int(num_pages / (1 - config.watermark)) + 2


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which so large a share of them lies (nearest rank); 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))] if ordered else 0.0
