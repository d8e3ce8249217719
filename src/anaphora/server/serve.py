"""Sockets, signals and uvicorn: an application served until it is told to stop."""

import asyncio
import errno
import math
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from anaphora.errors import PortInUseError

GRACE_S = 5.0
"""How long requests may go on once the server was told to stop, unless said otherwise."""

_BACKLOG = 2048
_LAST_WORDS_S = 1.0


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that holds the address, so that a taken one is known before a model is loaded.

    It does not listen yet: a client must not take an open port for a server that is ready.
    Raises PortInUseError.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # The first IPv4 address of a name, else the first of any kind.
        family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        # The protocol must be told: asyncio sets TCP_NODELAY only where it can read IPPROTO_TCP, and without it
        # every answer that is written in two parts waits 40 ms for an acknowledgement.
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_bind(host, port, error) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _cannot_bind(host, port, error) from error
    return sock


def _cannot_bind(host: str, port: int, error: OSError) -> PortInUseError:
    if error.errno == errno.EADDRINUSE:
        return PortInUseError(
            f"port {port} on {host} is in use; stop the other server or choose another --port"
        )
    return PortInUseError(f"cannot listen on {host}, port {port}: {error.strerror}; check --host and --port")


def serve(
    app: Starlette,
    sock: socket.socket,
    *,
    on_ready: Callable[[], None] = lambda: None,
    grace_s: float = GRACE_S,
) -> None:
    """Answer on a socket from `bind` until SIGTERM or SIGINT, then close it.

    Requests in flight may go on for `grace_s` seconds; then, or at a second signal, they end with an error.
    """
    try:
        sock.listen(_BACKLOG)
    except OSError as error:
        host, port = sock.getsockname()[:2]
        raise _cannot_bind(host, port, error) from error
    Server(app, on_ready, grace_s).run(sockets=[sock])


class Server(uvicorn.Server):
    """uvicorn without its banner and access log, and with our way to stop."""

    def __init__(self, app: Starlette, on_ready: Callable[[], None], grace_s: float = GRACE_S) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                # Longer than clients keep idle connections: whoever closes first must not be the server, or
                # a request that is just being sent is lost.
                timeout_keep_alive=75,
                # Only for what ignores `stopping`, such as a client that never finishes its body.
                timeout_graceful_shutdown=math.ceil(grace_s + _LAST_WORDS_S),
            )
        )
        self._app = app
        self._on_ready = on_ready
        self._grace_s = grace_s
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, then say so."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new connections, and end what still runs when the grace is over."""
        timer = asyncio.get_running_loop().call_later(self._grace_s, self._app.state.stopping.set)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal; end what runs at the second; at the third, leave.

        uvicorn would raise the signal again after a clean stop, and so report it as a crash.
        """
        if not self.should_exit:
            self.should_exit = True
        elif self._loop is not None and not self._app.state.stopping.is_set:
            self._loop.call_soon_threadsafe(self._app.state.stopping.set)
        else:
            self.force_exit = True
