"""Sockets and signals."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from anaphora.errors import PortInUseError
from anaphora.server.serve import bind, serve
from tests.server.fakes import WAIT_S, FakeEngine, Say, live, make_app

ROOT = Path(__file__).parents[2]


def test_a_port_in_use_is_known_before_anything_else() -> None:
    """The message names the port, and the flag to choose another."""
    with bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"port {port} on 127.0.0.1 is in use; .* another --port"):
            bind("127.0.0.1", port)


def test_a_port_taken_between_bind_and_serve_is_told_in_the_same_words() -> None:
    """Two servers that load their models at the same time."""
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        with pytest.raises(PortInUseError, match="is in use"):
            serve(make_app(), second)


def test_a_bound_port_does_not_take_connections_yet() -> None:
    """A client must not mistake it for a server that is ready."""
    with bind("127.0.0.1", 0) as sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(sock.getsockname(), timeout=WAIT_S)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_an_address_that_is_not_ours_is_told(host: str) -> None:
    """In one line, with the flag."""
    with pytest.raises(PortInUseError, match=rf"cannot listen on {host}, port 0: .*check --host"):
        bind(host, 0)


def test_localhost_means_ipv4() -> None:
    """Clients that were told 127.0.0.1 must find it."""
    with bind("localhost", 0) as sock:
        assert sock.family == socket.AF_INET


def test_a_whole_answer_does_not_wait_for_an_acknowledgement() -> None:
    """Head and body are two writes; when the socket did not name its protocol, asyncio left Nagle's algorithm on
    and each answer took 44 ms instead of 1.5. The accepted socket has the protocol of the bound one.
    """
    with bind("127.0.0.1", 0) as sock:
        assert sock.proto == socket.IPPROTO_TCP


def test_ipv6_is_served_where_there_is_any() -> None:
    """By its own address."""
    try:
        sock = bind("::1", 0)
    except PortInUseError:
        pytest.skip("this machine has no IPv6")
    with sock:
        assert sock.family == socket.AF_INET6


def test_a_request_in_flight_may_end_when_the_server_is_told_to_stop() -> None:
    """Nobody new is let in meanwhile."""
    engine = FakeEngine(Say(wait_at=1))
    with live(make_app(engine)) as server, httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        with client.stream("POST", "/v1/completions", json={"prompt": "x", "stream": True}) as response:
            frames = response.iter_raw()
            assert b"Hello" in next(frames)
            server.server.should_exit = True
            with pytest.raises(httpx.TransportError):
                while True:  # until the socket is closed
                    httpx.get(f"{server.url}/health", timeout=WAIT_S)
            assert not engine.has_aborted.is_set()
            server.server.handle_exit(signal.SIGTERM, None)
            assert b"the server is stopping" in b"".join(frames)
        assert engine.has_aborted.wait(WAIT_S)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_request_that_outlasts_the_grace_ends_with_an_error(is_streamed: bool) -> None:
    """As the last event of a stream, or as a 503 that tells clients to try again."""
    engine = FakeEngine(Say(wait_at=1))
    body = {"prompt": "x", "stream": is_streamed}
    with live(make_app(engine), grace_s=0) as server, ThreadPoolExecutor() as pool:
        asking = pool.submit(httpx.post, f"{server.url}/v1/completions", json=body, timeout=WAIT_S)
        assert engine.has_reached_wait.wait(WAIT_S)
        server.server.should_exit = True
        response = asking.result(WAIT_S)
    assert response.status_code == (200 if is_streamed else 503)
    assert "the server is stopping" in response.text
    assert len(engine.aborted) == 1


SCRIPT = textwrap.dedent("""
    from anaphora.server.serve import bind, serve
    from tests.server.fakes import FakeEngine, Say, make_app

    sock = bind("127.0.0.1", 0)
    engine = FakeEngine(Say(wait_at=1))
    serve(make_app(engine), sock, on_ready=lambda: print(sock.getsockname()[1], flush=True))
    print("finished", len(engine.finished), "aborted", len(engine.aborted))
""")


@contextmanager
def own_process() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A server in a process of its own, and its port."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_server_cleanly(sig: signal.Signals) -> None:
    """Exit code 0, and not a word from uvicorn."""
    with own_process() as (process, port):
        assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=WAIT_S).status_code == 200
        process.send_signal(sig)
        out, err = process.communicate(timeout=WAIT_S)
    assert (out, err) == ("finished 0 aborted 0\n", "")
    assert process.returncode == 0


def test_a_second_signal_ends_what_still_runs() -> None:
    """The client gets an error in the stream, the engine its abort, the shell exit code 0."""
    body = {"prompt": "x", "stream": True}
    with own_process() as (process, port):
        url = f"http://127.0.0.1:{port}"
        with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=WAIT_S) as response:
            frames = response.iter_raw()
            assert b"Hello" in next(frames)
            process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.TransportError):
                while True:  # until the first signal has been dealt with
                    httpx.get(f"{url}/health", timeout=WAIT_S)
            process.send_signal(signal.SIGTERM)
            assert b"the server is stopping" in b"".join(frames)
        out, _ = process.communicate(timeout=WAIT_S)
    assert out == "finished 0 aborted 1\n"
    assert process.returncode == 0
