"""The engine step: plan, run, commit, and the text that comes of it.

Knows neither threads nor event loops: whoever owns the core calls it from one thread only.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anaphora.config import MAX_SEED, MIN_SEED
from anaphora.engine.detokenize import IncrementalDetokenizer
from anaphora.engine.protocols import Clock, GenerateInput, Runner, Tokenizer
from anaphora.errors import EngineError
from anaphora.ids import RequestId, TokenId
from anaphora.request import FinishReason, Request, RequestOutput, TokenLogprobs, Usage
from anaphora.scheduler.plan import StepResult
from anaphora.scheduler.probe import Probe
from anaphora.scheduler.scheduler import Scheduler, Update


@dataclass(frozen=True, slots=True)
class _Live:
    """The text side of one sequence, and which of the n of its request it is.

    `prompt_logprobs` grows with the prefill if they were asked for, and is the same list for all n.
    """

    request: Request
    detokenizer: IncrementalDetokenizer
    owner_id: RequestId
    index: int
    prompt_logprobs: list[TokenLogprobs] | None


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
        self._sequences: dict[RequestId, list[RequestId]] = {}

    @property
    def has_work(self) -> bool:
        """Whether a step could do anything."""
        return self.scheduler.has_work

    def add(self, request_input: GenerateInput, arrival_time: float) -> None:
        """Queue one prompt; raises RequestError when it can never be served.

        With n over 1 its prompt is computed once, and n sequences go on from there.
        """
        sequences = [
            self._request(request_input, index, arrival_time) for index in range(request_input.params.n)
        ]
        first, *forks = sequences
        self.scheduler.add(first, forks)
        self._sequences[request_input.request_id] = [request.request_id for request in sequences]
        prompt_logprobs: list[TokenLogprobs] | None = (
            None if request_input.params.prompt_logprobs is None else []
        )
        for index, request in enumerate(sequences):
            detokenizer = IncrementalDetokenizer(self._tokenizer, request.params)
            self._live[request.request_id] = _Live(
                request,
                detokenizer,
                request_input.request_id,
                index,
                prompt_logprobs,
            )

    def _request(self, request_input: GenerateInput, index: int, arrival_time: float) -> Request:
        params = request_input.params
        if index:  # the prompt is computed for the first; a fork that has to do it again may read the cache
            params = params.with_changes(prompt_logprobs=None)
        return Request(
            request_id=_sequence_id(request_input.request_id, index),
            token_ids=list(request_input.prompt_token_ids),
            params=params,
            seed=self._seeds.randrange(MAX_SEED) if params.seed is None else _seed_of(params.seed, index),
            arrival_time=arrival_time,
            eos_token_ids=self._tokenizer.eos_token_ids,
            tenant_salt=request_input.tenant_salt,
            cache_salt=request_input.cache_salt,
            skip_reading_cache=params.prompt_logprobs is not None,
            priority=request_input.priority,
            retention=request_input.retention,
        )

    def abort(self, request_id: RequestId) -> bool:
        """End all sequences of a request and free their pages; False when they have all ended already."""
        sequences = self._sequences.pop(request_id, [])
        # The last first: were the first to go before its forks, one of them would take its place for nothing.
        for sequence_id in reversed(sequences):
            del self._live[sequence_id]
            self.scheduler.abort(sequence_id, self._clock.now())
        return bool(sequences)

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; False while requests hold pages, unless they are to be preempted first."""
        return self.scheduler.reset_prefix_cache(reset_running_requests=reset_running_requests)

    def probe(self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None) -> Probe:
        """Return how much of a prompt is cached now; see Scheduler."""
        return self.scheduler.probe(token_ids, tenant_salt, cache_salt)

    def step(self) -> StepOutcome:
        """Run one step."""
        plan = self.scheduler.plan(self._clock.now())
        if plan.is_empty:
            return StepOutcome([], has_run=False)
        result = self._runner.run(plan)
        updates = self.scheduler.commit(plan, result, self._clock.now())
        for request_id, found in result.prompt_logprobs.items():
            self._collect(request_id, found)
        return StepOutcome([self._output(update, result) for update in updates], has_run=True)

    def _collect(self, request_id: RequestId, found: Sequence[TokenLogprobs]) -> None:
        prompt_logprobs = self._live[request_id].prompt_logprobs
        if prompt_logprobs is None:
            raise EngineError(f"the runner gave log probabilities of {request_id}, which did not ask for any")
        prompt_logprobs.extend(found)

    def _output(self, update: Update, result: StepResult) -> RequestOutput:
        live = self._live[update.request.request_id]
        token_ids = () if update.token_id is None else (update.token_id,)
        text = self._text(live, token_ids)
        request = live.request
        if request.is_finished:
            self._forget(live)
        is_asked = request.params.logprobs is not None
        return RequestOutput(
            request_id=live.owner_id,
            token_ids=token_ids,
            text=text,
            usage=usage_of(request),
            finish_reason=request.finish_reason,
            stop_reason=request.stop_reason,
            index=live.index,
            pinned_tokens=request.num_pinned_tokens,
            logprobs=(result.logprobs[request.request_id],) if token_ids and is_asked else (),
            prompt_logprobs=_first_of(live),
        )

    def _forget(self, live: _Live) -> None:
        del self._live[live.request.request_id]
        sequences = self._sequences[live.owner_id]
        sequences.remove(live.request.request_id)
        if not sequences:
            del self._sequences[live.owner_id]

    def _text(self, live: _Live, token_ids: Sequence[TokenId]) -> str:
        """Return the text that is certain after these tokens; a stop string in it ends the request."""
        request, detokenizer = live.request, live.detokenizer
        ended_by_token = request.finish_reason is FinishReason.STOP
        is_hidden = ended_by_token and not request.params.include_stop_str_in_output
        text = "" if is_hidden else detokenizer.push(token_ids)
        if detokenizer.stop_match is not None:
            self._end_by_stop_string(request, detokenizer.stop_match)
        return text + detokenizer.finish() if request.is_finished else text

    def _end_by_stop_string(self, request: Request, stop: str) -> None:
        if request.is_finished:  # by length, in the same step: the stop string came first
            request.finish_reason, request.stop_reason = FinishReason.STOP, stop
        else:
            self.scheduler.finish(request.request_id, FinishReason.STOP, stop, self._clock.now())


def _first_of(live: _Live) -> tuple[TokenLogprobs, ...] | None:
    """Return the log probabilities of the prompt if they were asked for and this output is the first."""
    is_first = live.request.num_output_tokens <= 1
    return tuple(live.prompt_logprobs) if is_first and live.prompt_logprobs is not None else None


def usage_of(request: Request) -> Usage:
    """Return a request's token books."""
    return Usage(
        prompt_tokens=request.num_prompt_tokens,
        cached_tokens=request.num_cached_tokens or 0,
        cache_write_tokens=request.num_cache_write_tokens,
        completion_tokens=request.num_output_tokens,
    )


_NUM_SEEDS = 2**64


def _seed_of(seed: int, index: int) -> int:
    """Return the seed of one of n sequences, which would all be the same under one seed."""
    return (seed + index - MIN_SEED) % _NUM_SEEDS + MIN_SEED


def _sequence_id(request_id: RequestId, index: int) -> RequestId:
    """Return the id of one of n sequences; the first has that of the request."""
    return RequestId(f"{request_id}#{index}") if index else request_id
