"""What verdicts cost when nothing is ever hit: throughput over HTTP with explanations on ÷ off, on the real model.

    python benchmarks/explain_overhead.py [--rounds 10] [--requests 8] [--words 600] [--json]

Two servers with the same settings but for `--explain-requests` run side by side and get the same chats in turns,
in random order within each round. Every chat begins with a clock and goes on with a text that was sent before, so
that nothing is hit and every verdict has the most to compare: its nearest relative shares almost all of it. A token
found in the cache stops the run. `ratio` is the median of the rounds' ratios of tokens per second, `cpu_ratio` that
of tokens per second of each server's own processor time.

`--json` prints one line last.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ARMS = {"on": [], "off": ["--explain-requests", "0"]}
_TICKS = os.sysconf("SC_CLK_TCK")


class Arm(NamedTuple):
    """A server and a client of it."""

    process: subprocess.Popen[str]
    http: httpx.Client

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def start(flags: list[str]) -> Arm:
    command = [sys.executable, "-m", "anaphora", "serve", "--port", "0", "--json", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    return Arm(process, httpx.Client(base_url=facts["url"], timeout=600))


def chats(rng: random.Random, texts: list[str], number: int) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "system", "content": f"{rng.random()} is the time. {text}"},
                {"role": "user", "content": f"Question {number}: what is this about?"},
            ],
            "max_tokens": 8,
            "temperature": 0,
            "ignore_eos": True,
        }
        for text in texts
    ]


def run(arm: Arm, bodies: list[dict[str, Any]]) -> tuple[float, float]:
    def send(body: dict[str, Any]) -> int:
        usage = arm.http.post("/v1/chat/completions", json=body).raise_for_status().json()["usage"]
        assert not usage["prompt_tokens_details"]["cached_tokens"], "a never-seen prompt was found"
        return int(usage["total_tokens"])

    begin, begin_cpu = time.perf_counter(), arm.cpu_s()
    with ThreadPoolExecutor(len(bodies)) as pool:
        num_tokens = sum(pool.map(send, bodies))
    return num_tokens / (time.perf_counter() - begin), num_tokens / (arm.cpu_s() - begin_cpu)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--words", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)  # noqa: S311 - prompts, no secrets
    words = (
        "harbour",
        "ship",
        "captain",
        "key",
        "lighthouse",
        "morning",
        "water",
        "stone",
        "bread",
        "window",
    )
    texts = [" ".join(rng.choices(words, k=args.words)) for _ in range(args.requests)]
    arms = {name: start(flags) for name, flags in ARMS.items()}
    try:
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
        for number in range(args.rounds + 1):
            bodies = chats(rng, texts, number)
            for name in rng.sample(list(arms), len(arms)):
                found = run(arms[name], bodies)
                if number:  # the first round warms up
                    rates[name].append(found)
        pairs = list(zip(rates["on"], rates["off"], strict=True))
        ratio = statistics.median(on[0] / off[0] for on, off in pairs)
        cpu_ratio = statistics.median(on[1] / off[1] for on, off in pairs)
        causes = arms["on"].http.get("/v1/cache/requests", params={"limit": 1}).json()["data"][0]["cause"]
        result = {"ratio": round(ratio, 4), "cpu_ratio": round(cpu_ratio, 4), "rounds": args.rounds}
        rate = statistics.median(off[0] for off in rates["off"])
        print(f"{rate:,.0f} tokens/s off; on ÷ off: {ratio:.4f}, by processor time {cpu_ratio:.4f}; {causes}")
        if args.json:
            print(json.dumps(result))
    finally:
        for arm in arms.values():
            arm.process.terminate()
        for arm in arms.values():
            arm.process.wait()


if __name__ == "__main__":
    main()
