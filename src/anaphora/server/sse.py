"""Server-sent events, and work that ends when its client is gone.

Starlette's own StreamingResponse notices a lost client at the next send at the earliest, which in a long prefill is
far too late; hence the watcher beside the work.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from anaphora.errors import ShuttingDownError
from anaphora.server.wire_errors import dump_json, error_body

DONE = b"data: [DONE]\n\n"

T = TypeVar("T")


def frame(content: Any) -> bytes:
    """Return one event."""
    return b"data: " + dump_json(content) + b"\n\n"


class Stopping:
    """Tells all requests in progress that their time is over; belongs to no event loop, as asyncio.Event would."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        """End every request that waits now or later; to be called in the event loop's thread."""
        self.is_set = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def waiter(self) -> asyncio.Future[None]:
        """Return a future that is done once the time is over; cancel it when nobody cares any more."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        if self.is_set:
            self.set()
        return waiter


async def run_while_wanted(work: Coroutine[Any, Any, T], receive: Receive, stopping: Stopping) -> T:
    """Return what `work` returns, once it and everything it opened has ended.

    Cancels it and raises ClientDisconnect when the client goes away first, ShuttingDownError when the
    server stops first.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    stopped = stopping.waiter()
    tasks: tuple[asyncio.Future[Any], ...] = (working, gone, stopped)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone.done():
            raise ClientDisconnect
        raise ShuttingDownError("the server is stopping; send the request again in a moment")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream:
    """ASGI response that sends events as they come.

    Nothing is sent before the first event, so an error until then propagates and becomes an ordinary answer
    with its own status; a later one becomes the last event. `headers` is asked once the first event exists.
    The events are closed as soon as the client is gone.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Callable[[], Mapping[str, str]],
        stopping: Stopping,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._events = events
        self._headers = headers
        self._stopping = stopping
        self._on_error = on_error
        self._has_started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events, watching for the client."""
        try:
            await run_while_wanted(self._send_events(send), receive, self._stopping)
        except ClientDisconnect:
            raise
        except Exception as error:
            if not self._has_started:
                raise
            self._on_error(error)
            await self._send_chunk(send, frame(error_body(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                await self._send_chunk(send, event)

    async def _send_chunk(self, send: Send, chunk: bytes) -> None:
        if not self._has_started:
            await send({"type": "http.response.start", "status": 200, "headers": self._raw_headers()})
            self._has_started = True
        await send({"type": "http.response.body", "body": chunk, "more_body": True})

    def _raw_headers(self) -> list[tuple[bytes, bytes]]:
        fixed = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
        }
        return [(name.encode(), value.encode()) for name, value in {**fixed, **self._headers()}.items()]
