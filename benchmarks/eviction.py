"""Hit rates of the eviction policies on a recorded trace, and what each costs per page.

    python benchmarks/eviction.py TRACE [--pages 1756 3513 7027] [--policies lru slru lfu cost] [--json FILE]

TRACE has one request a line, in order of arrival, as JSON with `input_length` and `hash_ids`, one id for each
`--page-size` tokens of the prompt (the format of the Mooncake traces); it may end in .gz.

Order mode: time plays no part. A request hits the leading ids that are stored, its other ids take pages, and all its
pages are handed back before the next request, the last first. The hit rate counts tokens, over all requests and over
the last half; a partly filled last page counts with its true length. "work" is the last half again, each token
weighted with what it costs to compute at its position, as the cost policy sees it. No model runs, nothing is hashed.
"""

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from anaphora.cache.eviction.cost import BREAK_EVEN_TOKENS
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block, Page
from anaphora.cache.pool import PagePool
from anaphora.config import EVICTION_POLICIES, EvictionPolicyName, KVLayout


@dataclass(frozen=True)
class TraceRequest:
    num_tokens: int
    digests: list[BlockDigest]


@dataclass(frozen=True)
class Row:
    policy: EvictionPolicyName
    pages: int
    hit_rate_all: float
    hit_rate_last_half: float
    work_saved_last_half: float
    touch_ns: float
    take_ns: float
    release_ns: float


def read_trace(path: Path) -> list[TraceRequest]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        rows = [json.loads(line) for line in lines]
    return [
        TraceRequest(row["input_length"], [BlockDigest(b"%d" % number) for number in row["hash_ids"]])
        for row in rows
    ]


class Replay:
    """One pool under one policy."""

    def __init__(self, policy: EvictionPolicyName, num_usable_pages: int, page_size: int) -> None:
        layout = KVLayout(page_size, page_size, num_usable_pages + 1)
        self.pool = PagePool(layout, policy=make_policy(policy, layout))
        self.ns = {"touch": 0, "take": 0, "release": 0}
        self.num_pages = {"touch": 0, "take": 0, "release": 0}

    def send(self, request: TraceRequest) -> int:
        """Return how many leading pages were hits."""
        hits = self.find(request.digests)
        num_new = len(request.digests) - len(hits)
        start = time.perf_counter_ns()
        self.pool.touch(hits)
        touched = time.perf_counter_ns()
        pages = hits + self.pool.take(num_new)
        taken = time.perf_counter_ns()
        for depth in range(len(hits), len(pages)):
            pages[depth].depth = depth
            self.pool.publish(Block(request.digests[depth], pages[depth], 0, b"", b"", False))
        handed_over = pages[::-1]
        published = time.perf_counter_ns()
        self.pool.release(handed_over)
        released = time.perf_counter_ns()
        self.count("touch", touched - start, len(hits))
        self.count("take", taken - touched, num_new)
        self.count("release", released - published, len(pages))
        return len(hits)

    def find(self, digests: Sequence[BlockDigest]) -> list[Page]:
        pages: list[Page] = []
        for digest in digests:
            block = self.pool.index.get(digest)
            if block is None:
                break
            pages.append(block.page)
        return pages

    def count(self, verb: str, ns: int, num_pages: int) -> None:
        self.ns[verb] += ns
        self.num_pages[verb] += num_pages

    def ns_per_page(self, verb: str) -> float:
        return self.ns[verb] / max(1, self.num_pages[verb])


def work(num_tokens: int) -> int:
    """Return the cost of the first so many tokens of a prompt, in an unspecified unit."""
    return 2 * BREAK_EVEN_TOKENS * num_tokens + num_tokens**2


def replay(
    trace: Sequence[TraceRequest], policy: EvictionPolicyName, num_usable_pages: int, page_size: int
) -> Row:
    run = Replay(policy, num_usable_pages, page_size)
    hits = [min(run.send(request) * page_size, request.num_tokens) for request in trace]
    run.pool.check_invariants()
    lengths = [request.num_tokens for request in trace]
    half = len(trace) // 2
    return Row(
        policy,
        num_usable_pages,
        100 * sum(hits) / sum(lengths),
        100 * sum(hits[half:]) / sum(lengths[half:]),
        100 * sum(map(work, hits[half:])) / sum(map(work, lengths[half:])),
        run.ns_per_page("touch"),
        run.ns_per_page("take"),
        run.ns_per_page("release"),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--pages", type=int, nargs="+", default=[1756, 3513, 7027, 14054, 28108])
    parser.add_argument("--policies", nargs="+", choices=EVICTION_POLICIES, default=EVICTION_POLICIES)
    parser.add_argument("--page-size", type=int, default=512)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()

    trace = read_trace(options.trace)
    longest = max(len(request.digests) for request in trace)
    if min(options.pages) < longest:
        parser.error(f"--pages {min(options.pages)} is too few: the longest request needs {longest}")
    rows = []
    print(f"{len(trace):,} requests of {options.trace.name}; hit rate in % of tokens, ns per page")
    print(
        f"{'pages':>8} {'policy':>7} {'all':>7} {'last half':>10} {'work':>7} {'touch':>7} {'take':>7} {'release':>8}"
    )
    for num_pages in options.pages:
        for policy in options.policies:
            row = replay(trace, policy, num_pages, options.page_size)
            rows.append(row)
            print(
                f"{row.pages:>8} {row.policy:>7} {row.hit_rate_all:>7.2f} {row.hit_rate_last_half:>10.2f}"
                f" {row.work_saved_last_half:>7.2f} {row.touch_ns:>7.0f} {row.take_ns:>7.0f} {row.release_ns:>8.0f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
