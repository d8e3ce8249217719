"""The eviction policies done the slow way, on lists of page numbers: what each of them promises, and nothing clever."""

from collections.abc import Sequence

from anaphora.cache.eviction.cost import BREAK_EVEN_TOKENS
from anaphora.cache.eviction.lfu import MOST_HITS
from anaphora.cache.eviction.slru import PROTECTED_SHARE
from anaphora.config import EvictionPolicyName


class NaiveLRU:
    """One list, and what the others need to know of each page: its depth and its hits."""

    def __init__(self, num_usable_pages: int, page_size: int) -> None:
        self.num_usable_pages, self.page_size = num_usable_pages, page_size
        self.idle: list[int] = []
        self.depths: dict[int, int] = {}
        self.hits: dict[int, int] = {}

    def publish(self, page: int, depth: int) -> None:
        self.depths[page], self.hits[page] = depth, 0

    def add(self, pages: Sequence[int], released: Sequence[int]) -> None:
        self.idle += pages

    def remove(self, page: int) -> None:
        self.idle.remove(page)

    def hit(self, pages: Sequence[int]) -> None:
        for page in pages:
            self.hits[page] += 1

    def order(self) -> list[int]:
        return list(self.idle)

    def take(self, num_pages: int) -> list[int]:
        taken = self.order()[:num_pages]
        for page in taken:
            self.idle.remove(page)
        return taken


class NaiveSLRU(NaiveLRU):
    """A list in order of release or demotion, and the set of those that are protected."""

    def __init__(self, num_usable_pages: int, page_size: int) -> None:
        super().__init__(num_usable_pages, page_size)
        self.protected: set[int] = set()

    def add(self, pages: Sequence[int], released: Sequence[int]) -> None:
        for page in pages:
            self.idle.append(page)
            self.protected.discard(page)
            if self.hits[page]:
                self.protected.add(page)
        while len(self.protected & set(self.idle)) > int(PROTECTED_SHARE * self.num_usable_pages):
            oldest = next(page for page in self.idle if page in self.protected)
            self.protected.remove(oldest)
            self.hits[oldest] = 0
            self.idle.remove(oldest)
            self.idle.append(oldest)

    def order(self) -> list[int]:
        return sorted(self.idle, key=lambda page: page in self.protected)


class NaiveLFU(NaiveLRU):
    """A list in order of release, sorted by key."""

    def __init__(self, num_usable_pages: int, page_size: int) -> None:
        super().__init__(num_usable_pages, page_size)
        self.keys: dict[int, int] = {}
        self.age = 0

    def add(self, pages: Sequence[int], released: Sequence[int]) -> None:
        self.idle += pages
        for page in pages:
            self.keys[page] = self.age + 1 + min(self.hits[page], MOST_HITS)

    def order(self) -> list[int]:
        return sorted(self.idle, key=lambda page: self.keys[page])

    def take(self, num_pages: int) -> list[int]:
        taken = super().take(num_pages)
        self.age = max([self.age, *(self.keys[page] for page in taken)])
        return taken


class NaiveCost(NaiveLFU):
    """The same with another key, which a page has as long as its content and which its children can raise."""

    def publish(self, page: int, depth: int) -> None:
        super().publish(page, depth)
        self.keys[page] = 0

    def add(self, pages: Sequence[int], released: Sequence[int]) -> None:
        self.idle += pages
        for at, page in enumerate(released):
            cost = BREAK_EVEN_TOKENS + self.depths[page] * self.page_size
            # The run of ever shallower pages that ends here: its deepest page comes first.
            start = at
            while start and self.depths[released[start - 1]] > self.depths[released[start]]:
                start -= 1
            deeper = [self.keys[other] for other in released[start:at]]
            self.keys[page] = max([self.keys[page], self.age + cost * (1 + self.hits[page]), *deeper])


NAIVE: dict[EvictionPolicyName, type[NaiveLRU]] = {
    "lru": NaiveLRU,
    "slru": NaiveSLRU,
    "lfu": NaiveLFU,
    "cost": NaiveCost,
}
