"""Continuous batching: which tokens of which requests the next step computes, and what its results change.

Knows nothing of logits, text or clocks. Rules: docs/cache-semantics.md, from allocation to admission.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.cache.chain import BlockChain, UnhashedChain
from anaphora.cache.hashing import Namespace, check_cache_salt
from anaphora.cache.hit_law import max_hit_blocks
from anaphora.cache.lookup import NO_HIT
from anaphora.cache.manager import KVManager
from anaphora.config import SchedulerConfig
from anaphora.ids import RequestId, TokenId
from anaphora.request import FinishReason, Request, RequestStatus
from anaphora.scheduler.admission import AdmissionControl
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.limits import check_budget, check_can_fit, check_model_len_fits
from anaphora.scheduler.plan import PromptLogprobSpec, SampleSpec, ScheduledChunk, StepPlan, StepResult
from anaphora.scheduler.probe import Probe
from anaphora.scheduler.progress import PlanningPass, Progress


@dataclass(frozen=True, slots=True)
class Update:
    """One token that a commit added to a request, which may have ended by it; None if it ended without one."""

    request: Request
    token_id: TokenId | None


class Scheduler:
    """Turns waiting and running requests into step plans, and step results into progress.

    One step is `plan`, run elsewhere, `commit`. `add`, `abort` and `finish` belong between steps.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        manager: KVManager,
        *,
        model_fingerprint: bytes,
        max_model_len: int,
        exact_reuse: bool = False,
        listener: SchedulerListener | None = None,
    ) -> None:
        check_model_len_fits(max_model_len, manager)
        check_budget(config, manager.layout.min_prefill_tokens)
        self.max_model_len = max_model_len
        self._config = config
        self._manager = manager
        self._layout = manager.layout
        self._model_fingerprint = model_fingerprint
        self._exact_reuse = exact_reuse
        self._listener = listener or SchedulerListener()
        self._progress: dict[RequestId, Progress] = {}
        self._admission = AdmissionControl(
            config, manager, self._progress, self._num_next_tokens, self._listener
        )
        self._running: list[Request] = []
        self._unforked: dict[
            RequestId, Request
        ] = {}  # forks whose parent's prompt is not computed yet → parent
        self._step = 0

    # Questions.

    @property
    def num_running(self) -> int:
        """How many requests hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """How many requests wait, for pages or for another request."""
        return len(self._admission.queue) + len(self._unforked)

    @property
    def num_deferred(self) -> int:
        """How many of those that wait do so for what another request computes."""
        return self._admission.queue.num_aside + len(self._unforked)

    @property
    def has_work(self) -> bool:
        """Whether a step could do anything."""
        return bool(self._progress)

    def requests(self) -> list[Request]:
        """Return the live requests: running ones first, then those waiting in order, then forks to be."""
        forks = [fork for progress in self._progress.values() for fork in progress.forks]
        return [*self._running, *self._admission.queue.everyone(), *forks]

    def probe(self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None) -> Probe:
        """Return how much of a prompt is cached now; raises InvalidRequestError as `add` does for a `cache_salt`."""
        check_cache_salt(cache_salt, self._manager.hash_algorithm)
        num_tokens, layout = len(token_ids), self._layout
        chain = self._make_chain(token_ids, tenant_salt, cache_salt)
        found = self._manager.lookup(chain, num_tokens, num_tokens) if self._manager.is_caching else NO_HIT
        best = max_hit_blocks(
            num_tokens,
            num_tokens,
            block_size=layout.block_size,
            min_prefill_tokens=layout.min_prefill_tokens,
        )
        return Probe(found.cached_tokens, best * layout.block_size, layout.block_size)

    # Arrival and departure.

    def add(self, request: Request, forks: Sequence[Request] = ()) -> None:
        """Queue a request, and others with the same prompt that are to share its pages.

        Raises ContextLengthError when it could never run to its end, InvalidRequestError for a `cache_salt`
        that the hash algorithm cannot keep apart from other values.
        """
        assert request.request_id not in self._progress, f"{request.request_id} is here already"
        assert request.num_prompt_tokens, f"{request.request_id} has no prompt"
        assert request.skip_reading_cache or request.params.prompt_logprobs is None, (
            f"{request.request_id} wants the log probabilities of tokens that it may find in the cache"
        )
        check_can_fit(request.num_prompt_tokens, request.params.max_tokens, self.max_model_len)
        check_cache_salt(request.cache_salt, self._manager.hash_algorithm)
        self._enter(request)
        for fork in forks:
            self._progress[request.request_id].forks.append(fork)
            self._unforked[fork.request_id] = request
            self._listener.request_arrived(fork)
            self._listener.fork_arrived(fork, request)

    def _enter(self, request: Request) -> None:
        self._open(request)
        self._progress[request.request_id] = Progress(request, prefill_end=request.num_prompt_tokens)
        self._admission.queue.add(request)
        self._listener.request_arrived(request)

    def _make_chain(
        self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None
    ) -> BlockChain:
        namespace = Namespace(
            model_fingerprint=self._model_fingerprint, tenant_salt=tenant_salt, cache_salt=cache_salt
        )
        kind = BlockChain if self._manager.is_caching else UnhashedChain
        algorithm = self._manager.hash_algorithm
        return kind(namespace, self._layout.block_size, token_ids, algorithm=algorithm)

    def _open(self, request: Request) -> None:
        chain = self._make_chain(request.token_ids, request.tenant_salt, request.cache_salt)
        self._manager.open(request.request_id, chain)

    def max_output_tokens(self, request: Request) -> int:
        """Return how many tokens a request may generate: what it asked for, or the rest of the context."""
        asked = request.params.max_tokens
        return self.max_model_len - request.num_prompt_tokens if asked is None else asked

    def abort(self, request_id: RequestId, now: float) -> bool:
        """End a request at once and free its pages; False when it is not here (any more)."""
        if request_id not in self._progress and request_id not in self._unforked:
            return False
        self.finish(request_id, FinishReason.ABORT, None, now)
        return True

    def finish(
        self, request_id: RequestId, reason: FinishReason, stop_reason: int | str | None, now: float
    ) -> None:
        """End a live request: its pages are free, its blocks stay cached."""
        request = self._leave(request_id)
        request.status = RequestStatus.FINISHED
        request.finish_reason, request.stop_reason = reason, stop_reason
        self._listener.request_finished(request, now)

    def _leave(self, request_id: RequestId) -> Request:
        """Take a request out of wherever it stands; forks that waited for it go on without it."""
        if parent := self._unforked.pop(request_id, None):
            siblings = self._progress[parent.request_id].forks
            fork = next(fork for fork in siblings if fork.request_id == request_id)
            siblings.remove(fork)
            return fork
        progress = self._progress.pop(request_id)
        if progress.request.status is RequestStatus.RUNNING:
            self._running.remove(progress.request)
        else:
            self._admission.queue.remove(progress.request)
        self._manager.close(request_id)
        self._orphan(progress.forks)
        return progress.request

    def _orphan(self, forks: Sequence[Request]) -> None:
        """Let the first of some forks take the place of their parent, before all that wait."""
        for fork in forks:
            del self._unforked[fork.request_id]
        if not forks:
            return
        heir, *others = forks
        self._open(heir)
        self._progress[heir.request_id] = Progress(heir, heir.num_prompt_tokens, forks=others)
        self._unforked.update({fork.request_id: heir for fork in others})
        self._admission.queue.return_to_front(heir)

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; False while requests hold pages, unless they are to be preempted first."""
        if reset_running_requests:
            while self._running:
                self._preempt(self._running[-1])
        return self._manager.reset()

    # Planning.

    def plan(self, now: float) -> StepPlan:
        """Decide the next step: running decodes, then running prefills, then admissions.

        Lets pins lapse, takes pages and may preempt. The plan is empty when nothing can run.
        """
        self._listener.plan_began(now)
        self._manager.pool.lapse(now)
        current = PlanningPass(self._config.max_num_batched_tokens)
        for request in sorted(self._running, key=lambda request: not self._is_decoding(request)):
            self._plan_running(current, request)
        if not current.has_preempted:
            for request in self._admission.admit(current, len(self._running), now):
                self._running.append(request)
                self._note_admission(request, now)
        self._step += 1
        return self._make_plan(current)

    def _make_plan(self, current: PlanningPass) -> StepPlan:
        seats = self._config.max_num_seqs - len(self._running)
        chunks = []
        for request_id, num_tokens in current.num_tokens.items():
            chunk = self._chunk(self._progress[request_id], num_tokens, seats)
            seats -= max(0, len(chunk.samples) - 1)
            chunks.append(chunk)
        chunks.sort(key=lambda chunk: not chunk.is_decode)
        copies = tuple(copy for copies in current.copies.values() for copy in copies)
        return StepPlan(self._step, tuple(chunks), copies)

    def _is_decoding(self, request: Request) -> bool:
        return request.num_computed_tokens >= self._progress[request.request_id].prefill_end

    def _plan_running(self, current: PlanningPass, request: Request) -> None:
        """Give a running request its next tokens, taking pages from another one if it must."""
        if request.status is not RequestStatus.RUNNING:
            return  # preempted earlier in this pass
        progress = self._progress[request.request_id]
        num_tokens = self._num_next_tokens(request, request.num_computed_tokens, current.room(progress))
        if not num_tokens:
            return
        end = request.num_computed_tokens + num_tokens
        while (copies := self._manager.grow(request.request_id, end)) is None:
            victim = self._choose_victim()
            current.take_back(victim)
            current.has_preempted = True
            self._preempt(victim)
            if victim is request:
                return
        current.give(progress, num_tokens, copies)

    def _num_next_tokens(self, request: Request, num_computed_tokens: int, num_tokens_left: int) -> int:
        """Return how many tokens the next chunk may have; 0 when it does not fit into this step."""
        remaining = self._progress[request.request_id].prefill_end - num_computed_tokens
        if remaining <= 0:
            return min(1, num_tokens_left)
        threshold = self._config.long_prefill_token_threshold or remaining
        num_tokens = min(remaining, threshold, num_tokens_left)
        least = self._layout.min_prefill_tokens
        # Never leave a prefill too short to be exact: shorten the chunk before it.
        if 0 < remaining - num_tokens < least:
            num_tokens = remaining - least
        return num_tokens if num_tokens >= min(least, remaining) else 0

    def _choose_victim(self) -> Request:
        """Return who gives way: by priority the last, else who loses least for each page it frees.

        By fcfs the oldest is spared while there is another, so that somebody always gets to its end.
        """
        if self._config.scheduling_policy == "priority":
            return max(reversed(self._running), key=lambda request: (request.priority, request.arrival_time))
        candidates = self._running[1:] or self._running
        return min(
            reversed(candidates),
            key=lambda request: self._manager.resume_cost(request.request_id).tokens_per_page,
        )

    def _preempt(self, victim: Request) -> None:
        """Take all pages from a running request and let it wait before all others."""
        self._running.remove(victim)
        self._manager.release(victim.request_id)
        progress = self._progress[victim.request_id]
        progress.known_until = max(progress.known_until, victim.num_computed_tokens)
        if not self._exact_reuse:
            progress.prefill_end = len(victim.token_ids)
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self._admission.queue.return_to_front(victim)
        self._listener.request_preempted(victim)

    def _note_admission(self, request: Request, now: float) -> None:
        progress = self._progress[request.request_id]
        was_preempted = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        reused = request.num_computed_tokens
        progress.counted_blocks = max(progress.counted_blocks, reused // self._layout.block_size)
        if request.num_cached_tokens is None:
            request.num_cached_tokens = reused
            self._listener.request_admitted(request, now)
            self._listener.tokens_rounded(request, progress.num_rounded_tokens)
        if progress.deadline is not None:
            self._listener.request_coalesced(request, max(0, reused - progress.cached_when_deferred))
        if was_preempted:
            self._listener.request_resumed(request, reused)
        progress.forget_waiting()

    def _chunk(self, progress: Progress, num_tokens: int, seats: int) -> ScheduledChunk:
        """Return what one request computes; its forks, as many as find a seat, get their first token with it."""
        request = progress.request
        start = request.num_computed_tokens
        end = start + num_tokens
        # A prefill below the runner's minimum goes through its decode kernel and is booked as such.
        is_decode = start >= progress.prefill_end or num_tokens < self._layout.min_prefill_tokens
        is_to_sample = end == len(request.token_ids) and not request.params.is_warm_up
        sampled = [request, *progress.forks[:seats]] if is_to_sample else []
        page_table = tuple(self._manager.table(request.request_id).page_ids)
        return ScheduledChunk(
            request.request_id,
            request.token_ids[start:end],
            start,
            page_table,
            is_decode,
            tuple(map(self._sample, sampled)),
            _prompt_logprobs(progress, start, end) if progress.wants_prompt_logprobs else None,
        )

    def _sample(self, request: Request) -> SampleSpec:
        params = request.params
        is_too_short = request.num_output_tokens < params.min_tokens
        banned = sorted(request.eos_token_ids | set(params.stop_token_ids)) if is_too_short else []
        return SampleSpec(
            request.request_id,
            params,
            request.seed,
            request.token_ids,
            request.num_prompt_tokens,
            tuple(banned),
        )

    # Commit.

    def commit(self, plan: StepPlan, result: StepResult, now: float) -> list[Update]:
        """Take in a step's results: publish completed blocks, append tokens, free what finished."""
        assert result.step == plan.step, f"result of step {result.step} for plan {plan.step}"
        updates = []
        for chunk in plan.chunks:
            progress = self._progress[chunk.request_id]
            self._commit_chunk(progress, chunk)
            if asked := chunk.prompt_logprobs:
                num_given = len(result.prompt_logprobs[chunk.request_id])
                assert num_given == len(asked.token_ids), f"{num_given} log probabilities for {chunk}"
                progress.logprobs_end += num_given
            if chunk.end == progress.request.num_prompt_tokens:
                updates += self._end_prompt(progress.request, now)
            sampled = [progress.request]
            if chunk.samples and progress.forks:
                sampled += self._fork(progress, len(chunk.samples) - 1, now)
            # All are forked before the first token is appended: it may end the parent.
            updates += [
                self._append(request, result.token_ids[request.request_id], now)
                for request in sampled[: len(chunk.samples)]
            ]
        self._listener.step_committed(plan, now)
        return updates

    def _commit_chunk(self, progress: Progress, chunk: ScheduledChunk) -> None:
        request, block_size = progress.request, self._layout.block_size
        request.num_computed_tokens = chunk.end
        published = self._manager.commit(
            request.request_id, request.token_ids, chunk.end, is_decode=chunk.is_decode
        )
        for index in published:
            # Blocks computed again after a preemption are in the books already.
            end = (index + 1) * block_size
            if index >= progress.counted_blocks and end <= request.num_prompt_tokens:
                # A block whose first tokens were reused is new only as far as the rest.
                request.num_cache_write_tokens += end - max(
                    index * block_size, request.num_cached_tokens or 0
                )
        progress.counted_blocks = max(progress.counted_blocks, chunk.end // block_size)
        if chunk.start < progress.known_until:
            self._listener.tokens_recomputed(request, min(chunk.end, progress.known_until) - chunk.start)

    def _end_prompt(self, request: Request, now: float) -> list[Update]:
        """Pin what is to be kept of a prompt that has been computed, and end a request that wanted no more."""
        if request.num_output_tokens:  # it was preempted and computes its prompt once more
            return []
        chain = self._manager.table(request.request_id).chain
        for retention in request.retention:
            pinned = self._manager.pin(chain, retention.num_tokens, now + retention.ttl_s)
            if pinned is not None:
                request.num_pinned_tokens = max(request.num_pinned_tokens or 0, pinned)
        if not request.params.is_warm_up:
            return []
        self.finish(request.request_id, FinishReason.LENGTH, None, now)
        return [Update(request, None)]

    def _fork(self, progress: Progress, num_seated: int, now: float) -> list[Request]:
        """Let forks run on the pages of their parent; those without a seat become requests like others."""
        seated, unseated = progress.forks[:num_seated], progress.forks[num_seated:]
        progress.forks = []
        for fork in seated:
            del self._unforked[fork.request_id]
            self._begin_fork(fork, progress.request)
            self._listener.request_forked(fork, progress.request, now)
        self._orphan(unseated)
        return seated

    def _begin_fork(self, fork: Request, parent: Request) -> None:
        self._manager.fork(parent.request_id, fork.request_id)
        self._progress[fork.request_id] = Progress(
            fork, fork.num_prompt_tokens, counted_blocks=fork.num_prompt_tokens // self._layout.block_size
        )
        fork.is_fork = True
        fork.status = RequestStatus.RUNNING
        fork.num_computed_tokens = parent.num_computed_tokens
        fork.num_cached_tokens, fork.num_cache_write_tokens = (
            parent.num_cached_tokens,
            parent.num_cache_write_tokens,
        )
        self._running.append(fork)

    def _append(self, request: Request, token_id: TokenId, now: float) -> Update:
        request.token_ids.append(token_id)
        self._listener.token_appended(request, now)
        reason, stop_reason = self._stop(request, token_id)
        if reason:
            self.finish(request.request_id, reason, stop_reason, now)
        return Update(request, token_id)

    def _stop(self, request: Request, token_id: TokenId) -> tuple[FinishReason | None, int | None]:
        params = request.params
        if request.num_output_tokens >= params.min_tokens:
            if token_id in request.eos_token_ids and not params.ignore_eos:
                return FinishReason.STOP, None
            if token_id in params.stop_token_ids:
                return FinishReason.STOP, token_id
        if request.num_output_tokens >= self.max_output_tokens(request):
            return FinishReason.LENGTH, None
        return None, None

    def check_invariants(self) -> None:
        """Assert that queues, notes and page tables agree, and that the pool does."""
        waiting = self._admission.queue.everyone()
        assert len(self._running) + len(waiting) == len(self._progress), (
            "a request stands in no queue or in two"
        )
        for request in [*self._running, *waiting]:
            assert self._progress[request.request_id].request is request, "notes of a stranger"
        for request in self._running:
            table = self._manager.table(request.request_id)
            assert request.status is RequestStatus.RUNNING, f"{request.request_id} runs as {request.status}"
            assert table.num_computed_tokens == request.num_computed_tokens, (
                f"{request.request_id}: computed differs"
            )
        for request in waiting:
            assert not self._manager.table(request.request_id).pages, (
                f"{request.request_id} waits and holds pages"
            )
        forks = {fork.request_id: note.request for note in self._progress.values() for fork in note.forks}
        assert forks == self._unforked, "forks and their parents disagree"
        self._manager.check_invariants()


def _prompt_logprobs(progress: Progress, start: int, end: int) -> PromptLogprobSpec | None:
    """Return which tokens of the prompt a chunk predicts of which that is not known, or None if there are none."""
    request = progress.request
    first, last_end = max(start + 1, progress.logprobs_end), min(end + 1, request.num_prompt_tokens)
    if first >= last_end or request.params.prompt_logprobs is None:
        return None
    return PromptLogprobSpec(
        request.params.prompt_logprobs, first - 1 - start, request.token_ids[first:last_end]
    )
