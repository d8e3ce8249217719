"""Who of those that wait is admitted next, and who waits for blocks that another request computes.

Takes pages for those it admits; starts nothing else. Rules: docs/cache-semantics.md, admission and coalescing.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from anaphora.cache.lookup import NO_HIT, Lookup
from anaphora.cache.manager import KVManager
from anaphora.config import SchedulerConfig
from anaphora.ids import RequestId
from anaphora.request import Request
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.progress import PlanningPass, Progress
from anaphora.scheduler.queue import WaitingQueue


class AdmissionControl:
    """Owns the waiting queue.

    `num_next_tokens(request, num_computed_tokens, num_tokens_left)` is how many tokens a first chunk may have,
    0 when it does not fit into the step.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        manager: KVManager,
        progress: Mapping[RequestId, Progress],
        num_next_tokens: Callable[[Request, int, int], int],
        listener: SchedulerListener,
    ) -> None:
        self.queue = WaitingQueue(config.scheduling_policy)
        self._config = config
        self._manager = manager
        self._progress = progress
        self._num_next_tokens = num_next_tokens
        self._listener = listener
        self._deadlines: list[tuple[float, RequestId]] = []

    def admit(self, current: PlanningPass, num_running: int, now: float) -> Iterator[Request]:
        """Admit from the head of the queue, yielding each request that got its pages, until one does not fit.

        Then a few of those behind it are tried, those that need least first; the head is passed over a bounded
        number of times.
        """
        self._wake(now)
        seats = self._config.max_num_seqs - num_running
        has_running = num_running > 0
        while seats and current.num_tokens_left:
            head = next(self._candidates(now), None)
            if head is None:
                return
            if not self._try(current, head, has_running=has_running):
                yield from self._admit_behind(current, head, seats, now)
                return
            seats, has_running = seats - 1, True
            yield head

    def _admit_behind(
        self, current: PlanningPass, head: Request, seats: int, now: float
    ) -> Iterator[Request]:
        progress = self._progress[head.request_id]
        behind = list(islice(self._candidates(now), 1, 1 + self._config.admission_lookahead))
        for request in sorted(behind, key=self._need):
            is_over = progress.num_passes >= self._config.admission_max_passes
            if is_over or not seats or not current.num_tokens_left:
                return
            if self._try(current, request, has_running=True):
                progress.num_passes += 1
                seats -= 1
                yield request

    def _candidates(self, now: float) -> Iterator[Request]:
        """Yield those who could be admitted, in order; those who are to wait for others are set aside."""
        position = 0
        while request := next(islice(self.queue, position, None), None):
            if self._is_to_wait(request, now):
                self.queue.set_aside(request)
            else:
                position += 1
                yield request

    def _need(self, request: Request) -> int:
        lookup = self._lookup(self._progress[request.request_id])
        return self._manager.num_pages_needed(lookup, len(request.token_ids))

    def _try(self, current: PlanningPass, request: Request, *, has_running: bool) -> bool:
        """Give a request its pages and its first chunk, if both fit now; it leaves the queue."""
        progress = self._progress[request.request_id]
        lookup = self._lookup(progress)
        num_tokens = self._num_next_tokens(request, lookup.cached_tokens, current.room(progress))
        headroom = self._headroom(has_running=has_running)
        if not num_tokens or not self._passes_gate(request, lookup, headroom):
            return False
        end = lookup.cached_tokens + num_tokens
        admission = self._manager.admit(request.request_id, lookup, end, progress.prefill_end, headroom)
        if admission is None:
            return False
        if (
            admission.cached_tokens < lookup.cached_tokens
        ):  # the run was given up, its tokens are to be computed
            most = self._num_next_tokens(request, admission.cached_tokens, current.room(progress))
            num_tokens = min(most, end - admission.cached_tokens)
        request.num_computed_tokens = admission.cached_tokens
        progress.num_rounded_tokens = lookup.num_rounded_tokens
        current.give(progress, num_tokens, [admission.copy] if admission.copy else [])
        self.queue.remove(request)
        return True

    def _passes_gate(self, request: Request, lookup: Lookup, headroom: int) -> bool:
        """Whether the whole known sequence would fit now, if that is asked for; a check, no reservation."""
        is_asked = self._config.scheduler_reserve_full_isl
        return not is_asked or self._manager.fits(lookup, len(request.token_ids), headroom)

    def _headroom(self, *, has_running: bool) -> int:
        """Return how many pages must stay free when a waiting request is admitted beside running ones."""
        return int(self._config.watermark * self._manager.layout.num_pages) if has_running else 0

    def _lookup(self, progress: Progress) -> Lookup:
        """Return what a waiting request can reuse, asking again only when the index has changed."""
        request = progress.request
        if not self._manager.is_caching or request.skip_reading_cache:
            return NO_HIT
        version = self._manager.pool.index.version
        if progress.answer is None or progress.answer.index_version != version:
            chain = self._manager.table(request.request_id).chain
            progress.answer = self._manager.lookup(chain, len(request.token_ids), progress.prefill_end)
        return progress.answer

    # Coalescing.

    def _is_to_wait(self, request: Request, now: float) -> bool:
        """Whether a request is to wait, up to a deadline, for blocks it misses and another one computes."""
        progress = self._progress[request.request_id]
        if not self._config.coalesce_deadline_ms or progress.has_waited_out or request.skip_reading_cache:
            return False
        lookup = self._lookup(progress)
        if not self._manager.wait_for_pending(request.request_id, lookup):
            return False
        if progress.deadline is None:
            progress.deadline = now + self._config.coalesce_deadline_ms / 1000
            progress.cached_when_deferred = lookup.cached_tokens
            heapq.heappush(self._deadlines, (progress.deadline, request.request_id))
        return True

    def _wake(self, now: float) -> None:
        """Bring back those whose blocks have come, or will not come, or have not come in time."""
        for request_id in self._manager.pending.take_woken():
            self.queue.bring_back(request_id)
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, request_id = heapq.heappop(self._deadlines)
            progress = self._progress.get(request_id)
            if progress is None or progress.deadline != deadline:
                continue  # it has gone, or does not wait for this any more
            progress.has_waited_out = True
            if self.queue.is_aside(request_id):
                self.queue.bring_back(request_id)
                self._listener.coalescing_timed_out(progress.request)
