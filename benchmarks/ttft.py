"""Warm time to first token over HTTP against the raw runner call for the uncached suffix, in one run.

    python benchmarks/ttft.py [--tokens 5401] [--rounds 15] [--json FILE]

The floor is `OpenVINORunner.run` for the tokens that a warm request still has to compute, on K/V that exist,
in this process; the server runs in another one. Both are measured in turns, and medians are compared.
Time to first token ends at the first content byte of the stream. A cold request with a never-seen beginning
is measured in each round as well, and a control right after the warm one.
"""

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anaphora.assemble import LoadedModel, load_model
from anaphora.config import EngineConfig
from anaphora.ids import PageId, RequestId
from anaphora.request import SamplingParams
from anaphora.scheduler.plan import SampleSpec, ScheduledChunk, StepPlan

GREEDY = SamplingParams(max_tokens=1, temperature=0.0)
WORDS = ("system", "memory", "block", "page", "cache", "token", "prompt", "model", "river", "stone", "cloud")


def make_text(model: LoadedModel, num_tokens: int, rng: random.Random) -> str:
    """Return a text of exactly that many tokens whose very first block is new."""
    words = [f"{rng.randrange(10**9)}", *(rng.choice(WORDS) for _ in range(num_tokens))]
    low, high = 1, len(words)
    while low < high:
        middle = (low + high) // 2
        if len(model.tokenizer.encode(" ".join(words[:middle]))) < num_tokens:
            low = middle + 1
        else:
            high = middle
    text = " ".join(words[: low - 1])
    while len(model.tokenizer.encode(text)) < num_tokens:
        text += "."
    return text


class Floor:
    """The raw call: the runner alone, on one sequence whose prefix is stored."""

    def __init__(self, model: LoadedModel, token_ids: Sequence[int], num_cached: int) -> None:
        self._model = model
        self._token_ids = list(token_ids)
        self._num_cached = num_cached
        pages = -(-len(token_ids) // model.runner.layout.page_size)
        self._table = [PageId(page) for page in range(1, pages + 1)]
        self._run(0, num_cached)

    def _run(self, start: int, end: int) -> float:
        spec = SampleSpec(RequestId("floor"), GREEDY, 0, self._token_ids, len(self._token_ids))
        chunk = ScheduledChunk(
            RequestId("floor"), self._token_ids[start:end], start, self._table, False, (spec,)
        )
        started = time.perf_counter()
        self._model.runner.run(StepPlan(1, (chunk,)))
        return time.perf_counter() - started

    def measure(self) -> float:
        """Return the seconds of one warm call."""
        return self._run(self._num_cached, len(self._token_ids))


class Client:
    """Streams completions, each over a connection that was opened before the clock starts."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ttft(self, text: str) -> tuple[float, int]:
        """Return the seconds to the first content byte, and the cached tokens."""
        body = {
            "prompt": text,
            "max_tokens": 1,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        payload = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.connect()
        started = time.perf_counter()
        connection.request("POST", "/v1/completions", payload, {"Content-Type": "application/json"})
        response = connection.getresponse()
        first, cached = 0.0, -1
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter() - started
            frame = json.loads(line[6:])
            if frame.get("usage"):
                cached = frame["usage"]["prompt_tokens_details"]["cached_tokens"]
        connection.close()
        return first, cached


def start_server(args: Sequence[str]) -> tuple[subprocess.Popen[str], int]:
    """Start `anaphora serve` on a free port and wait until it answers."""
    command = [
        sys.executable,
        "-m",
        "anaphora",
        "serve",
        "--port",
        "0",
        "--json",
        "--num-pages",
        "900",
        *args,
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert server.stdout is not None
    facts = json.loads(server.stdout.readline())
    return server, int(facts["url"].rpartition(":")[2])


def measure(num_tokens: int, rounds: int, args: Sequence[str]) -> dict[str, Any]:
    """Return the samples in milliseconds, by arm."""
    model = load_model(EngineConfig.from_mapping({"num_pages": 300}))
    rng = random.Random()  # noqa: S311 - words, not secrets
    server, port = start_server(args)
    samples: dict[str, list[float]] = {"floor": [], "warm": [], "cold": [], "control": []}
    try:
        client = Client(port)
        text = make_text(model, num_tokens, rng)
        client.ttft(text)
        _, cached = client.ttft(text)
        floor = Floor(model, model.tokenizer.encode(text), cached)
        for _ in range(rounds):
            arms = ["floor", "warm", "cold"]
            rng.shuffle(arms)
            for arm in arms:
                if arm == "floor":
                    floor.measure()  # the first call after another process ran is slower
                    samples[arm].append(floor.measure() * 1e3)
                elif arm == "warm":
                    client.ttft(text)
                    samples[arm].append(client.ttft(text)[0] * 1e3)
                    if len(samples["control"]) < 3:
                        samples["control"].append(client.ttft(make_text(model, num_tokens, rng))[0] * 1e3)
                elif len(samples["cold"]) < 3:
                    samples[arm].append(client.ttft(make_text(model, num_tokens, rng))[0] * 1e3)
    finally:
        server.terminate()
        server.wait()
    return {"tokens": num_tokens, "cached_tokens": cached, "samples_ms": samples}


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=5401)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options, args = parser.parse_known_args()
    result = measure(options.tokens, options.rounds, args)
    medians = {arm: statistics.median(values) for arm, values in result["samples_ms"].items()}
    for arm, values in result["samples_ms"].items():
        span = f"min {min(values):8.2f}   max {max(values):8.2f}   n {len(values)}"
        print(f"{arm:>8}  median {medians[arm]:8.2f} ms   {span}")
    result["warm_over_floor"] = medians["warm"] / medians["floor"]
    result["cold_over_warm"] = medians["cold"] / medians["warm"]
    suffix = result["tokens"] - result["cached_tokens"]
    print(f"prompt {result['tokens']} tokens, {result['cached_tokens']} cached, {suffix} computed when warm")
    print(
        f"warm over HTTP / raw call: {result['warm_over_floor']:.3f}   cold / warm: {result['cold_over_warm']:.1f}"
    )
    line = json.dumps(result)
    print(line)
    if options.json:
        options.json.write_text(line + "\n")


if __name__ == "__main__":
    main()
