"""Continuous batching: which tokens of which requests the next step computes, and what its results change.

Knows nothing of logits, text or clocks. Rules: docs/cache-semantics.md 2.4, 2.9, 2.10, 2.15.
"""

from dataclasses import dataclass, field

from anaphora.cache.chain import BlockChain, UnhashedChain
from anaphora.cache.hashing import Namespace, check_cache_salt
from anaphora.cache.manager import NO_HIT, Admission, KVManager, Lookup
from anaphora.cache.page import PageCopy
from anaphora.config import SchedulerConfig
from anaphora.errors import ConfigError, ContextLengthError, NotEnoughMemoryError
from anaphora.ids import RequestId, TokenId
from anaphora.request import FinishReason, Request, RequestStatus
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.plan import SampleSpec, ScheduledChunk, StepPlan, StepResult
from anaphora.scheduler.queue import WaitingQueue


@dataclass(slots=True)
class _Progress:
    """The scheduler's own notes on a live request.

    Tokens before `prefill_end` are computed by prefill, the others one by one in decode steps.
    `known_until` is how many tokens had been computed when it was preempted. `counted_blocks` is how many
    leading blocks are already in its books, as cached or as written. `answer` is the last lookup.
    """

    request: Request
    prefill_end: int
    known_until: int = 0
    counted_blocks: int = 0
    answer: Lookup | None = None


@dataclass(slots=True)
class _Pass:
    """One planning pass: what is left of the budgets, and what was given out, by request in running order."""

    num_tokens_left: int
    num_tokens: dict[RequestId, int] = field(default_factory=dict)
    copies: list[PageCopy] = field(default_factory=list)
    has_preempted: bool = False

    def give(self, request: Request, num_tokens: int) -> None:
        self.num_tokens[request.request_id] = num_tokens
        self.num_tokens_left -= num_tokens

    def take_back(self, request: Request) -> None:
        self.num_tokens_left += self.num_tokens.pop(request.request_id, 0)


@dataclass(frozen=True, slots=True)
class Update:
    """One token that a commit added to a request, which may have ended by it."""

    request: Request
    token_id: TokenId


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
        self._config = config
        self._manager = manager
        self._layout = manager.layout
        self._model_fingerprint = model_fingerprint
        self.max_model_len = max_model_len
        self._exact_reuse = exact_reuse
        self._listener = listener or SchedulerListener()
        self._waiting = WaitingQueue()
        self._running: list[Request] = []
        self._progress: dict[RequestId, _Progress] = {}
        self._step = 0
        check_model_len_fits(max_model_len, manager)
        check_budget(config, manager.layout.min_prefill_tokens)

    # Questions.

    @property
    def num_running(self) -> int:
        """How many requests hold pages."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """How many requests wait for pages."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step could do anything."""
        return bool(self._progress)

    def requests(self) -> list[Request]:
        """Return the live requests, running ones first, each group in order."""
        return [*self._running, *self._waiting]

    # Arrival and departure.

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises ContextLengthError when it could never run to its end, InvalidRequestError for a `cache_salt`
        that the hash algorithm cannot keep apart from other values.
        """
        assert request.request_id not in self._progress, f"{request.request_id} is here already"
        self._refuse_if_never_fitting(request)
        check_cache_salt(request.cache_salt, self._manager.hash_algorithm)
        self._manager.open(request.request_id, self._make_chain(request))
        self._progress[request.request_id] = _Progress(request, prefill_end=request.num_prompt_tokens)
        self._waiting.add(request)
        self._listener.request_arrived(request)

    def _make_chain(self, request: Request) -> BlockChain:
        namespace = Namespace(
            model_fingerprint=self._model_fingerprint,
            tenant_salt=request.tenant_salt,
            cache_salt=request.cache_salt,
        )
        kind = BlockChain if self._manager.is_caching else UnhashedChain
        algorithm = self._manager.hash_algorithm
        return kind(namespace, self._layout.block_size, request.token_ids, algorithm=algorithm)

    def _refuse_if_never_fitting(self, request: Request) -> None:
        num_prompt, max_tokens = request.num_prompt_tokens, self.max_output_tokens(request)
        assert num_prompt > 0, f"{request.request_id} has no prompt"
        if max_tokens < 1 or num_prompt + max_tokens > self.max_model_len:
            raise context_length_error(num_prompt, request.params.max_tokens, self.max_model_len)
        # The last token is never computed, so it needs no slot.
        num_pages = self._manager.num_pages_for(num_prompt + max_tokens - 1)
        if num_pages > self._layout.num_usable_pages:
            raise ContextLengthError(
                f"prompt of {num_prompt} tokens and max_tokens {max_tokens} need {num_pages} pages of K/V, "
                f"but the pool has {self._layout.num_usable_pages}; "
                "shorten them or raise --kv-cache-memory-bytes",
                param="max_tokens",
            )

    def max_output_tokens(self, request: Request) -> int:
        """Return how many tokens a request may generate: what it asked for, or the rest of the context."""
        asked = request.params.max_tokens
        return self.max_model_len - request.num_prompt_tokens if asked is None else asked

    def abort(self, request_id: RequestId, now: float) -> bool:
        """End a request at once and free its pages; False when it is not here (any more)."""
        if request_id not in self._progress:
            return False
        self.finish(request_id, FinishReason.ABORT, None, now)
        return True

    def finish(
        self, request_id: RequestId, reason: FinishReason, stop_reason: int | str | None, now: float
    ) -> None:
        """End a live request: its pages are free, its blocks stay cached."""
        request = self._progress.pop(request_id).request
        if request.status is RequestStatus.RUNNING:
            self._running.remove(request)
        else:
            self._waiting.remove(request)
        self._manager.close(request_id)
        request.status = RequestStatus.FINISHED
        request.finish_reason, request.stop_reason = reason, stop_reason
        self._listener.request_finished(request, now)

    def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; False while requests hold pages, unless they are to be preempted first."""
        if reset_running_requests:
            while self._running:
                self._preempt(self._running[-1])
        return self._manager.reset()

    # Planning.

    def plan(self, now: float) -> StepPlan:
        """Decide the next step: running decodes, then running prefills, then admissions.

        Takes pages and may preempt. The plan is empty when nothing can run.
        """
        current = _Pass(self._config.max_num_batched_tokens)
        for request in [*self._running_decodes(), *self._running_prefills()]:
            self._plan_running(current, request)
        if not current.has_preempted:
            self._admit_waiting(current, now)
        self._step += 1
        chunks = [self._chunk(self._progress[request_id], n) for request_id, n in current.num_tokens.items()]
        chunks.sort(key=lambda chunk: not chunk.is_decode)
        return StepPlan(self._step, tuple(chunks), tuple(current.copies))

    def _running_decodes(self) -> list[Request]:
        return [request for request in self._running if self._is_decoding(request)]

    def _running_prefills(self) -> list[Request]:
        return [request for request in self._running if not self._is_decoding(request)]

    def _is_decoding(self, request: Request) -> bool:
        return request.num_computed_tokens >= self._progress[request.request_id].prefill_end

    def _plan_running(self, current: _Pass, request: Request) -> None:
        """Give a running request its next tokens, taking pages from the last of the others if it must."""
        if request.status is not RequestStatus.RUNNING:
            return  # preempted earlier in this pass
        num_tokens = self._num_next_tokens(request, request.num_computed_tokens, current.num_tokens_left)
        if not num_tokens:
            return
        while not self._manager.grow(request.request_id, request.num_computed_tokens + num_tokens):
            victim = self._running[-1]
            current.take_back(victim)
            current.has_preempted = True
            self._preempt(victim)
            if victim is request:
                return
        current.give(request, num_tokens)

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

    def _preempt(self, victim: Request) -> None:
        """Take all pages from a running request and let it wait before all others."""
        self._running.remove(victim)
        self._manager.release(victim.request_id)
        progress = self._progress[victim.request_id]
        progress.known_until = max(progress.known_until, victim.num_computed_tokens)
        progress.answer = None
        victim.status = RequestStatus.PREEMPTED
        victim.num_computed_tokens = 0
        victim.num_preemptions += 1
        self._waiting.return_to_front(victim)
        self._listener.request_preempted(victim)

    def _admit_waiting(self, current: _Pass, now: float) -> None:
        """Admit requests from the head of the queue until one does not fit."""
        while self._waiting and len(self._running) < self._config.max_num_seqs and current.num_tokens_left:
            request = self._waiting.head()
            if not self._admit(current, request):
                return
            self._waiting.pop_head()
            self._running.append(request)
            self._note_admission(request, now)

    def _admit(self, current: _Pass, request: Request) -> bool:
        progress = self._progress[request.request_id]
        num_known = len(request.token_ids)
        progress.prefill_end = request.num_prompt_tokens if self._exact_reuse else num_known
        lookup = self._lookup(progress)
        num_tokens = self._num_next_tokens(request, lookup.cached_tokens, current.num_tokens_left)
        headroom = self._headroom()
        is_too_large = self._config.scheduler_reserve_full_isl and not self._manager.fits(
            lookup, num_known, headroom
        )
        if not num_tokens or is_too_large:
            return False
        admission = self._manager.admit(
            request.request_id, lookup, lookup.cached_tokens + num_tokens, headroom
        )
        if admission is None:
            return False
        if (
            admission.cached_tokens < lookup.cached_tokens
        ):  # the run was given up, its tokens are to be computed
            num_tokens = self._num_next_tokens(request, admission.cached_tokens, current.num_tokens_left)
        self._begin(current, request, admission, num_tokens)
        return True

    def _begin(self, current: _Pass, request: Request, admission: Admission, num_tokens: int) -> None:
        request.num_computed_tokens = admission.cached_tokens
        current.give(request, num_tokens)
        if admission.copy:
            current.copies.append(admission.copy)

    def _lookup(self, progress: _Progress) -> Lookup:
        """Return what a waiting request can reuse, asking again only when the index has changed."""
        request = progress.request
        if not self._manager.is_caching or request.skip_reading_cache:
            return NO_HIT
        version = self._manager.pool.index.version
        if progress.answer is None or progress.answer.index_version != version:
            chain = self._manager.table(request.request_id).chain
            progress.answer = self._manager.lookup(chain, len(request.token_ids), progress.prefill_end)
        return progress.answer

    def _headroom(self) -> int:
        """Return how many pages must stay free when a waiting request is admitted beside running ones."""
        return int(self._config.watermark * self._layout.num_pages) if self._running else 0

    def _note_admission(self, request: Request, now: float) -> None:
        progress = self._progress[request.request_id]
        was_preempted = request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        reused = request.num_computed_tokens
        progress.counted_blocks = max(progress.counted_blocks, reused // self._layout.block_size)
        progress.answer = None
        if request.num_cached_tokens is None:
            request.num_cached_tokens = reused
            self._listener.request_admitted(request, now)
        if was_preempted:
            self._listener.request_resumed(request, reused, max(0, progress.known_until - reused))

    def _chunk(self, progress: _Progress, num_tokens: int) -> ScheduledChunk:
        request = progress.request
        start = request.num_computed_tokens
        end = start + num_tokens
        # A prefill below the runner's minimum goes through its decode kernel and is booked as such.
        is_decode = start >= progress.prefill_end or num_tokens < self._layout.min_prefill_tokens
        samples = (self._sample(request),) if end == len(request.token_ids) else ()
        page_table = tuple(self._manager.table(request.request_id).page_ids)
        return ScheduledChunk(
            request.request_id, request.token_ids[start:end], start, page_table, is_decode, samples
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
            request = self._progress[chunk.request_id].request
            self._commit_chunk(request, chunk)
            for spec in chunk.samples:
                updates.append(self._append(request, result.token_ids[spec.request_id], now))
        self._listener.step_committed(plan, now)
        return updates

    def _commit_chunk(self, request: Request, chunk: ScheduledChunk) -> None:
        request.num_computed_tokens = chunk.end
        published = self._manager.commit(
            request.request_id, request.token_ids, chunk.end, is_decode=chunk.is_decode
        )
        progress, block_size = self._progress[request.request_id], self._layout.block_size
        for index in published:
            # Blocks computed again after a preemption are in the books already.
            if index >= progress.counted_blocks and (index + 1) * block_size <= request.num_prompt_tokens:
                request.num_cache_write_tokens += block_size
        progress.counted_blocks = max(progress.counted_blocks, chunk.end // block_size)

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
        live = self.requests()
        assert len(live) == len(self._progress), "a live request stands in no queue or in two"
        assert all(self._progress[request.request_id].request is request for request in live), (
            "notes of a stranger"
        )
        for request in self._running:
            table = self._manager.table(request.request_id)
            assert request.status is RequestStatus.RUNNING, f"{request.request_id} runs as {request.status}"
            assert table.num_computed_tokens == request.num_computed_tokens, (
                f"{request.request_id}: computed differs"
            )
        for request in self._waiting:
            assert not self._manager.table(request.request_id).pages, (
                f"{request.request_id} waits and holds pages"
            )
        self._manager.check_invariants()


def check_model_len_fits(max_model_len: int, manager: KVManager) -> None:
    """Raise NotEnoughMemoryError unless one request of full length fits into the pool."""
    num_pages, usable = manager.num_pages_for(max_model_len), manager.layout.num_usable_pages
    if num_pages > usable:
        raise NotEnoughMemoryError(
            f"one request of --max-model-len {max_model_len} tokens needs {num_pages} pages of K/V, "
            f"but the pool has {usable}; lower --max-model-len to {usable * manager.layout.page_size} "
            "or raise --kv-cache-memory-bytes"
        )


def check_budget(config: SchedulerConfig, min_prefill_tokens: int) -> None:
    """Raise ConfigError unless a prefill makes progress in every step, even beside as many decodes as may run.

    A prompt of `2 · min_prefill_tokens - 1` tokens can neither be cut in two nor computed with less room.
    """
    least = 2 * min_prefill_tokens - 1
    needed = config.max_num_seqs - 1 + least
    if config.max_num_batched_tokens < needed:
        raise ConfigError(
            f"--max-num-batched-tokens is {config.max_num_batched_tokens}, but must be at least {needed}: one token "
            f"for each of --max-num-seqs {config.max_num_seqs} but one, and {least} for a prefill"
        )
    if 0 < config.long_prefill_token_threshold < least:
        raise ConfigError(
            f"--long-prefill-token-threshold is {config.long_prefill_token_threshold}, "
            f"but must be 0 or at least {least} for this runner"
        )


def context_length_error(
    num_prompt_tokens: int, max_tokens: int | None, max_model_len: int
) -> ContextLengthError:
    """Return the error for a prompt that does not fit, with all three numbers and the remedy."""
    if num_prompt_tokens >= max_model_len:
        return ContextLengthError(
            f"the prompt has {num_prompt_tokens} tokens, but the context is {max_model_len} and must also hold "
            f"at least one output token; shorten the prompt or raise --max-model-len"
        )
    total = num_prompt_tokens + (max_tokens or 1)
    return ContextLengthError(
        f"the prompt has {num_prompt_tokens} tokens and max_tokens is {max_tokens}, together {total}, "
        f"but the context is {max_model_len}; shorten the prompt, lower max_tokens to "
        f"{max_model_len - num_prompt_tokens}, or raise --max-model-len",
        param="max_tokens",
    )
