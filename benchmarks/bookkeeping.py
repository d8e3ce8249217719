"""What the cache's own bookkeeping costs, in ns per 16-token block, beside vLLM's where vLLM can be imported.

    python benchmarks/bookkeeping.py [--pages 1000 100000 1000000] [--tokens 1024 8192 131072] [--rounds 25]
                                     [--gc frozen|off|on] [--json]

No model runs. Each pool is filled with other prompts first, so that taking pages evicts. Then, in each round
and for each side in turn, in random order: one never-seen prompt is hashed, given pages and published
(`take_publish`) and released, and one of the last such prompts is hashed again, looked up, given its hits
(`take_hit`: references to them, a page for the last block, which is never a hit, and its publication) and
released. Hits are idle pages in the middle of the free queue, the dear case. Figures are medians over the
rounds, divided by the prompt's 16-token blocks, whatever the page size. `warm_total` is hash + lookup +
take_hit + release.

vLLM's side is its own `KVCacheManager` and `Request`, with its `sha256` and blocks of 16. It is an optional
peer: without it, that column is absent. Both sides check that the whole prompt fits before they admit.

`--json` prints one line last: the figures of the pool with 100,000 pages (or the largest that was run), and
`pool_growth_ratio`, which is the worst of the warm operations' costs in the largest pool ÷ in the smallest,
over the prompts that fit both, the same number of prompts being in turn in both.
"""

import argparse
import gc
import json
import os
import random
import statistics
import sys
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import Namespace
from anaphora.cache.lookup import NO_HIT, Lookup
from anaphora.cache.manager import KVManager
from anaphora.config import KVLayout
from anaphora.ids import RequestId

BLOCK_SIZE = 16
WARM = ("hash", "lookup", "take_hit", "release")
COLUMNS = ("hash", "lookup", "take_publish", "take_hit", "release", "warm_total")
JSON_NUM_PAGES = 100_000
NUM_WARM_PROMPTS = 8
FINGERPRINT = bytes(32)


class Books(Protocol):
    """One side of the comparison. Only `hash`, `lookup`, `take` and `release` are timed."""

    def request(self, token_ids: list[int]) -> Any: ...
    def hash(self, request: Any) -> Any: ...
    def lookup(self, request: Any) -> Any: ...
    def take(self, request: Any, hit: Any) -> None: ...
    def release(self, request: Any) -> None: ...
    def num_hit_tokens(self, hit: Any) -> int: ...
    def no_hit(self) -> Any: ...


class Ours:
    """`KVManager`, driven as the scheduler drives it."""

    class Request:
        def __init__(self, number: int, token_ids: list[int]) -> None:
            self.request_id = RequestId(f"request-{number}")
            self.token_ids = token_ids
            self.chain: BlockChain

    def __init__(self, num_pages: int, page_size: int = BLOCK_SIZE) -> None:
        self._manager = KVManager(KVLayout(BLOCK_SIZE, page_size, num_pages * BLOCK_SIZE // page_size))
        self._num_requests = 0

    def request(self, token_ids: list[int]) -> Request:
        self._num_requests += 1
        return self.Request(self._num_requests, token_ids)

    def hash(self, request: Request) -> None:
        request.chain = BlockChain(Namespace(model_fingerprint=FINGERPRINT), BLOCK_SIZE, request.token_ids)

    def lookup(self, request: Request) -> Lookup:
        num_tokens = len(request.token_ids)
        return self._manager.lookup(request.chain, num_tokens, num_tokens)

    def take(self, request: Request, hit: Lookup) -> None:
        manager, request_id, num_tokens = self._manager, request.request_id, len(request.token_ids)
        manager.open(request_id, request.chain)
        assert manager.fits(hit, num_tokens)
        assert manager.admit(request_id, hit, num_tokens, num_tokens)
        manager.commit(request_id, request.token_ids, num_tokens, is_decode=False)

    def release(self, request: Request) -> None:
        self._manager.close(request.request_id)

    def num_hit_tokens(self, hit: Lookup) -> int:
        return hit.cached_tokens

    def no_hit(self) -> Lookup:
        return NO_HIT


class VLLM:
    """vLLM's `KVCacheManager` for one group of full attention, driven as its scheduler drives it."""

    def __init__(self, num_pages: int) -> None:
        import torch
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.request import Request

        init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        config = KVCacheConfig(
            num_blocks=num_pages, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
        )
        self._manager = KVCacheManager(
            config, max_model_len=1 << 20, scheduler_block_size=BLOCK_SIZE, hash_block_size=BLOCK_SIZE
        )
        self._hasher = get_request_block_hasher(BLOCK_SIZE, sha256)
        self._make_request = Request
        self._params = SamplingParams(max_tokens=1)
        self._num_requests = 0

    def request(self, token_ids: list[int]) -> Any:
        self._num_requests += 1
        return self._make_request(f"request-{self._num_requests}", token_ids, self._params, None)

    def hash(self, request: Any) -> None:
        request.block_hashes.extend(self._hasher(request))

    def lookup(self, request: Any) -> Any:
        return self._manager.get_computed_blocks(request)

    def take(self, request: Any, hit: Any) -> None:
        blocks, num_computed, _ = hit
        num_new = request.num_tokens - num_computed
        assert self._manager.allocate_slots(
            request, num_new, num_computed, blocks, full_sequence_must_fit=True, has_scheduled_reqs=False
        )

    def release(self, request: Any) -> None:
        self._manager.free(request)

    def num_hit_tokens(self, hit: Any) -> int:
        return int(hit[1])

    def no_hit(self) -> Any:
        return None, 0, 0


def vllm_version() -> str | None:
    """Return the version of an importable vLLM, or None, with the reason on stderr."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    try:
        import vllm.v1.core.kv_cache_manager
    except Exception as error:  # noqa: BLE001 - whatever the reason, the other column is wanted
        print(f"vllm is not compared: {type(error).__name__}: {error}", file=sys.stderr)
        return None
    return str(vllm.__version__)


def random_prompt(num_tokens: int, rng: random.Random) -> list[int]:
    """Return token ids that no other prompt begins with."""
    return list(array("H", rng.randbytes(2 * num_tokens)))


class Stopwatch:
    """Collects ns per block, by operation."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self.samples: defaultdict[str, list[float]] = defaultdict(list)

    def time(self, name: str, operation: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter_ns()
        result = operation(*args)
        self.samples[name].append((time.perf_counter_ns() - start) / self._num_blocks)
        return result

    def medians(self) -> dict[str, float]:
        figures = {name: statistics.median(samples) for name, samples in self.samples.items()}
        return figures | {"warm_total": sum(figures[name] for name in WARM)}


def fill(books: Books, num_pages: int, rng: random.Random) -> None:
    """Publish other prompts until every page has been given out once."""
    num_tokens = min(8192, (num_pages - 1) * BLOCK_SIZE)
    for _ in range(-(-num_pages * BLOCK_SIZE // num_tokens)):
        request = books.request(random_prompt(num_tokens, rng))
        books.hash(request)
        books.take(request, books.no_hit())
        books.release(request)


def run_cold(books: Books, watch: Stopwatch, token_ids: list[int]) -> None:
    """Measure a never-seen prompt; its hashing and release count as in the warm pass."""
    request = books.request(token_ids)
    books.hash(request)
    hit = books.lookup(request)
    assert books.num_hit_tokens(hit) == 0, "a never-seen prompt was found"
    watch.time("take_publish", books.take, request, hit)
    books.release(request)


def run_warm(books: Books, watch: Stopwatch, token_ids: list[int]) -> None:
    """Measure a prompt that is cached whole."""
    request = books.request(token_ids)
    watch.time("hash", books.hash, request)
    hit = watch.time("lookup", books.lookup, request)
    assert books.num_hit_tokens(hit) == (len(token_ids) - 1) // BLOCK_SIZE * BLOCK_SIZE, "not all was found"
    watch.time("take_hit", books.take, request, hit)
    watch.time("release", books.release, request)


def measure(
    sides: dict[str, Books], num_tokens: int, num_warm: int, rounds: int, rng: random.Random
) -> dict[str, dict[str, float]]:
    """Return the medians of every side, measured in turns, with `num_warm` cached prompts in turn."""
    watches = {name: Stopwatch(num_tokens // BLOCK_SIZE) for name in sides}
    prompts: deque[list[int]] = deque(maxlen=num_warm)
    for number in range(num_warm + rounds):
        prompts.append(random_prompt(num_tokens, rng))
        is_warm_up = number < num_warm
        for name in rng.sample(sorted(sides), len(sides)):
            watch = Stopwatch(num_tokens // BLOCK_SIZE) if is_warm_up else watches[name]
            run_cold(sides[name], watch, prompts[-1])
            run_warm(sides[name], watch, prompts[0])
    return {name: watch.medians() for name, watch in watches.items()}


def prepare_gc(mode: str) -> None:
    """Collect, then let the collector see what the measured code allocates, everything, or nothing."""
    gc.unfreeze()
    gc.enable()
    gc.collect()
    if mode == "frozen":
        gc.freeze()
    elif mode == "off":
        gc.disable()


class Cell(NamedTuple):
    """The figures of one pool and one prompt length, by side."""

    num_pages: int
    num_tokens: int
    figures: dict[str, dict[str, float]]


def run_pool(num_pages: int, with_vllm: bool, args: argparse.Namespace, rng: random.Random) -> Iterator[Cell]:
    """Yield the cells of one pool: the prompts that fit it beside a second one of their length."""
    sides: dict[str, Books] = {"ours": Ours(num_pages), "ours, page 32": Ours(num_pages, 32)}
    if with_vllm:
        sides["vllm"] = VLLM(num_pages)
    gc.disable()
    for books in sides.values():
        fill(books, num_pages, rng)
    prepare_gc(args.gc)
    for num_tokens in args.tokens:
        num_blocks = num_tokens // BLOCK_SIZE
        if num_blocks >= num_pages:
            continue
        # As many prompts in turn as fit the smallest pool: then only the pool's size differs between pools.
        # Until a prompt's turn comes, one new and one older prompt per round become more recent than it.
        num_warm = max(1, min(NUM_WARM_PROMPTS, (min(args.pages) - 1) // (2 * num_blocks)))
        yield Cell(num_pages, num_tokens, measure(sides, num_tokens, num_warm, args.rounds, rng))
    if num_pages == max(args.pages):
        spread(sides, num_pages, args, rng)


def spread(sides: dict[str, Books], num_pages: int, args: argparse.Namespace, rng: random.Random) -> None:
    """Print what it costs when the prompts in turn are too many for the processor's caches."""
    num_tokens = 8192
    num_warm = min(64, num_pages * BLOCK_SIZE // (2 * num_tokens))
    if num_warm > 1:
        print(
            f"\n{num_warm} prompts of {num_tokens:,} tokens in turn, so that their records are out of the caches:"
        )
        print_cell(Cell(num_pages, num_tokens, measure(sides, num_tokens, num_warm, args.rounds, rng)))


def print_head() -> None:
    print(
        f"{'pages':>10}{'tokens':>9}  {'ns per 16-token block':<24}"
        + "".join(f"{name:>14}" for name in COLUMNS)
    )


def print_cell(cell: Cell) -> None:
    """One line per side, then vLLM's cost over ours."""
    for name, figures in cell.figures.items():
        values = "".join(f"{figures[column]:>14.0f}" for column in COLUMNS)
        print(f"{cell.num_pages:>10,}{cell.num_tokens:>9,}  {name:<24}{values}")
    if "vllm" in cell.figures:
        ratios = "".join(f"{cell.figures['vllm'][c] / cell.figures['ours'][c]:>14.2f}" for c in COLUMNS)
        print(f"{'':>21}{'vllm ÷ ours':<24}{ratios}", flush=True)


def growth(cells: Sequence[Cell], side: str) -> tuple[float, str]:
    """Return the worst warm operation's cost in the largest pool over that in the smallest, and which it was."""
    by_size = {(cell.num_pages, cell.num_tokens): cell.figures[side] for cell in cells}
    small, large = min(cell.num_pages for cell in cells), max(cell.num_pages for cell in cells)
    return max(
        (
            by_size[large, num_tokens][name] / by_size[small, num_tokens][name],
            f"{name}, {num_tokens:,} tokens",
        )
        for num_pages, num_tokens in by_size
        if num_pages == small
        for name in (*WARM, "warm_total")
    )


def summary(cells: Sequence[Cell], side: str) -> dict[str, Any]:
    """Return one side's figures as `--json` prints them."""
    sizes = {cell.num_pages for cell in cells}
    num_pages = JSON_NUM_PAGES if JSON_NUM_PAGES in sizes else max(sizes)
    chosen = [cell for cell in cells if cell.num_pages == num_pages]
    figures: dict[str, Any] = {
        name: {str(cell.num_tokens): round(cell.figures[side][name], 1) for cell in chosen}
        for name in COLUMNS
    }
    return figures | {"pool_growth_ratio": round(growth(cells, side)[0], 3)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 8192, 131_072])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--gc", choices=("frozen", "off", "on"), default="frozen")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    version = vllm_version()
    print(
        f"Python {sys.version.split()[0]}, vLLM {version or 'absent'}, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
        f"garbage collector {args.gc}, median of {args.rounds} rounds"
    )
    print_head()
    rng = random.Random(args.seed)  # noqa: S311 - prompts, no secrets
    cells: list[Cell] = []
    for num_pages in sorted(args.pages):
        for cell in run_pool(num_pages, version is not None, args, rng):
            cells.append(cell)
            print_cell(cell)
    sides = ["ours", "vllm"] if version else ["ours"]
    print()
    for side in sides:
        ratio, which = growth(cells, side)
        print(f"{side}: largest pool ÷ smallest, worst of the warm operations: {ratio:.2f} ({which})")
    if args.json:
        ours = summary(cells, "ours")
        print(
            json.dumps(
                {"ours_ns_per_block": ours, "vllm_ns_per_block": summary(cells, "vllm") if version else None}
            )
        )


if __name__ == "__main__":
    main()
