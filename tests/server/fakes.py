"""An engine without a model, a tokenizer of bytes, and ways to call the server."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import httpx
from starlette.applications import Starlette

from anaphora.config import ServerConfig
from anaphora.engine.protocols import GenerateInput
from anaphora.errors import InvalidRequestError
from anaphora.ids import TokenId
from anaphora.models.spans import SpanMap
from anaphora.request import FinishReason, RequestOutput, TokenLogprob, TokenLogprobs, Usage
from anaphora.scheduler.probe import Probe
from anaphora.server.app import create_app
from anaphora.server.serve import GRACE_S, Server, bind

MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
WAIT_S = 10.0
"""How long a test waits for what should happen at once."""


class ByteTokenizer:
    """One token per byte, and two for markup."""

    BOS, EOS = 256, 257
    MARKUP: ClassVar = {BOS: b"<bos>", EOS: b"<eos>"}

    vocab_size = 258
    eos_token_ids = frozenset({EOS})
    special_token_ids = frozenset({BOS, EOS})

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        return [self.BOS] * add_special_tokens + list(text.encode())

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        kept = [i for i in token_ids if not (skip_special_tokens and i in self.MARKUP)]
        return b"".join(map(self.token_bytes, kept)).decode(errors="replace")

    def token_bytes(self, token_id: TokenId) -> bytes:
        return self.MARKUP.get(token_id) or bytes([token_id])


class FakeRenderer:
    """A chat template: `<tool>name` for each tool, `<role>content` for each message, and `<assistant>` at the end."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> tuple[Sequence[TokenId], SpanMap | None]:
        if any(message["content"] == "refuse me" for message in messages):
            raise InvalidRequestError("the template refuses this; say something else", param="messages")
        text = "".join(f"<tool>{tool['function']['name']}" for tool in tools or ())
        text += "".join(f"<{message['role']}>{_text(message['content'])}" for message in messages)
        return list((text + "<assistant>" * add_generation_prompt).encode()), SpanMap(())


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content or ())


@dataclass
class Say:
    """What the engine does with one request: texts by step, and at some step a failure or an endless wait.

    `tokens` are those of the steps and `logprobs` those of all tokens of each sequence, both from the start again.
    """

    texts: Sequence[str] = ("Hello", ", ", "world")
    fail_at: int | None = None
    error: Exception | None = None
    wait_at: int | None = None
    finish_reason: FinishReason = FinishReason.STOP
    stop_reason: int | str | None = None
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    pinned_tokens: int | None = None
    tokens: Sequence[TokenId] = tuple(range(65, 91))
    logprobs: Sequence[float] = (-1.0,)


def logprobs_of(token_id: TokenId, logprob: float, num_top: int) -> TokenLogprobs:
    """Return what is said of a token: it ranks third, and the likeliest are "a", "b", "c" …"""
    top = tuple(TokenLogprob(97 + place, -0.25 * (place + 1)) for place in range(num_top))
    return TokenLogprobs(token_id, logprob, 3, top)


class FakeEngine:
    """An EngineClient that says what it is told to, and records how each request ended."""

    def __init__(
        self, script: Callable[[GenerateInput], Say] | Say | None = None, max_model_len: int = 200
    ) -> None:
        self._script = script or Say()
        self._max_model_len = max_model_len
        self.failure: str | None = None
        self.can_reset = True
        self.resets: list[bool] = []
        self.probes: list[tuple[bytes, bytes | None, str | None]] = []
        self.requests: list[GenerateInput] = []
        self.finished: list[str] = []
        self.aborted: list[str] = []
        self.has_reached_wait = threading.Event()
        self.has_aborted = threading.Event()
        self.num_finished = threading.Semaphore(0)

    @property
    def tokenizer(self) -> ByteTokenizer:
        return ByteTokenizer()

    @property
    def max_pinnable_tokens(self) -> int:
        return 100

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    def _say(self, request: GenerateInput) -> Say:
        return self._script if isinstance(self._script, Say) else self._script(request)

    async def generate(self, request: GenerateInput) -> AsyncGenerator[RequestOutput, None]:
        self.requests.append(request)
        say = self._say(request)
        try:
            for step in range(len(say.texts) + 1):
                if step == say.wait_at:
                    self.has_reached_wait.set()
                    await asyncio.Event().wait()
                if step == say.fail_at:
                    raise say.error or RuntimeError("a secret of the engine")
                for index in range(request.params.n if step < len(say.texts) else 0):
                    yield self._output(request, say, step, index)
                await asyncio.sleep(0)  # as if a step of the engine lay between
            self.finished.append(request.request_id)
            self.num_finished.release()
        finally:
            if request.request_id not in self.finished:
                self.aborted.append(request.request_id)
                self.has_aborted.set()

    def _output(self, request: GenerateInput, say: Say, step: int, index: int) -> RequestOutput:
        is_last = step == len(say.texts) - 1
        num_prompt_tokens = len(request.prompt_token_ids)
        params, token_id = request.params, say.tokens[step % len(say.tokens)]
        return RequestOutput(
            request_id=request.request_id,
            token_ids=(token_id,),
            text=say.texts[step],
            usage=Usage(num_prompt_tokens, say.cached_tokens, say.cache_write_tokens, step + 1),
            finish_reason=say.finish_reason if is_last else None,
            stop_reason=say.stop_reason if is_last else None,
            index=index,
            pinned_tokens=say.pinned_tokens,
            logprobs=()
            if params.logprobs is None
            else (logprobs_of(token_id, say.logprobs[index % len(say.logprobs)], params.logprobs),),
            prompt_logprobs=None
            if params.prompt_logprobs is None or step
            else tuple(
                logprobs_of(prompt_token_id, -2.0, params.prompt_logprobs)
                for prompt_token_id in request.prompt_token_ids[1:]
            ),
        )

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        self.resets.append(reset_running_requests)
        return self.can_reset or reset_running_requests

    async def probe(
        self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None
    ) -> Probe:
        self.probes.append((bytes(token_ids), tenant_salt, cache_salt))
        return Probe(cached_tokens=1, best_possible_reuse=len(token_ids) - 1, block_size=1)

    def metrics_text(self) -> str:
        return "# TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total 0\n"


def make_app(
    engine: FakeEngine | None = None, config: ServerConfig | None = None, **options: Any
) -> Starlette:
    """Return an app over a fake engine."""
    options = dict[str, Any](served_models=[MODEL, "small"], renderer=FakeRenderer()) | options
    return create_app(engine or FakeEngine(), config or ServerConfig(), **options)


def call(app: Starlette, method: str, path: str, **options: Any) -> httpx.Response:
    """Send one request to an app without a socket."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


def complete(app: Starlette, **body: Any) -> httpx.Response:
    """Send a completion."""
    return call(app, "POST", "/v1/completions", json={"prompt": "hi", "add_special_tokens": False} | body)


def chat(app: Starlette, **body: Any) -> httpx.Response:
    """Send a chat completion."""
    return call(
        app, "POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": "hi"}]} | body
    )


def events(response: httpx.Response) -> list[Any]:
    """Return the events of a stream, the last being "[DONE]" if it was sent."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    datas = [frame.removeprefix("data: ") for frame in frames]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


@dataclass
class Live:
    """A server on a free loopback port."""

    port: int
    server: Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def live(app: Starlette, grace_s: float = GRACE_S) -> Iterator[Live]:
    """Serve an app by a real uvicorn in a thread."""
    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    is_ready = threading.Event()
    server = Server(app, is_ready.set, grace_s)
    thread = threading.Thread(target=server.run, args=([sock],))
    thread.start()
    try:
        assert is_ready.wait(WAIT_S)
        yield Live(port, server)
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        assert not thread.is_alive()
