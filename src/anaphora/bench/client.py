"""The load client: one streamed request, timed. It never retries.

Times are those of the event loop's clock. A stream is read to its end before anything of it is parsed, and the body
is encoded before the clock starts. Connections are kept alive, and `touch` opens or proves one beforehand, so that
no arm pays for a connection that another found open.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import httpx

from anaphora.bench.frames import Transcript, cached_tokens_of, count_of, error_text, read_stream
from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.target import Access, Target
from anaphora.errors import ConfigError

CONNECT_S = 10.0
KEEP_ALIVE_S = 4.0
"""Shorter than any server's: whoever closes an idle connection must be the client, or a request is lost."""

NUM_RETRIES = 0
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
MAX_STREAM_BYTES = 64 * 2**20
"""More than any answer to our prompts: a stream without end must not fill the memory."""

_LINGER_S = 1.0
"""How long a stream that said [DONE] may take to end, so that its connection can be kept."""

_MAX_PORT = 65535


def open_http(access: Access, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """Return the HTTP client for a server; proxies of the environment are not asked on loopback."""
    headers = {"Accept-Encoding": "identity"} | bearer(access.api_key)
    host = _checked(access).host
    return httpx.AsyncClient(
        base_url=access.root,
        headers=headers,
        timeout=httpx.Timeout(access.timeout_s, connect=CONNECT_S),
        limits=httpx.Limits(
            max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEP_ALIVE_S
        ),
        transport=transport,
        trust_env=host not in LOOPBACK,
    )


def bearer(api_key: str | None) -> dict[str, str]:
    """Return the header that carries a key, or none; raises ConfigError for a key that no header can hold."""
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError(
            "the API key has a character that no HTTP header can carry; check it for line breaks"
        )
    return {"Authorization": f"Bearer {api_key}"}


def _checked(access: Access) -> httpx.URL:
    """Return the URL of a server, or raise ConfigError with what is wrong with it."""
    try:
        url = httpx.URL(access.root)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{access.base_url} is no URL of a server: {error}") from error
    if url.query or url.fragment:
        raise ConfigError(
            f"{access.base_url} is no URL of a server: it has a part behind ? or #; leave that out"
        )
    if not url.host:
        raise ConfigError(f"{access.base_url} is no URL of a server: it names no host")
    if url.port is not None and not 0 < url.port <= _MAX_PORT:
        raise ConfigError(
            f"{access.base_url} is no URL of a server: port {url.port} is not within 1 to {_MAX_PORT}"
        )
    return url


async def again(call: Callable[[], Coroutine[Any, Any, httpx.Response]], timeout_s: float) -> httpx.Response:
    """Ask, and ask once more where the server had closed the connection that was kept.

    Some servers do so after a stream, without a word. Only for questions, never for what is measured.
    An answer that comes drop by drop, each in time, is given up after `timeout_s` all the same.
    """
    try:
        async with asyncio.timeout(timeout_s):
            try:
                return await call()
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                return await call()
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"no full answer in {timeout_s:g} s") from error


def total_s(http: httpx.AsyncClient) -> float:
    """Return how long a question may take in all: as long as a request may stay silent."""
    return math.inf if http.timeout.read is None else http.timeout.read


def post(http: httpx.AsyncClient, path: str, body: Any) -> httpx.Request:
    """Return a request with a JSON body; half a surrogate pair, which is no UTF-8, is escaped like all the rest."""
    content = json.dumps(body).encode()
    return http.build_request("POST", path, content=content, headers={"Content-Type": "application/json"})


class Client:
    """Sends prompts to one server."""

    def __init__(self, http: httpx.AsyncClient, target: Target, timeout_s: float) -> None:
        self.http = http
        self.target = target
        self._timeout_s = timeout_s

    async def touch(self, num_connections: int = 1) -> None:
        """Have so many connections open; whether the server answers shows at the next request."""
        looks = (again(lambda: self.http.get("/v1/models"), self._timeout_s) for _ in range(num_connections))
        await asyncio.gather(*looks, return_exceptions=True)

    async def complete(self, prompt: Prompt, max_tokens: int, **more: Any) -> Answer:
        """Send a prompt and return the answer; failures are answers too."""
        body = request_body(self.target, prompt, max_tokens) | more
        is_chat = "messages" in body
        path = "/v1/chat/completions" if is_chat else "/v1/completions"
        return await stream(self.http, post(self.http, path, body), self._timeout_s)


def request_body(target: Target, prompt: Prompt, max_tokens: int) -> dict[str, Any]:
    """Return the body of a greedy, streamed request."""
    body = {"model": target.model, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    if prompt.messages is not None:
        content: dict[str, Any] = {"messages": list(prompt.messages)}
    elif prompt.ids is not None:
        content = {"prompt": list(prompt.ids)}
    elif target.api == "chat":
        content = {"messages": [{"role": "user", "content": prompt.text}]}
    else:
        content = {"prompt": prompt.text}
    return body | content | dict(target.extra)


async def stream(http: httpx.AsyncClient, request: httpx.Request, timeout_s: float) -> Answer:
    """Send a request whose answer is a stream, and time it."""
    clock = asyncio.get_running_loop().time
    chunks: list[tuple[float, bytes]] = []
    headers: Mapping[str, str] = {}
    failure, is_unreachable, is_done = None, False, False
    started = clock()
    try:
        async with asyncio.timeout(timeout_s) as limit:
            response = await http.send(request, stream=True)
            try:
                headers = response.headers
                if response.status_code != 200:
                    failure = f"status {response.status_code}: {_error_of(await response.aread())}"
                elif "event-stream" not in headers.get("content-type", ""):
                    failure = f"the answer is {headers.get('content-type')}, not a stream of events"
                else:
                    async for chunk in _bounded(response):
                        chunks.append((clock(), chunk))
                        if chunk.rstrip().endswith(b"[DONE]"):
                            is_done = True
                            limit.reschedule(clock() + _LINGER_S)
            finally:
                await response.aclose()
    except (TimeoutError, httpx.TimeoutException):
        failure = None if is_done else f"time-out: no full answer in {timeout_s:g} s"
    except httpx.ConnectError as error:
        failure, is_unreachable = f"no connection: {error}", True
    except httpx.HTTPError as error:
        failure = f"connection lost: {error or type(error).__name__}"
    ended = chunks[-1][0] if is_done else clock()
    transcript = read_stream(chunks)
    return _answer(transcript, started, ended, headers, failure, is_unreachable=is_unreachable)


async def _bounded(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer; raises httpx.RemoteProtocolError where it has no end."""
    num_bytes = 0
    async for chunk in response.aiter_raw():
        num_bytes += len(chunk)
        if num_bytes > MAX_STREAM_BYTES:
            raise httpx.RemoteProtocolError(f"the answer is over {MAX_STREAM_BYTES:,} bytes long")
        yield chunk


def _error_of(content: bytes) -> str:
    try:
        return error_text(json.loads(content))
    except (ValueError, RecursionError):
        return content[:200].decode(errors="replace")


def _answer(
    said: Transcript,
    started: float,
    ended: float,
    headers: Mapping[str, str],
    failure: str | None,
    *,
    is_unreachable: bool,
) -> Answer:
    usage = said.usage or {}
    # Some servers send no [DONE]; what came to its end without an error, and says why it ended, is whole.
    is_whole = said.is_complete or (failure is None and said.finish_reason is not None)
    is_cut = bool(said.texts) and not is_whole
    failure = failure or said.error
    if failure is None and not is_whole:
        failure = "the stream ended before [DONE]"
    return Answer(
        e2e_s=ended - started,
        ttft_s=None if said.first_at is None else said.first_at - started,
        gaps_s=tuple(
            later - earlier for earlier, later in zip(said.content_at, said.content_at[1:], strict=False)
        ),
        text=said.text,
        token_ids=tuple(said.token_ids),
        finish_reason=said.finish_reason,
        prompt_tokens=count_of(usage, "prompt_tokens"),
        completion_tokens=count_of(usage, "completion_tokens"),
        cached_tokens=cached_tokens_of(said.usage),
        header=headers.get("x-anaphora-cache"),
        failure=failure,
        is_cut=is_cut,
        is_unreachable=is_unreachable,
    )
