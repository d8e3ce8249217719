"""The engine step: plan, run, commit, and the text that comes of it.

Knows neither threads nor event loops: whoever owns the core calls it from one thread only.
"""

import random
from dataclasses import dataclass
from typing import NamedTuple

from anaphora.engine.detokenize import IncrementalDetokenizer
from anaphora.engine.protocols import Clock, GenerateInput, Runner, Tokenizer
from anaphora.ids import RequestId, TokenId
from anaphora.models.spans import SpanMap
from anaphora.request import MAX_SEED, FinishReason, Request, RequestOutput, Usage
from anaphora.scheduler.scheduler import Scheduler, Update


@dataclass(frozen=True, slots=True)
class _Live:
    """A request's text side."""

    request: Request
    detokenizer: IncrementalDetokenizer
    spans: SpanMap | None


class StepOutcome(NamedTuple):
    """What one step added to each request; `has_run` is False when nothing could run."""

    outputs: list[RequestOutput]
    has_run: bool


class EngineCore:
    """Owns the scheduler and the runner, and turns tokens into text.

    `seed` decides the seeds of the requests that bring none.
    """

    def __init__(
        self, scheduler: Scheduler, runner: Runner, tokenizer: Tokenizer, clock: Clock, *, seed: int
    ) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._tokenizer = tokenizer
        self._clock = clock
        self._seeds = random.Random(seed)  # noqa: S311 - draws texts, guards nothing
        self._live: dict[RequestId, _Live] = {}

    @property
    def has_work(self) -> bool:
        """Whether a step could do anything."""
        return self.scheduler.has_work

    def add(self, request_input: GenerateInput, arrival_time: float) -> None:
        """Queue one prompt; raises RequestError when it can never be served."""
        params = request_input.params
        request = Request(
            request_id=request_input.request_id,
            token_ids=list(request_input.prompt_token_ids),
            params=params,
            seed=self._seeds.randrange(MAX_SEED) if params.seed is None else params.seed,
            arrival_time=arrival_time,
            eos_token_ids=self._tokenizer.eos_token_ids,
            tenant_salt=request_input.tenant_salt,
            cache_salt=request_input.cache_salt,
        )
        self.scheduler.add(request)
        detokenizer = IncrementalDetokenizer(self._tokenizer, params)
        self._live[request.request_id] = _Live(request, detokenizer, request_input.spans)

    def abort(self, request_id: RequestId) -> bool:
        """End a request and free its pages; False when it has ended already."""
        self._live.pop(request_id, None)
        return self.scheduler.abort(request_id, self._clock.now())

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; False while requests hold pages, unless they are to be preempted first."""
        return self.scheduler.reset_prefix_cache(reset_running_requests=reset_running_requests)

    def step(self) -> StepOutcome:
        """Run one step."""
        plan = self.scheduler.plan(self._clock.now())
        if plan.is_empty:
            return StepOutcome([], has_run=False)
        result = self._runner.run(plan)
        updates = self.scheduler.commit(plan, result, self._clock.now())
        return StepOutcome([self._output(update) for update in updates], has_run=True)

    def _output(self, update: Update) -> RequestOutput:
        live = self._live[update.request.request_id]
        text = self._text(live, update.token_id)
        request = live.request
        if request.is_finished:
            del self._live[request.request_id]
        return RequestOutput(
            request_id=request.request_id,
            token_ids=(update.token_id,),
            text=text,
            usage=usage_of(request),
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
        )

    def _text(self, live: _Live, token_id: TokenId) -> str:
        """Return the text that is certain after one more token; a stop string in it ends the request."""
        request, detokenizer = live.request, live.detokenizer
        ended_by_token = request.finish_reason is FinishReason.STOP
        is_hidden = ended_by_token and not request.params.include_stop_str_in_output
        text = "" if is_hidden else detokenizer.push((token_id,))
        if detokenizer.stop_match is not None:
            self._end_by_stop_string(request, detokenizer.stop_match)
        return text + detokenizer.finish() if request.is_finished else text

    def _end_by_stop_string(self, request: Request, stop: str) -> None:
        if request.is_finished:  # by length, in the same step: the stop string came first
            request.finish_reason, request.stop_reason = FinishReason.STOP, stop
        else:
            self.scheduler.finish(request.request_id, FinishReason.STOP, stop, self._clock.now())


def usage_of(request: Request) -> Usage:
    """Return a request's token books."""
    return Usage(
        prompt_tokens=request.num_prompt_tokens,
        cached_tokens=request.num_cached_tokens or 0,
        cache_write_tokens=request.num_cache_write_tokens,
        completion_tokens=request.num_output_tokens,
    )
