"""Requests that wait for pages: those that were preempted first, then in the order of arrival."""

from collections import deque
from collections.abc import Iterator

from anaphora.request import Request


class WaitingQueue:
    """A queue whose head is the next to be admitted."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests, the head first."""
        return iter(self._requests)

    def add(self, request: Request) -> None:
        """Put a new request at the tail."""
        self._requests.append(request)

    def return_to_front(self, request: Request) -> None:
        """Put a preempted request before all others."""
        self._requests.appendleft(request)

    def head(self) -> Request:
        """Return the next request; there must be one."""
        return self._requests[0]

    def pop_head(self) -> Request:
        """Remove and return the next request; there must be one."""
        return self._requests.popleft()

    def remove(self, request: Request) -> None:
        """Take one request out, wherever it stands."""
        self._requests.remove(request)
