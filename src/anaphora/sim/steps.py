"""A recording of our own server once more, step by step: the same arrivals between the same steps.

The scheduler has no clock and no randomness, so the same requests between the same steps make the same plans, and find
the same blocks, preemptions and neighbours included. What a recording does not tell is not repeated: deadlines of
coalescing that passed, pins, resets, and requests that left before they were admitted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.manager import KVManager
from anaphora.errors import ContextLengthError, TraceError
from anaphora.ids import RequestId
from anaphora.request import FinishReason, Request
from anaphora.scheduler.scheduler import Scheduler
from anaphora.sim.order import Progress, no_progress
from anaphora.sim.synthetic import SyntheticRequest, SyntheticRunner
from anaphora.sim.trace import RecordedEngine, RecordedTurn, Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one request reused, as recorded and as replayed: its leading blocks, by their numbers in the trace."""

    number: int
    recorded_ids: tuple[int, ...]
    replayed_ids: tuple[int, ...]
    recorded_preemptions: int
    replayed_preemptions: int

    @property
    def is_equal(self) -> bool:
        """Whether both agree."""
        return (self.recorded_ids, self.recorded_preemptions) == (
            self.replayed_ids,
            self.replayed_preemptions,
        )


def _turn(request: TraceRequest) -> RecordedTurn:
    assert request.recorded is not None, "not of a recording"
    return request.recorded


class StepReplay:
    """Plays a recording through a scheduler with the settings that were recorded."""

    def __init__(
        self, trace: Trace, *, listener: CacheListener | None = None, progress: Progress = no_progress
    ) -> None:
        if trace.engine is None:
            raise TraceError(
                f"the trace is of the format {trace.format}; only a recording of `anaphora serve --record` "
                "says what was reused"
            )
        engine: RecordedEngine = trace.engine
        layout = engine.layout
        self._trace = trace
        self._progress = progress
        self._manager = KVManager(
            layout,
            listener,
            policy=make_policy(engine.eviction_policy, layout),
            exact_reuse=engine.exact_reuse,
            max_pinned_pages=engine.max_pinned_pages,
        )
        self._scheduler = Scheduler(
            engine.scheduler,
            self._manager,
            model_fingerprint=b"",
            max_model_len=engine.max_model_len,
            exact_reuse=engine.exact_reuse,
        )
        self._live: dict[RequestId, SyntheticRequest] = {}
        self._runner = SyntheticRunner(layout, self._live)
        self._requests: dict[int, Request] = {}
        self._arrivals = list(reversed(trace.requests))
        endings = [r for r in [*trace.requests, *trace.forks] if _turn(r).ended_between_steps]
        self._endings = sorted(endings, key=lambda r: (_turn(r).last_step, _turn(r).ending), reverse=True)
        self._num_steps = 0

    def run(self) -> list[Comparison]:
        """Play it to the end and compare each request."""
        while self._arrivals or self._scheduler.has_work:
            self._end()
            self._arrive()
            plan = self._scheduler.plan(0.0)
            if not plan.is_empty:
                self._scheduler.commit(plan, self._runner.run(plan), 0.0)
                self._num_steps += 1
            elif not self._skip_to_next_event():
                break
        return [self._compare(request) for request in [*self._trace.requests, *self._trace.forks]]

    def _skip_to_next_event(self) -> bool:
        """Go on to the step before which the next request comes or leaves; False when none does."""
        coming = [_turn(request).first_step for request in self._arrivals[-1:]]
        leaving = [_turn(request).last_step for request in self._endings[-1:]]
        self._num_steps = max(self._num_steps, min(coming + leaving, default=0))
        return bool(coming or leaving)

    def _arrive(self) -> None:
        while self._arrivals and _turn(self._arrivals[-1]).first_step <= self._num_steps:
            request = self._arrivals.pop()
            number = _turn(request).number
            family = [request, *(fork for fork in self._trace.forks if _turn(fork).fork_of == number)]
            sequences = [self._make(member) for member in family]
            try:
                self._scheduler.add(sequences[0], sequences[1:])
            except ContextLengthError as error:
                raise TraceError(f"request {number} does not fit its own recording: {error}") from error
            self._progress(1)

    def _make(self, request: TraceRequest) -> Request:
        turn = _turn(request)
        request_id = RequestId(f"request-{turn.number}")
        synthetic = SyntheticRequest(request, turn.number, self._trace.block_size)
        most = None if turn.ended_between_steps else request.num_output_tokens
        self._live[request_id] = synthetic
        made = synthetic.engine_request(request_id, most, float(turn.number))
        self._requests[turn.number] = made
        return made

    def _end(self) -> None:
        while self._endings and _turn(self._endings[-1]).last_step <= self._num_steps:
            number = _turn(self._endings.pop()).number
            request = self._requests.get(number)
            if request is not None and not request.is_finished:
                self._scheduler.finish(request.request_id, FinishReason.ABORT, None, 0.0)

    def _compare(self, request: TraceRequest) -> Comparison:
        turn, size = _turn(request), self._trace.block_size
        replayed = self._requests.get(turn.number)
        num_replayed = (replayed.num_cached_tokens or 0) if replayed else 0
        return Comparison(
            turn.number,
            request.block_ids[: turn.cached_tokens // size],
            request.block_ids[: num_replayed // size],
            turn.num_preemptions,
            replayed.num_preemptions if replayed else 0,
        )


def num_absent(trace: Trace) -> int:
    """Return how many requests came, by their numbers, before the last that a recording holds, and are not in it."""
    numbers = [_turn(request).number for request in [*trace.requests, *trace.forks]]
    return max(numbers, default=-1) + 1 - len(numbers)


def departures(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return those in which recording and replay do not agree."""
    return [comparison for comparison in comparisons if not comparison.is_equal]
