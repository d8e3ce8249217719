"""Requests that wait for pages, in the order in which they are to be admitted."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import count
from typing import Literal, NamedTuple

from anaphora.ids import RequestId
from anaphora.request import Request

Policy = Literal["fcfs", "priority"]


class _Entry(NamedTuple):
    """A waiting request; the numbers before it decide the order and are never equal for two."""

    rank: float
    arrival_time: float
    number: int
    request: Request


class WaitingQueue:
    """A queue whose head is the next to be admitted, and those who are set aside from it for a while.

    fcfs: preempted requests first, the last preempted foremost, then by arrival. priority: by priority, lower
    first, then by time of arrival, whether preempted or not.
    """

    def __init__(self, policy: Policy = "fcfs") -> None:
        self._policy = policy
        self._numbers = count(1)
        self._entries: list[_Entry] = []
        self._ready: dict[RequestId, _Entry] = {}
        self._aside: dict[RequestId, _Entry] = {}

    def __len__(self) -> int:
        """Return the number of waiting requests, those set aside included."""
        return len(self._ready) + len(self._aside)

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests that are not set aside, the head first; the queue must not change meanwhile."""
        return (entry.request for entry in self._entries)

    @property
    def num_aside(self) -> int:
        """How many requests are set aside."""
        return len(self._aside)

    def is_aside(self, request_id: RequestId) -> bool:
        """Whether a request is set aside."""
        return request_id in self._aside

    def everyone(self) -> list[Request]:
        """Return all waiting requests in order, wherever they stand."""
        return [entry.request for entry in sorted([*self._entries, *self._aside.values()])]

    def add(self, request: Request) -> None:
        """Put a new request where it belongs."""
        self._insert(self._entry(request, rank=1, number=next(self._numbers)))

    def return_to_front(self, request: Request) -> None:
        """Put a request that has run before all others, or where its priority says."""
        self._insert(self._entry(request, rank=0, number=-next(self._numbers)))

    def _entry(self, request: Request, rank: int, number: int) -> _Entry:
        if self._policy == "priority":
            return _Entry(request.priority, request.arrival_time, number, request)
        return _Entry(rank, 0, number, request)

    def _insert(self, entry: _Entry) -> None:
        insort(self._entries, entry)
        self._ready[entry.request.request_id] = entry

    def set_aside(self, request: Request) -> None:
        """Take a request out of the order; it keeps its place."""
        self._aside[request.request_id] = self._take(request.request_id)

    def bring_back(self, request_id: RequestId) -> None:
        """Put a request that was set aside, and still waits, back to its place."""
        if entry := self._aside.pop(request_id, None):
            self._insert(entry)

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it stands."""
        if self._aside.pop(request.request_id, None) is None:
            self._take(request.request_id)

    def _take(self, request_id: RequestId) -> _Entry:
        entry = self._ready.pop(request_id)
        del self._entries[bisect_left(self._entries, entry)]
        return entry
