"""The equality law on fifty prompts: the same tokens, and the same logits of the first token, in every way to run.

    python benchmarks/equality.py [--dtype bfloat16] [--prompts 50] [--most 3000] [--outputs 24]

Each prompt is run cold and alone, warm and alone, warm among seven neighbours, with a token budget of 64, and,
under exact reuse, with so few pages that preemption happens. Exits with 2 if anything differs.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from anaphora.assemble import Engine
from tests.equality.support import Bench, Text

NUM_NEIGHBOURS = 8


def make_prompts(count: int, most: int, rng: random.Random) -> list[list[int]]:
    """Return prompts of 20 to `most` tokens; every other one begins like one before it."""
    lengths = sorted(round(20 * (most / 20) ** (number / (count - 1))) for number in range(count))
    prompts: list[list[int]] = []
    for number, length in enumerate(lengths):
        head = prompts[rng.randrange(number)][: length // 2] if number % 2 else []
        prompts.append(head + [rng.randrange(100, 40_000) for _ in range(length - len(head))])
    return prompts


def in_groups(
    bench: Bench, engine: Engine, prompts: Sequence[list[int]], num_outputs: int, size: int
) -> list[Text]:
    """Run prompts in groups."""
    texts: list[Text] = []
    for start in range(0, len(prompts), size):
        texts += bench.run(engine, prompts[start : start + size], num_outputs)
    return texts


def count_differences(texts: Sequence[Text], expected: Sequence[Text]) -> dict[str, int]:
    """Return how many prompts gave other tokens, and how many other logits."""
    pairs = list(zip(texts, expected, strict=True))
    return {
        "tokens": sum(one.token_ids != other.token_ids for one, other in pairs),
        "logits": sum(not np.array_equal(one.logits, other.logits) for one, other in pairs),
    }


def main() -> int:
    """Run every way, print a row each and one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--most", type=int, default=3000)
    parser.add_argument("--outputs", type=int, default=24)
    options = parser.parse_args()
    bench = Bench(options.dtype, num_pages=2_500)  # all prompts stay cached
    prompts = make_prompts(options.prompts, options.most, random.Random(1))  # noqa: S311 - words, not secrets
    num = options.outputs
    expected = [bench.run(bench.engine(), [prompt], num)[0] for prompt in prompts]
    warm = bench.engine()
    bench.run_each(warm, prompts, num)
    num_pages = 3 * -(-(options.most + num) // 32) // 2
    tight = bench.engine(
        num_pages=num_pages, exact_reuse=True, scheduler_reserve_full_isl=False, max_num_seqs=16
    )
    narrow = bench.engine(max_num_batched_tokens=64, max_num_seqs=16)
    ways: dict[str, Callable[[], list[Text]]] = {
        "warm, alone": lambda: bench.run_each(warm, prompts, num),
        "warm, among 7": lambda: in_groups(bench, warm, prompts, num, NUM_NEIGHBOURS),
        "cold, budget of 64": lambda: in_groups(bench, narrow, prompts, num, 16),
        "warm, budget of 64": lambda: in_groups(bench, narrow, prompts, num, 16),
        "preempted, exact": lambda: in_groups(bench, tight, prompts, num, 16),
    }
    result: dict[str, dict[str, int]] = {}
    for way, run in ways.items():
        started = time.perf_counter()
        texts = run()
        result[way] = {
            **count_differences(texts, expected),
            "cached": sum(text.cached_tokens for text in texts),
        }
        print(f"{way:>20}  {result[way]}  {time.perf_counter() - started:.0f} s", flush=True)
    num_preemptions = tight.metrics.snapshot().num_preemptions
    print(
        json.dumps(
            {"dtype": options.dtype, "prompts": len(prompts), "preemptions": num_preemptions, "ways": result}
        )
    )
    is_equal = not any(row["tokens"] or row["logits"] for row in result.values()) and num_preemptions > 0
    return 0 if is_equal else 2


if __name__ == "__main__":
    sys.exit(main())
