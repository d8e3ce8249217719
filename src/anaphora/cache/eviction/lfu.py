"""Least often hit first, with aging: what was popular once is not kept for ever."""

from collections.abc import Iterator, Sequence

from anaphora.cache.eviction.policy import HitCounting
from anaphora.cache.free_queue import FreeQueue
from anaphora.cache.page import Page

MOST_HITS = 4


class LFU(HitCounting):
    """Buckets of pages by key = age + 1 + hits, the lowest key first, then the least recently released first.

    The age is the key of the last victim (LFU with dynamic aging): it grows by one when every page that was never hit
    has been replaced once, so a page that nobody hits any more is overtaken. Hits above `MOST_HITS` do not count.
    So all keys lie close together, and the next bucket is found in O(1) without a heap:

        age     age + 1     age + 2     …     age + 1 + MOST_HITS
        [4]     [3, 2, 1]   []                [7, 6]
    """

    def __init__(self) -> None:
        self._buckets = [FreeQueue() for _ in range(MOST_HITS + 2)]  # a ring: key modulo its length
        self._age = 0
        self._length = 0

    def __len__(self) -> int:
        """Return the number of pages."""
        return self._length

    def __iter__(self) -> Iterator[Page]:
        """Yield the buckets' pages, the lowest key first."""
        for key in self._keys():
            yield from self._bucket(key)

    def _keys(self) -> range:
        return range(self._age, self._age + len(self._buckets))

    def _bucket(self, key: int) -> FreeQueue:
        return self._buckets[key % len(self._buckets)]

    def add(self, pages: Sequence[Page], released: Sequence[Page]) -> None:
        """Put each page at the recent end of its bucket."""
        lowest = self._age + 1
        by_key: dict[int, list[Page]] = {}
        for page in pages:
            key = lowest + min(page.num_hits, MOST_HITS)
            page.rank = key
            by_key.setdefault(key, []).append(page)
        for key, same in by_key.items():
            self._bucket(key).append_all(same)
        self._length += len(pages)

    def remove(self, page: Page) -> None:
        """Take a page out of its bucket."""
        self._bucket(int(page.rank)).remove(page)
        self._length -= 1

    def take(self, num_pages: int) -> list[Page]:
        """Take from the lowest buckets and become as old as the last victim."""
        assert 0 <= num_pages <= self._length, f"{num_pages} pages wanted of {self._length}"
        taken: list[Page] = []
        while len(taken) < num_pages:
            bucket = self._bucket(self._age)
            taken += bucket.take(min(num_pages - len(taken), len(bucket)))
            if len(taken) < num_pages:
                self._age += 1
        self._length -= num_pages
        return taken

    def check_invariants(self) -> None:
        """Assert that each page stands under its key, and that the keys lie close together."""
        assert sum(len(bucket) for bucket in self._buckets) == self._length, "the length is wrong"
        for key in self._keys():
            pages = list(self._bucket(key))
            assert len(pages) == len(self._bucket(key)), f"bucket {key}: the length is wrong"
            assert all(page.rank == key for page in pages), f"a page stands under {key} by mistake"
