"""A server that is a function of its settings, and an event loop whose time passes only by waiting.

One word is one token. Nothing here opens a socket or reads a clock, so every figure of a test is exact.
"""

import asyncio
import json
import random
import re
import selectors
import signal
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from anaphora.bench.client import Client, open_http
from anaphora.bench.connect import connect
from anaphora.bench.experiment import Experiment
from anaphora.bench.measurement import Answer, CounterDelta, Log, Measurement, Phase, Prompt
from anaphora.bench.report import Report
from anaphora.bench.run import run_experiment
from anaphora.bench.session import Session
from anaphora.bench.target import Access, Target
from anaphora.bench.tokens import TokenCounter
from anaphora.bench.workloads import PromptMaker

T = TypeVar("T")

URL = "http://127.0.0.1:1"
ACCESS = Access(base_url=URL)
PREFILL_S, DECODE_S = 0.001, 0.01


class _Skip(selectors.DefaultSelector):
    """Never waits; the loop's time is moved on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits for everybody"
            self.now += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which a sleep takes no time and the clock shows exactly what was slept."""

    def __init__(self) -> None:
        self._skip = _Skip()
        super().__init__(self._skip)

    def time(self) -> float:
        return self._skip.now


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)


class _Stream(httpx.AsyncByteStream):
    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        self._frames = frames

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._frames


async def _drops() -> AsyncIterator[bytes]:
    while True:
        await asyncio.sleep(0.5)
        yield b" "


def frame(content: Any) -> bytes:
    return b"data: " + (content if isinstance(content, bytes) else json.dumps(content).encode()) + b"\n\n"


@dataclass
class FakeServer(httpx.AsyncBaseTransport):
    """Prefills PREFILL_S a token and decodes DECODE_S a token, one request at a time unless it coalesces.

    `reports` and `counts` are what usage and /metrics say of reuse: `truth`, `zero`, `all` (a lie), `nothing`;
    usage may also report only `hits`, and be silent where nothing was cached, as vLLM's is.
    `hangs_up` closes the connection after each stream without a word, `lingers_s` keeps it open after [DONE].
    A word is `per_word` tokens, `wait_s` is what every request takes besides, `late_s` is how long after a stream
    its tokens are counted. `pages` are paths that answer with something of their own.
    `trouble` maps the number of a generating request to what goes wrong with it.
    """

    caching: bool = True
    block_size: int = 16
    reports: str = "truth"
    counts: str = "truth"
    has_usage: bool = True
    tokenize: str | None = "vllm"
    apis: Sequence[str] = ("completions", "chat")
    models: Sequence[str] = ("tiny",)
    max_model_len: int | None = 8192
    refused: Sequence[str] = ()
    reset: tuple[int, Any] | None = (200, {"success": True})
    api_key: str | None = None
    gives_ids: bool = False
    splits_replies: bool = False
    slow: float = 1.0
    jitter_s: float = 0.0
    foreign_tokens: int = 0
    busy_reads: int = 0
    hangs_up: bool = False
    lingers_s: float = 0.0
    per_word: int = 1
    wait_s: float = 0.0
    late_s: float = 0.0
    in_one_piece: bool = False
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    drips: Sequence[str] = ()
    trouble: dict[int, str] = field(default_factory=dict)

    stored: set[tuple[int, ...]] = field(default_factory=set)
    vocabulary: dict[str, int] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    prompt_total: int = 0
    cached_total: int = 0
    has_hung_up: bool = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self.api_key and request.headers.get("authorization") != f"Bearer {self.api_key}":
            return httpx.Response(401, json={"error": {"message": "no key"}})
        path = request.url.path
        if self.has_hung_up:
            self.has_hung_up = False
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        if path in {*self.pages, *self.drips}:
            return self._own_page(path)
        if path == "/v1/models":
            data = [
                {"id": name, "owned_by": "fake", "max_model_len": self.max_model_len} for name in self.models
            ]
            return httpx.Response(200, json={"data": data})
        if path == "/version":
            return httpx.Response(200, json={"name": "fake", "version": "1.2"})
        if path == "/metrics" and self.counts != "nothing":
            return httpx.Response(200, text=self._metrics())
        if path == "/reset_prefix_cache" and self.reset:
            return httpx.Response(self.reset[0], json=self.reset[1])
        return await self._work(request, path)

    async def _work(self, request: httpx.Request, path: str) -> httpx.Response:
        body = json.loads(await request.aread() or b"{}")
        if path == "/tokenize" and self.tokenize:
            return self._tokens(body)
        for api, own in (("completions", "/v1/completions"), ("chat", "/v1/chat/completions")):
            if path == own and api in self.apis:
                return await self._generate(body, api)
        return httpx.Response(404, json={"error": {"message": f"no {path}"}})

    def _own_page(self, path: str) -> httpx.Response:
        if path in self.drips:
            return httpx.Response(200, stream=_Stream(_drops()))
        kind, text = self.pages[path]
        return httpx.Response(200, text=text, headers={"content-type": kind})

    def _metrics(self) -> str:
        cached = {"truth": self.cached_total, "zero": 0, "all": self.prompt_total}[self.counts]
        return (
            f'vllm:prefix_cache_queries_total{{engine="0"}} {self.prompt_total}\n'
            f'vllm:prefix_cache_hits_total{{engine="0"}} {cached}\n'
            f'vllm:cache_config_info{{block_size="{self.block_size}"}} 1\n'
            f"vllm:num_requests_running {self._running()}\n"
        )

    def _running(self) -> int:
        self.busy_reads -= 1
        return int(self.busy_reads >= 0)

    def _tokens(self, body: dict[str, Any]) -> httpx.Response:
        ids = self.ids_of(body | ({"prompt": body["content"]} if "content" in body else {}))
        if self.tokenize == "vllm" and "content" in body:
            return httpx.Response(400, json={"error": {"message": "no prompt"}})
        if self.tokenize == "llama.cpp" and "content" not in body:
            return httpx.Response(200, json={"tokens": []})
        return httpx.Response(200, json={"tokens": ids})

    def ids_of(self, body: dict[str, Any]) -> list[int]:
        """A chat is `<chat>`, the words of all messages, and `<reply>`."""
        if "messages" in body:
            text = " ".join(["<chat>", *(message["content"] for message in body["messages"]), "<reply>"])
        elif isinstance(body["prompt"], list):
            return body["prompt"]
        else:
            text = body["prompt"]
        return [
            self.vocabulary.setdefault(f"{word}{'+' * part}", len(self.vocabulary))
            for word in re.findall(r"\S+", text)
            for part in range(self.per_word)
        ]

    async def _generate(self, body: dict[str, Any], api: str) -> httpx.Response:
        if wrong := [name for name in self.refused if name in body]:
            return httpx.Response(400, json={"error": {"message": f"{wrong[0]} is not supported"}})
        ids = self.ids_of(body)
        self.bodies.append(body)
        trouble = self.trouble.get(len(self.bodies) - 1, "")
        if trouble == "down":
            raise httpx.ConnectError("refused")
        if trouble == "500":
            return httpx.Response(500, json={"error": {"message": "out of luck"}})
        if trouble == "html":
            return httpx.Response(200, text="<html>", headers={"content-type": "text/html"})
        if trouble == "ctrl-c":
            signal.raise_signal(signal.SIGINT)
        stream = _Stream(self._frames(body, ids, api, trouble))
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)

    def _look_up(self, ids: list[int]) -> int:
        size, found = self.block_size, 0
        while found + size < len(ids) and tuple(ids[: found + size]) in self.stored:
            found += size
        return found if self.caching else 0

    def _store(self, ids: list[int]) -> None:
        size = self.block_size
        self.stored |= {tuple(ids[:end]) for end in range(size, len(ids) + 1, size)}

    async def _frames(
        self, body: dict[str, Any], ids: list[int], api: str, trouble: str
    ) -> AsyncIterator[bytes]:
        cached = self._look_up(ids)
        counted = len(ids) + (self.foreign_tokens if len(self.bodies) > 1 else 0)
        if not self.late_s:
            self._count(counted, cached)
        self._store(ids)  # at once: who comes a moment later need not compute it again
        noise = random.Random(len(self.bodies)).uniform(0, self.jitter_s)
        await asyncio.sleep(self.wait_s + (len(ids) - cached) * PREFILL_S * self.slow + noise)
        if trouble == "hang":
            await asyncio.sleep(1e6)
        if trouble == "deep":
            yield frame(b"[" * 100_000)
        if trouble == "endless":
            while True:
                yield b": nothing yet".ljust(2**20) + b"\n"
        if trouble == "error frame":
            yield frame({"error": {"message": "lost the engine"}})
            return
        words = [
            f"{'y' if self.splits_replies else ' w'}{(sum(ids) + place) % 7}"
            for place in range(body["max_tokens"])
        ]
        out = [
            self.vocabulary.setdefault(
                f"<{word}>" if self.splits_replies else word.strip(), len(self.vocabulary)
            )
            for word in words
        ]
        for place, (word, token_id) in enumerate(zip(words, out, strict=True)):
            await asyncio.sleep(DECODE_S)
            if trouble == "cut" and place:
                return
            text = {"text": word} if api == "completions" else {"delta": {"content": word}}
            more = {"token_ids": [token_id]} if self.gives_ids and body.get("return_token_ids") else {}
            ending = "length" if place == len(words) - 1 else None
            if self.in_one_piece:
                if not ending:
                    continue
                text = {"text": "".join(words)}
            yield frame({"choices": [{"index": 0, **text, **more, "finish_reason": ending}]})
        self._store(ids + out[:-1])
        if self.has_usage and "stream_options" in body:
            yield frame({"choices": [], "usage": self._usage(len(ids), cached, len(out))})
        if self.late_s:
            asyncio.get_running_loop().call_later(self.late_s, self._count, counted, cached)
        if trouble != "no [DONE]":
            yield frame(b"[DONE]")
        await asyncio.sleep(self.lingers_s)
        self.has_hung_up = self.hangs_up

    def _count(self, prompt_tokens: int, cached: int) -> None:
        self.prompt_total += prompt_tokens
        self.cached_total += cached

    def _usage(self, prompt_tokens: int, cached: int, completion_tokens: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        words = {
            "truth": cached,
            "zero": 0,
            "all": prompt_tokens - 1,
            "nothing": None,
            "hits": cached or None,
        }
        said = words[self.reports]
        return usage if said is None else usage | {"prompt_tokens_details": {"cached_tokens": said}}


def bench(
    experiment: Experiment,
    server: httpx.AsyncBaseTransport,
    access: Access = ACCESS,
    *others: Access,
    seed: int = 1,
) -> Report:
    """Run an experiment against a fake server in virtual time."""
    return run_experiment(experiment, [access, *others], seed, run=run, transport=server)


def target(**facts: Any) -> Target:
    """Return the facts of some server."""
    known: dict[str, Any] = {
        "root": URL,
        "model": "tiny",
        "models": ("tiny",),
        "name": "fake",
        "version": None,
        "api": "completions",
        "extra": {},
        "block_size": 16,
    }
    return Target(**known | facts)


def measured(
    arm: str = "warm",
    number: int = 0,
    *,
    ttft_s: float | None = 0.1,
    cached: int | None = 0,
    counted: float | None = None,
    planned: int = 0,
    phase: Phase = "measure",
    axis: int = 0,
    **answer: Any,
) -> Measurement:
    """Return a request of 100 tokens with one of output."""
    said: dict[str, Any] = {
        "e2e_s": 0.2,
        "ttft_s": ttft_s,
        "prompt_tokens": 100,
        "completion_tokens": 1,
        "cached_tokens": cached,
    }
    return Measurement(
        arm=arm,
        number=number,
        phase=phase,
        prompt=Prompt(text="x", num_tokens=100),
        planned=planned,
        axis=axis,
        answer=Answer(**said | answer),
        counters=None if counted is None else CounterDelta(100, counted),
    )


async def session(server: FakeServer, access: Access = ACCESS, seed: int = 1) -> Session:
    """Return a session with a fake server, ready to send."""
    http = open_http(access, server)
    found = await connect(http, access)
    prompts = PromptMaker(TokenCounter(http, found), seed)
    await prompts.prepare()
    return Session(Client(http, found, access.timeout_s), prompts, Log(), lambda _done: None)
