"""How others watch the scheduler: one object with methods that do nothing.

The scheduler has no clock: `now` is the time its caller gave to the step, in seconds.
"""

from collections.abc import Sequence

from anaphora.request import Request
from anaphora.scheduler.plan import StepPlan


class SchedulerListener:
    """Told of every turn in a request's life."""

    def plan_began(self, now: float) -> None:
        """The next step is being planned; what happens from here to the next of these happens at this time."""

    def request_arrived(self, request: Request) -> None:
        """It entered the waiting queue."""

    def fork_arrived(self, request: Request, parent: Request) -> None:
        """It arrived with its parent, whose prompt it is to share."""

    def request_admitted(self, request: Request, now: float) -> None:
        """Its first chunk was planned for the first time; `num_cached_tokens` is now fixed."""

    def tokens_rounded(self, request: Request, num_tokens: int) -> None:
        """At its first admission, so many tokens were cached but lie in a block of which the rest differs."""

    def request_forked(self, request: Request, parent: Request, now: float) -> None:
        """It runs now and shares its parent's pages; its prompt is in the parent's books alone."""

    def request_coalesced(self, request: Request, num_tokens: int) -> None:
        """Of the tokens it reuses, so many are there because it waited for another request to compute them."""

    def coalescing_timed_out(self, request: Request) -> None:
        """It waited for another request's blocks until its deadline and computes them itself now."""

    def request_resumed(self, request: Request, num_reused_tokens: int) -> None:
        """It runs again after a preemption."""

    def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
        """So many tokens were computed that had been computed before a preemption."""

    def request_preempted(self, request: Request) -> None:
        """Its pages were taken away."""

    def token_appended(self, request: Request, now: float) -> None:
        """One output token was added to it."""

    def request_finished(self, request: Request, now: float) -> None:
        """It ended, for whatever reason; `finish_reason` says which."""

    def step_committed(self, plan: StepPlan, now: float) -> None:
        """A step was run and its results taken in."""


class SchedulerListeners(SchedulerListener):
    """Passes every event on to several listeners, in order."""

    def __init__(self, listeners: Sequence[SchedulerListener] = ()) -> None:
        self._listeners = tuple(listeners)

    def plan_began(self, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.plan_began(now)

    def request_arrived(self, request: Request) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_arrived(request)

    def fork_arrived(self, request: Request, parent: Request) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.fork_arrived(request, parent)

    def request_admitted(self, request: Request, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_admitted(request, now)

    def tokens_rounded(self, request: Request, num_tokens: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.tokens_rounded(request, num_tokens)

    def request_forked(self, request: Request, parent: Request, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_forked(request, parent, now)

    def request_coalesced(self, request: Request, num_tokens: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_coalesced(request, num_tokens)

    def coalescing_timed_out(self, request: Request) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.coalescing_timed_out(request)

    def request_resumed(self, request: Request, num_reused_tokens: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_resumed(request, num_reused_tokens)

    def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.tokens_recomputed(request, num_tokens)

    def request_preempted(self, request: Request) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_preempted(request)

    def token_appended(self, request: Request, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.token_appended(request, now)

    def request_finished(self, request: Request, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.request_finished(request, now)

    def step_committed(self, plan: StepPlan, now: float) -> None:
        """Pass on."""
        for listener in self._listeners:
            listener.step_committed(plan, now)
