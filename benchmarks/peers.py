"""Ours beside its peers: one client, the same prompts, the same weights, in turns; what is printed is ratios.

    python benchmarks/peers.py [--quick] [--rounds 3] [--only vllm,llamacpp] [--json FILE]
        [--vllm-python VENV/bin/python] [--vllm-model DIR] [--llamacpp-python VENV/bin/python] …

Peers are vLLM, llama.cpp (xllamacpp), OpenVINO GenAI (behind `genai_server.py`) and `transformers serve`. One that
cannot be imported by its Python, or does not start, is left out, and said so. All servers that started stay alive, and
one is asked at a time: in each round every workload gets fresh prompts, and the servers get them in random order.
Ratios are taken within a round: peer ÷ ours for times, ours ÷ peer for throughput, so above 1 is in our favour.
Conversations are continued with each server's own replies, so there the prompts differ as the replies do.

vLLM and transformers read a Hugging Face folder: `--vllm-model`. It is made of the GGUF, once, with transformers:
`AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype="bfloat16")`, its weights loaded into a plain
model of the same config (without `quantization_config`), and `save_pretrained`; the same for `AutoTokenizer`.
Client and servers share the same cores (`--cores`).
"""

import argparse
import asyncio
import json
import os
import platform
import random
import secrets
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peer_servers import OURS, Peer, make_peers

from anaphora.bench.client import Client
from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.tokens import TokenCounter
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import AnaphoraError, TargetError

MAX_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the workloads are, in tokens and numbers."""

    prompts: tuple[int, ...] = (1441, 5401)
    outputs: int = 64
    documents: int = 8
    document: int = 1024
    questions: int = 16
    turns: int = 10
    steps: int = 20
    head: int = 1200
    burst: int = 16
    batch: int = 16


QUICK = Sizes(prompts=(1441,), outputs=32, documents=4, document=512, questions=4, turns=5, steps=8, batch=8)

Texts = Sequence[str]
Figures = dict[str, float]


class Unit:
    """One workload on one server in one round: sends, and keeps what came back."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers: list[Answer] = []
        self.failure: str | None = None

    async def ask(self, text: str, max_tokens: int) -> Answer:
        """Send one text while nothing else runs."""
        await self._client.touch()
        return (await self._send([text], max_tokens))[0]

    async def burst(self, texts: Texts, max_tokens: int) -> float:
        """Send texts at one moment; return the seconds until the last was answered."""
        await self._client.touch(len(texts))
        started = time.perf_counter()
        await self._send(texts, max_tokens)
        return time.perf_counter() - started

    async def _send(self, texts: Texts, max_tokens: int) -> list[Answer]:
        prompts = [Prompt(text=text, num_tokens=0) for text in texts]
        answers = await asyncio.gather(*(self._client.complete(prompt, max_tokens) for prompt in prompts))
        self.answers += answers
        for answer in answers:
            why = answer.failure
            if why is None and answer.completion_tokens not in {None, max_tokens}:
                why = f"{answer.completion_tokens} instead of {max_tokens} output tokens"
            self.failure = self.failure or why
        if self.failure:
            raise TargetError(self.failure)
        return answers

    @property
    def cached(self) -> int | None:
        """The cached tokens of all answers, or None where none says."""
        known = [answer.cached_tokens for answer in self.answers if answer.cached_tokens is not None]
        return sum(known) if known else None


def first_ms(answer: Answer) -> float:
    """Return the time to the first token."""
    return (answer.ttft_s or answer.e2e_s) * 1e3


async def one_prompt(unit: Unit, texts: Texts, sizes: Sizes) -> Figures:
    """Cold, the same again twice, a never-seen one right after, then the first with many output tokens."""
    cold = await unit.ask(texts[0], 1)
    warm = [first_ms(await unit.ask(texts[0], 1)) for _ in range(3)]
    control = await unit.ask(texts[1], 1)
    long = await unit.ask(texts[0], sizes.outputs)
    figures = {"cold": first_ms(cold), "warm": statistics.median(warm), "control": first_ms(control)}
    return figures | {"inter-token": (long.tpot_s or 0.0) * 1e3}


async def each(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """One text after the other: the mean time of an answer of eight tokens, and the median first token."""
    answers = [await unit.ask(text, 8) for text in texts]
    first = statistics.median(map(first_ms, answers))
    return {"first token": first, "a request": statistics.mean(answer.e2e_s for answer in answers) * 1e3}


async def conversation(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """Each text is put behind all that was said: the whole time, and the first token of the later turns."""
    said, answers = "", list[Answer]()
    for text in texts:
        said += f"{text}\n"
        answers.append(await unit.ask(said, 24))
        said += f"{answers[-1].text}\n"
    later = statistics.median(map(first_ms, answers[1:]))
    return {"first token, 2nd and later": later, "in total": sum(answer.e2e_s for answer in answers) * 1e3}


async def identical(unit: Unit, texts: Texts, sizes: Sizes) -> Figures:
    """Many requests for one text at one moment."""
    seconds = await unit.burst(texts * sizes.burst, 8)
    return {
        "first token": statistics.median(map(first_ms, unit.answers)),
        "until the last": seconds * 1e3,
    }


async def batch(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """Never-seen texts at one moment: tokens per second, prompts and outputs together."""
    seconds = await unit.burst(texts, 32)
    tokens = sum((answer.prompt_tokens or 0) + (answer.completion_tokens or 0) for answer in unit.answers)
    return {"tokens/s": tokens / seconds}


Run = Callable[[Unit, Texts, Sizes], Awaitable[Figures]]


async def workloads(maker: PromptMaker, sizes: Sizes, rng: random.Random) -> list[tuple[str, Run, Texts]]:
    """Return the workloads of a round with new texts."""

    async def fresh(*lengths: int) -> list[str]:
        return [(await maker.fresh(length)).text for length in lengths]

    documents = await fresh(*[sizes.document] * sizes.documents)
    questions = [f"{text} {q}" for text in documents for q in await fresh(*[24] * sizes.questions)]
    rng.shuffle(questions)
    return [
        *[(f"prompt of {size:,}", one_prompt, await fresh(size, size)) for size in sizes.prompts],
        (f"RAG, {sizes.documents} × {sizes.questions}", each, questions),
        (f"multi-turn, {sizes.turns}", conversation, await fresh(*[96] * sizes.turns)),
        (f"agent, {sizes.steps} steps", conversation, await fresh(sizes.head, *[80] * (sizes.steps - 1))),
        (f"{sizes.burst} identical", identical, await fresh(600)),
        (f"{sizes.batch} different, no hits", batch, await fresh(*[512] * sizes.batch)),
    ]


@dataclass(slots=True)
class Results:
    """Every value by workload, figure and server, by round; what was cached; what failed."""

    values: dict[tuple[str, str], dict[str, dict[int, float]]] = field(default_factory=dict)
    cached: dict[str, dict[str, list[tuple[int | None, int]]]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    rounds_done: int = 0
    partial: str | None = None

    def add(self, workload: str, server: str, number: int, figures: Figures, unit: Unit) -> None:
        """Write down what came of a workload."""
        for name, value in figures.items():
            self.values.setdefault((workload, name), {}).setdefault(server, {})[number] = value
        prompt_tokens = sum(answer.prompt_tokens or 0 for answer in unit.answers)
        self.cached.setdefault(workload, {}).setdefault(server, []).append((unit.cached, prompt_tokens))

    def ratios(self, key: tuple[str, str], peer: str) -> list[float]:
        """Return the ratio of each round that both finished, above 1 in our favour."""
        ours, theirs = (self.values[key].get(name, {}) for name in (OURS, peer))
        pairs = [(ours[number], theirs[number]) for number in sorted(ours.keys() & theirs.keys())]
        is_rate = key[1].endswith("/s")
        return [(a / b if is_rate else b / a) for a, b in pairs if a and b]


async def measure(peers: Sequence[Peer], options: argparse.Namespace, results: Results, seed: int) -> None:
    """Run all rounds; what a server fails is written down, and one that fails again and again is asked no more."""
    rng, sizes = random.Random(seed), QUICK if options.quick else Sizes()  # noqa: S311 - an order, no secret
    ours = next(peer for peer in peers if peer.name == OURS).client
    assert ours is not None
    maker = PromptMaker(TokenCounter(ours.http, ours.target), seed)
    await maker.prepare()
    for number in range(options.rounds):
        for workload, run, texts in await workloads(maker, sizes, rng):
            for peer in rng.sample(peers, len(peers)):
                if peer.client is None or peer.failures_in_a_row >= MAX_FAILURES:
                    continue
                print(f"round {number + 1}: {workload}: {peer.name} ", end="\r", file=sys.stderr, flush=True)
                unit = Unit(peer.client)
                try:
                    results.add(workload, peer.name, number, await run(unit, texts, sizes), unit)
                    peer.failures_in_a_row = 0
                except TargetError as error:
                    peer.failures_in_a_row += 1
                    results.failures.append(
                        {"server": peer.name, "workload": workload, "round": number + 1, "why": str(error)}
                    )
        results.rounds_done = number + 1


async def start_and_measure(
    peers: Sequence[Peer], options: argparse.Namespace, results: Results, seed: int
) -> None:
    """Wait for the servers, one after the other, and measure those that came."""
    for peer in peers:
        if not peer.left_out:
            await peer.connect()
            print(f"{peer.name}: {peer.left_out or 'ready'}", file=sys.stderr)
    if peers[0].left_out:
        raise TargetError(f"our own server is not there: {peers[0].left_out}")
    await measure(peers, options, results, seed)


def show(peers: Sequence[Peer], results: Results) -> None:
    """Print a table: ours, and of each peer its median, and the median and range of the rounds' ratios."""
    names = [peer.name for peer in peers if not peer.left_out]
    print("| workload | figure | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 2) + "|")
    for (workload, figure), found in results.values.items():
        cells = [_cell(results, (workload, figure), name, found.get(name, {})) for name in names]
        unit = figure if figure.endswith("/s") else f"{figure}, ms"
        print(f"| {workload} | {unit} | " + " | ".join(cells) + " |")
    for workload, by_server in results.cached.items():
        print(
            f"| {workload} | cached tokens | "
            + " | ".join(_cached(by_server.get(n, [])) for n in names)
            + " |"
        )
    for failure in results.failures:
        print("failed: {server}, {workload}, round {round}: {why}".format(**failure))


def _cell(results: Results, key: tuple[str, str], name: str, values: dict[int, float]) -> str:
    if not values:
        return (
            "failed"
            if any(f["server"] == name and f["workload"] == key[0] for f in results.failures)
            else "–"
        )
    middle = f"{statistics.median(values.values()):,.1f}"
    ratios = [] if name == OURS else results.ratios(key, name)
    if not ratios:
        return middle
    return f"{middle} (× {statistics.median(ratios):.2f}, {min(ratios):.2f}–{max(ratios):.2f})"


def _cached(sums: Sequence[tuple[int | None, int]]) -> str:
    known = [cached for cached, _ in sums if cached is not None]
    sent = sum(tokens for _, tokens in sums)
    return f"{sum(known):,} of {sent:,}" if known and len(known) == len(sums) else "not reported"


def facts_of(peers: Sequence[Peer], options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return who was measured, on what, and with what."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, used {options.cores}",
        "load_at_start": os.getloadavg()[0],
        "seed": seed,
        "sizes": "quick" if options.quick else "full",
        "servers": [
            {"name": p.name, "version": p.version, "weights": p.weights, "left_out": p.left_out}
            for p in peers
        ],
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), help="these peers, with commas between")
    parser.add_argument(
        "--cores", type=lambda text: [int(c) for c in text.split(",")], help="default: the first two"
    )
    parser.add_argument("--vllm-model", type=Path, metavar="DIR", help="the weights as a Hugging Face folder")
    for name in ("vllm", "llamacpp", "genai", "transformers"):
        parser.add_argument(f"--{name}-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    options.cores = options.cores or sorted(os.sched_getaffinity(0))[:2]
    options.pythons = {
        name: getattr(options, f"{name}_python") for name in ("vllm", "llamacpp", "genai", "transformers")
    }
    return options


def main() -> int:
    """Start the servers, measure, stop them, and print what was found, also when broken off."""
    options = parse()
    os.sched_setaffinity(0, options.cores)  # what is started inherits it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed, results = secrets.randbits(32), Results()
    peers = make_peers(options, len(options.cores))
    facts = facts_of(peers, options, seed)
    try:
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            for peer in peers:
                if not peer.left_out:
                    peer.find()
                if not peer.left_out:
                    peer.start(Path(folder), len(options.cores))
            asyncio.run(start_and_measure(peers, options, results, seed))
    except KeyboardInterrupt:
        results.partial = "broken off by Ctrl-C"
    except AnaphoraError as error:
        results.partial = str(error)
    finally:
        for peer in peers:
            peer.stop()
    facts |= {"servers": facts_of(peers, options, seed)["servers"], "rounds": results.rounds_done}
    report(facts, peers, results, options.json)
    return 1 if results.partial else 0


def report(facts: dict[str, Any], peers: Sequence[Peer], results: Results, path: Path | None) -> None:
    """Print all that was found, and write it as JSON where asked to."""
    for name in ("time", "machine", "load_at_start", "seed", "sizes", "rounds"):
        print(f"{name.replace('_', ' ')}: {facts[name]}")
    for peer in peers:
        print(
            f"{peer.name}: left out: {peer.left_out}"
            if peer.left_out
            else f"{peer.name} {peer.version}: {peer.weights}"
        )
    show(peers, results)
    if results.partial:
        print(f"partial: {results.partial}")
    if path:
        values = [{"workload": w, "figure": f, "values": found} for (w, f), found in results.values.items()]
        rest = {"cached": results.cached, "failures": results.failures, "partial": results.partial}
        path.write_text(json.dumps(facts | {"values": values} | rest) + "\n")


if __name__ == "__main__":
    sys.exit(main())
