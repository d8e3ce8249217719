"""Clients that go away: their requests are aborted at once, whatever the server was doing for them."""

import json
import socket
import struct

import httpx
import pytest

from anaphora.config import ServerConfig
from tests.server.fakes import WAIT_S, FakeEngine, Live, Say, live, make_app


def send(server: Live, **body: object) -> socket.socket:
    """Send a completion by hand; return the open connection."""
    content = json.dumps({"prompt": "x"} | body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
    connection.sendall(head.encode() + content)
    return connection


def go_away(connection: socket.socket, how: str) -> None:
    """Close a connection politely, by a reset, or by closing the sending half only."""
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        connection.shutdown(socket.SHUT_WR)
    else:
        connection.close()


PREFILL, DECODE = 0, 2  # the step in which the engine is silent


@pytest.mark.parametrize(
    "wait_at, is_streamed, how",
    [
        (PREFILL, True, "close"),
        (PREFILL, True, "reset"),
        (PREFILL, True, "half"),
        (PREFILL, False, "close"),
        (PREFILL, False, "reset"),
        (DECODE, True, "close"),
        (DECODE, False, "close"),
    ],
)
def test_a_request_is_aborted_when_its_client_goes(wait_at: int, is_streamed: bool, how: str) -> None:
    """The engine is silent meanwhile, so no failed send can tell; and the server goes on to serve others."""
    engine = FakeEngine(lambda request: Say(wait_at=wait_at if len(request.prompt_token_ids) < 5 else None))
    with live(make_app(engine)) as server:
        connection = send(server, stream=is_streamed)
        assert engine.has_reached_wait.wait(WAIT_S)
        go_away(connection, how)
        assert engine.has_aborted.wait(WAIT_S)
        connection.close()
        response = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a longer one"}, timeout=WAIT_S)
        assert response.status_code == 200
    assert len(engine.aborted) == 1
    assert len(engine.finished) == 1


def test_all_prompts_of_a_request_are_aborted() -> None:
    """Each with all its n sequences."""
    engine = FakeEngine(Say(wait_at=1))
    with live(make_app(engine)) as server:
        connection = send(server, prompt=["a", "b"], n=2, stream=True)
        assert b"200 OK" in connection.recv(65536)
        connection.close()
        assert engine.has_aborted.wait(WAIT_S)
    assert len(engine.aborted) == 2


def test_a_client_that_reads_nothing_holds_up_neither_the_engine_nor_others() -> None:
    """Its outputs wait in memory; the engine is through with it while its socket is full."""
    engine = FakeEngine(
        lambda request: Say(["x" * 100_000] * 200 if request.params.max_tokens == 7 else ["y"])
    )
    with live(make_app(engine)) as server:
        connection = send(server, stream=True, max_tokens=7)
        response = httpx.post(f"{server.url}/v1/completions", json={"prompt": "b"}, timeout=WAIT_S)
        assert response.status_code == 200
        assert engine.num_finished.acquire(timeout=WAIT_S)
        assert engine.num_finished.acquire(timeout=WAIT_S)
        connection.close()
    assert engine.aborted == []


def test_a_body_that_never_ends_can_be_given_up() -> None:
    """The client goes before the request is whole; nothing reaches the engine."""
    engine = FakeEngine()
    with live(make_app(engine)) as server:
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S)
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        connection.close()
        assert httpx.get(f"{server.url}/health", timeout=WAIT_S).status_code == 200
    assert engine.requests == []


def test_a_body_over_the_limit_is_answered_on_a_real_connection() -> None:
    """Declared or not, the client gets to read the answer."""
    with live(make_app(config=ServerConfig(max_body_bytes=1024))) as server:
        url = f"{server.url}/v1/completions"
        response = httpx.post(url, content=b"x" * 5_000_000, timeout=WAIT_S)
        assert response.status_code == 413
        response = httpx.post(url, content=(b"x" * 65536 for _ in range(50)), timeout=WAIT_S)
        assert response.status_code == 413
