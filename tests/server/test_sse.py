"""Work that ends when its client is gone or the server stops."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from anaphora.errors import ShuttingDownError
from anaphora.server.sse import EventStream, Stopping, frame, run_while_wanted
from tests.server.fakes import WAIT_S


class Client:
    """The other side of an ASGI application."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.messages: list[Message] = []

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


class Work:
    """Events that never end after the first few, and that record how they were closed."""

    def __init__(self, *events: bytes, error: Exception | None = None) -> None:
        self._events = events
        self._error = error
        self.is_waiting = asyncio.Event()
        self.is_closed = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        try:
            for event in self._events:
                yield event
            if self._error:
                raise self._error
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            self.is_closed = True


def stream(
    work: Work, stopping: Stopping | None = None, errors: list[Exception] | None = None
) -> EventStream:
    """A response of these events."""
    on_error = ([] if errors is None else errors).append
    return EventStream(work.events(), lambda: {"x-test": "1"}, stopping or Stopping(), on_error)


def test_a_frame_is_one_data_line() -> None:
    """Line breaks and all that is not ASCII are escaped."""
    assert frame({"a": "b\nc\u2028"}) == b'data: {"a":"b\\nc\\u2028"}\n\n'


@pytest.mark.parametrize("events", [(), (b"a",)])
def test_events_are_closed_when_the_client_goes_while_nothing_is_sent(events: tuple[bytes, ...]) -> None:
    """In a long prefill there is no send that could fail."""

    async def run() -> Work:
        client, work = Client(), Work(*events)
        answering = asyncio.ensure_future(stream(work)({}, client.receive, client.send))
        await asyncio.wait_for(work.is_waiting.wait(), WAIT_S)
        client.gone.set()
        with pytest.raises(ClientDisconnect):
            await asyncio.wait_for(answering, WAIT_S)
        return work

    assert asyncio.run(run()).is_closed


def test_a_client_that_reads_nothing_can_still_go() -> None:
    """The send that waits for it is given up."""

    async def run() -> Work:
        client, work = Client(), Work(b"a", b"b")
        is_sending = asyncio.Event()

        async def send(message: Message) -> None:
            is_sending.set()
            await asyncio.Event().wait()

        answering = asyncio.ensure_future(stream(work)({}, client.receive, send))
        await asyncio.wait_for(is_sending.wait(), WAIT_S)
        client.gone.set()
        with pytest.raises(ClientDisconnect):
            await asyncio.wait_for(answering, WAIT_S)
        return work

    assert asyncio.run(run()).is_closed


def test_an_error_before_the_first_event_is_left_to_the_caller() -> None:
    """Nothing was sent, so it can still become an answer of its own."""

    async def run() -> list[Message]:
        client, work = Client(), Work(error=ValueError("x"))
        with pytest.raises(ValueError, match="x"):
            await stream(work)({}, client.receive, client.send)
        return client.messages

    assert asyncio.run(run()) == []


def test_a_later_error_is_the_last_event() -> None:
    """It is reported as well, and the body ends."""
    errors: list[Exception] = []

    async def run() -> Client:
        client = Client()
        await stream(Work(b"a;", error=ValueError("x")), errors=errors)({}, client.receive, client.send)
        return client

    client = asyncio.run(run())
    assert client.body.startswith(b'a;data: {"error":{"message":"internal error')
    assert client.messages[0]["status"] == 200
    assert (b"x-test", b"1") in client.messages[0]["headers"]
    assert client.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert [str(error) for error in errors] == ["x"]


def test_a_server_that_stops_ends_its_streams_with_an_error() -> None:
    """The client knows that it has not seen the end."""

    async def run() -> tuple[Client, Work]:
        client, work, stopping = Client(), Work(b"a;"), Stopping()
        answering = asyncio.ensure_future(stream(work, stopping)({}, client.receive, client.send))
        await asyncio.wait_for(work.is_waiting.wait(), WAIT_S)
        stopping.set()
        await asyncio.wait_for(answering, WAIT_S)
        return client, work

    client, work = asyncio.run(run())
    assert work.is_closed
    assert b"the server is stopping" in client.body
    assert client.messages[-1]["more_body"] is False


def test_what_comes_after_the_stop_is_refused() -> None:
    """And stopping twice is stopping once."""

    async def run() -> None:
        stopping = Stopping()
        stopping.set()
        stopping.set()
        await run_while_wanted(asyncio.Event().wait(), Client().receive, stopping)

    with pytest.raises(ShuttingDownError):
        asyncio.run(run())


def test_the_result_and_the_failure_of_the_work_are_passed_on() -> None:
    """While the client waits for them."""

    async def answer() -> int:
        return 42

    async def fail() -> int:
        raise KeyError("x")

    async def run(work: Any) -> int:
        return await run_while_wanted(work, Client().receive, Stopping())

    assert asyncio.run(run(answer())) == 42
    with pytest.raises(KeyError):
        asyncio.run(run(fail()))


def test_nothing_is_left_running() -> None:
    """Neither the watcher nor the waiter for the stop."""

    async def run() -> set[Any]:
        stopping = Stopping()
        await run_while_wanted(asyncio.sleep(0), Client().receive, stopping)
        await asyncio.sleep(0)
        assert not stopping._waiters
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
