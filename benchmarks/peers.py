"""Ours beside its peers: one client, the same prompts, the same weights, in turns; what is printed is ratios.

    python benchmarks/peers.py [--quick] [--rounds 3] [--only vllm,llamacpp] [--json FILE]
        [--vllm-python VENV/bin/python] [--vllm-model DIR] [--llamacpp-python VENV/bin/python] …

Peers are vLLM, llama.cpp (xllamacpp), OpenVINO GenAI (behind `genai_server.py`) and `transformers serve`. One that
cannot be imported by its Python, does not start or has no memory left for it is left out, and said so. All servers
that started stay alive, and one is asked at a time: in each round every workload (`peer_workloads.py`) gets fresh
prompts, and the servers get them in random order, each after a rest and a small request that is not recorded.
Ratios are taken within a round: peer ÷ ours for times, ours ÷ peer for throughput, so above 1 is in our favour.
Conversations are continued with each server's own replies, so there the prompts differ as the replies do.

vLLM and transformers read a Hugging Face folder: `--vllm-model`. It is made of the GGUF, once, with transformers:
`AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype="bfloat16")`, its weights loaded into a plain
model of the same config (without `quantization_config`), and `save_pretrained`; the same for `AutoTokenizer`.
`transformers serve` needs `pip install torch 'transformers[serving]'`; it reports no cached tokens.
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
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peer_servers import OURS, PEERS, Peer, make_peers, start_all, stop_all
from peer_workloads import QUICK, Figures, Sizes, Unit, workloads

from anaphora.bench.client import Client
from anaphora.bench.tokens import TokenCounter
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import AnaphoraError, TargetError

MAX_FAILURES = 3
REST_S = 3.0
"""Before each workload of each server: vLLM keeps the cores busy for about a second after its last answer, and
whoever was asked next would pay for it."""


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
    """Run all rounds; what a server fails is written down, and one that fails again and again is stopped."""
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
                    await get_ready(peer.client)
                    results.add(workload, peer.name, number, await run(unit, texts, sizes), unit)
                    peer.failures_in_a_row = 0
                except TargetError as error:
                    peer.failures_in_a_row += 1
                    results.failures.append(
                        {"server": peer.name, "workload": workload, "round": number + 1, "why": str(error)}
                    )
                    if peer.failures_in_a_row == MAX_FAILURES:
                        give_up(peer, number + 1, results)
        results.rounds_done = number + 1


async def get_ready(client: Client) -> None:
    """Let the machine come to rest, and wake the server by a request that is not recorded."""
    await asyncio.sleep(REST_S)
    await Unit(client).ask("Hello", 2)


def give_up(peer: Peer, round_number: int, results: Results) -> None:
    """Ask a server no more, and stop it, so that what it may still compute disturbs nobody."""
    why = f"failed {MAX_FAILURES} times in a row, and was stopped"
    results.failures.append({"server": peer.name, "workload": "all", "round": round_number, "why": why})
    peer.stop()
    if peer.name == OURS:
        raise TargetError(f"our own server {why}: there is nothing to compare with")


async def connect_and_measure(
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
    if not sums:
        return "–"
    known = [cached for cached, _ in sums if cached is not None]
    sent = sum(tokens for _, tokens in sums)
    return f"{sum(known):,} of {sent:,}" if len(known) == len(sums) else "not reported"


def facts_of(peers: Sequence[Peer], options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Return who was measured, on what, and with what."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.argv),
        "commit": _commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, used {options.cores}",
        "load_at_start": round(os.getloadavg()[0], 2),
        "seed": seed,
        "sizes": "quick" if options.quick else "full",
        "servers": servers_of(peers),
    }


def servers_of(peers: Sequence[Peer]) -> list[dict[str, Any]]:
    """Return what is known of each server."""
    return [
        {"name": p.name, "version": p.version, "weights": p.weights, "left_out": p.left_out} for p in peers
    ]


def _commit() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _names(text: str) -> list[str]:
    unknown = [name for name in text.split(",") if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)!r} is no peer; they are: {', '.join(PEERS)}")
    return text.split(",")


def _cores(text: str) -> list[int]:
    usable = sorted(os.sched_getaffinity(0))
    cores = [int(core) if core.isdigit() else -1 for core in text.split(",")]
    if not set(cores) <= set(usable):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of cores such as 0,1; usable are: {usable}")
    return cores


def _positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")
    return int(text)


def _writable(text: str) -> Path:
    """A file to be written in the end: better refused now than after an hour."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return path


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--rounds", type=_positive, default=3, metavar="N")
    parser.add_argument(
        "--only", type=_names, metavar="NAME,…", help=f"these peers, with commas between: {', '.join(PEERS)}"
    )
    parser.add_argument("--cores", type=_cores, metavar="N,…", help="default: the first two")
    parser.add_argument("--vllm-model", type=Path, metavar="DIR", help="the weights as a Hugging Face folder")
    for name in PEERS:
        parser.add_argument(f"--{name}-python", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--json", type=_writable, metavar="FILE")
    options = parser.parse_args(argv)
    options.cores = options.cores or sorted(os.sched_getaffinity(0))[:2]
    options.pythons = {name: getattr(options, f"{name}_python") for name in PEERS}
    return options


def main() -> int:
    """Start the servers, measure, stop them, and print what was found, also when broken off."""
    options = parse()
    os.sched_setaffinity(0, options.cores)  # what is started inherits it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seed, results, peers = secrets.randbits(32), Results(), list[Peer]()
    facts = facts_of(peers, options, seed)
    try:
        peers += make_peers(options, len(options.cores))
        with tempfile.TemporaryDirectory(prefix="peers-") as folder:
            start_all(peers, Path(folder), len(options.cores))
            asyncio.run(connect_and_measure(peers, options, results, seed))
    except KeyboardInterrupt:
        results.partial = "broken off by Ctrl-C"
    except AnaphoraError as error:
        results.partial = str(error)
    finally:
        stop_all(peers)
    facts |= {"servers": servers_of(peers), "rounds": results.rounds_done}
    report(facts, peers, results, options.json)
    return 1 if results.partial else 0


def report(facts: dict[str, Any], peers: Sequence[Peer], results: Results, path: Path | None) -> None:
    """Print all that was found, and write it as JSON where asked to."""
    for name in ("time", "command", "commit", "machine", "load_at_start", "seed", "sizes", "rounds"):
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
        values = [
            {
                "workload": key[0],
                "figure": key[1],
                "values": found,
                "ratios": {name: results.ratios(key, name) for name in found if name != OURS},
            }
            for key, found in results.values.items()
        ]
        rest = {"cached": results.cached, "failures": results.failures, "partial": results.partial}
        path.write_text(json.dumps(facts | {"values": values} | rest) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
