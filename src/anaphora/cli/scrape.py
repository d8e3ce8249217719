"""Reads the /metrics of a running server, once or at the two ends of a while."""

import time
from collections.abc import Callable
from typing import NamedTuple

import httpx

from anaphora.cost.server_metrics import ServerReading, parse_metrics
from anaphora.errors import ConfigError

TIMEOUT_S = 10.0
MAX_BYTES = 32 * 2**20
"""Far more than any server says of itself."""


class Watched(NamedTuple):
    """What a server has counted since its start, what is to be reported, and whether Ctrl-C cut it short."""

    now: ServerReading
    counted: ServerReading
    is_cut: bool = False


def read_server(
    client: httpx.Client, base_url: str, watch_s: float | None, sleep: Callable[[float], None]
) -> Watched:
    """Read a server once, or before and after a while, which Ctrl-C ends early; raises ConfigError."""
    url = base_url.rstrip("/").removesuffix("/v1") + "/metrics"
    first, is_cut = fetch_metrics(client, url), False
    if watch_s is None:
        return Watched(first, first)
    try:
        sleep(watch_s)
    except KeyboardInterrupt:
        is_cut = True
    second = fetch_metrics(client, url)
    return Watched(second, second.since(first), is_cut)


def fetch_metrics(
    client: httpx.Client, url: str, clock: Callable[[], float] = time.monotonic
) -> ServerReading:
    """Scrape a server once; ConfigError says what is wrong."""
    try:
        with client.stream("GET", url) as response:
            if response.status_code != httpx.codes.OK:
                raise ConfigError(
                    f"{url} answers {response.status_code}, not 200; is it the root of the server?"
                )
            text = _bounded(response, url, clock)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(
            f"{url} does not answer: {reason}; start the server or correct --base-url"
        ) from error
    try:
        return parse_metrics(text)
    except ConfigError as error:
        raise ConfigError(f"{url}: {error}") from error


def _bounded(response: httpx.Response, url: str, clock: Callable[[], float]) -> str:
    """Return the body; one that does not come to an end is an error."""
    until, body = clock() + TIMEOUT_S, bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_BYTES:
            raise ConfigError(f"{url} answers more than {MAX_BYTES:,} bytes; is it the root of the server?")
        if clock() > until:
            raise ConfigError(f"{url} has not ended its answer after {TIMEOUT_S:g} s")
    return body.decode("utf-8", "replace")
