"""What prefix caching costs when nothing is ever hit: throughput with caching on ÷ off, on the real model.

    python benchmarks/overhead.py [--rounds 12] [--prompts 8] [--tokens 512] [--max-tokens 16] [--json]

Two engines with the same settings but for the cache live in this process and get the same prompts in turns, in
random order within each round. Every prompt is new from its first token on, and of a length that fills its
blocks. A prompt token found in the cache stops the run, and so does an output that differs. `ratio` is the
median of the rounds' ratios, since a round's two halves see much the same machine; `cpu_ratio` is that of the
processor time of all threads, which is steadier where other work runs beside.

`--json` prints one line last.
"""

import argparse
import gc
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from anaphora import LLM, SamplingParams

ARMS = ("on", "off")


def make_llm(arm: str, args: argparse.Namespace) -> LLM:
    """Load the demo model with room for two rounds' prompts, so that later rounds evict."""
    num_tokens = args.tokens + args.max_tokens
    num_pages = 2 * args.prompts * -(-num_tokens // 32) + 1
    return LLM(
        enable_prefix_caching=arm == "on",
        num_pages=num_pages,
        max_model_len=num_tokens,
        max_num_seqs=args.prompts,
    )


class Run(NamedTuple):
    """Tokens per second, prompts and outputs together, by the wall's clock and by that of all threads."""

    tokens_per_s: float
    tokens_per_cpu_s: float
    outputs: list[tuple[int, ...]]


def run(llm: LLM, prompts: Sequence[Sequence[int]], params: SamplingParams) -> Run:
    start, start_cpu = time.perf_counter(), time.process_time()
    completions = llm.generate(prompts, params)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    assert not any(completion.cached_tokens for completion in completions), "a never-seen prompt was found"
    outputs = [completion.token_ids for completion in completions]
    num_tokens = sum(map(len, prompts)) + sum(map(len, outputs))
    return Run(num_tokens / seconds, num_tokens / cpu_seconds, outputs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--max-tokens", type=int, default=16)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)  # noqa: S311 - prompts, no secrets
    params = SamplingParams(max_tokens=args.max_tokens, temperature=0.0, ignore_eos=True)
    llms = {arm: make_llm(arm, args) for arm in ARMS}
    vocab_size = llms["on"].engine.model.tokenizer.vocab_size
    gc.collect()
    gc.freeze()
    print(
        f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, "
        f"{args.rounds} rounds of {args.prompts} prompts of {args.tokens:,} tokens, {args.max_tokens} tokens each"
    )
    runs: dict[str, list[Run]] = {arm: [] for arm in ARMS}
    for number in range(args.rounds + 1):
        prompts = [[rng.randrange(vocab_size) for _ in range(args.tokens)] for _ in range(args.prompts)]
        results = {arm: run(llms[arm], prompts, params) for arm in rng.sample(ARMS, len(ARMS))}
        assert results["on"].outputs == results["off"].outputs, "the outputs differ"
        if number:  # the first run of a shape compiles
            for arm in ARMS:
                runs[arm].append(results[arm])
    for arm in ARMS:
        values = [result.tokens_per_s for result in runs[arm]]
        print(
            f"caching {arm:<4} median {statistics.median(values):9.1f} tokens/s"
            f"   min {min(values):9.1f}   max {max(values):9.1f}"
        )
    ratios = [on.tokens_per_s / off.tokens_per_s for on, off in zip(runs["on"], runs["off"], strict=True)]
    cpu_ratios = [
        on.tokens_per_cpu_s / off.tokens_per_cpu_s for on, off in zip(runs["on"], runs["off"], strict=True)
    ]
    for name, values in (("wall clock", ratios), ("CPU time", cpu_ratios)):
        low, median, high = statistics.quantiles(values, n=4)
        print(
            f"on ÷ off by {name:<10} median {median:.4f}   half of the rounds between {low:.4f} and {high:.4f}"
        )
    if args.json:
        ratio, cpu_ratio = statistics.median(ratios), statistics.median(cpu_ratios)
        print(json.dumps({"ratio": round(ratio, 4), "cpu_ratio": round(cpu_ratio, 4), "rounds": args.rounds}))


if __name__ == "__main__":
    main()
