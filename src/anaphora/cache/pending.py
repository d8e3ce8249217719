"""Which blocks are being computed right now, by whom, and who waits for them.

A block enters when its request's prefill is admitted and leaves when it is published, or at once when the
request is preempted, aborted or failed. Knows no deadlines.
"""

from collections.abc import Iterable, Iterator, Sequence

from anaphora.cache.hashing import BlockDigest
from anaphora.ids import RequestId


class PendingBlocks:
    """Maps each pending digest to the first running request that computes it, and to those who wait for it."""

    __slots__ = ("_owners", "_waiters", "_woken")

    def __init__(self) -> None:
        self._owners: dict[BlockDigest, RequestId] = {}
        self._waiters: dict[BlockDigest, list[RequestId]] = {}
        self._woken: list[RequestId] = []

    def __len__(self) -> int:
        """Return the number of pending blocks."""
        return len(self._owners)

    def __iter__(self) -> Iterator[BlockDigest]:
        """Yield every pending digest."""
        return iter(self._owners)

    def owner(self, digest: BlockDigest) -> RequestId | None:
        """Return who computes a block now, or None."""
        return self._owners.get(digest)

    def num_leading(self, digests: Sequence[BlockDigest], start: int, end: int) -> int:
        """Return how many of the blocks `start`, `start + 1`, … before `end` are pending without a gap."""
        for index in range(start, end):
            if digests[index] not in self._owners:
                return index - start
        return max(0, end - start)

    def announce(self, request_id: RequestId, digests: Iterable[BlockDigest]) -> None:
        """Note that a request computes these blocks; those that another one computes already stay that one's."""
        for digest in digests:
            self._owners.setdefault(digest, request_id)

    def wait(self, request_id: RequestId, digest: BlockDigest) -> None:
        """Note that a request waits for a pending block."""
        self._waiters.setdefault(digest, []).append(request_id)

    def settle(self, request_id: RequestId, digests: Iterable[BlockDigest]) -> None:
        """Forget blocks of a request, which are published now or not computed any longer, and wake who waits."""
        owners = self._owners
        for digest in digests:
            if owners.get(digest) == request_id:
                del owners[digest]
                if self._waiters:
                    self._woken += self._waiters.pop(digest, ())

    def take_woken(self) -> list[RequestId]:
        """Return, once each, those whose block has been settled since the last call."""
        woken, self._woken = list(dict.fromkeys(self._woken)), []
        return woken

    def check_invariants(self) -> None:
        """Assert that nobody waits for a block that nobody computes."""
        assert set(self._waiters) <= set(self._owners), "a request waits for a block that nobody computes"
