"""The /metrics of a server: once, twice, cut short, and answers that are none."""

from collections.abc import Iterator

import httpx
import pytest

from anaphora.cli.scrape import MAX_BYTES, TIMEOUT_S, fetch_metrics, read_server
from anaphora.cost.usage import TokenSplit
from anaphora.errors import ConfigError
from tests.cost.test_server_metrics import VLLM

LATER = VLLM.replace("} 700.0", "} 730.0").replace("1.0e+03", "1040")


def serving(*answers: httpx.Response) -> httpx.Client:
    """A client of a server that gives these answers in turn."""
    rest = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        assert str(request.url) == "http://server:8000/metrics"
        return next(rest)

    return httpx.Client(transport=httpx.MockTransport(answer))


def never(seconds: float) -> None:
    pytest.fail(f"slept {seconds} s")


@pytest.mark.parametrize("url", ["http://server:8000", "http://server:8000/", "http://server:8000/v1"])
def test_a_server_is_read_once_unless_it_is_watched(url: str) -> None:
    with serving(httpx.Response(200, text=VLLM)) as client:
        now, counted, _ = read_server(client, url, None, never)
    assert now is counted
    assert counted.tallies()[0].split == TokenSplit(read=800, fresh_or_written=700)


def test_a_watched_server_is_read_twice_and_the_growth_counts() -> None:
    slept: list[float] = []
    with serving(httpx.Response(200, text=VLLM), httpx.Response(200, text=LATER)) as client:
        now, counted, is_cut = read_server(client, "http://server:8000", 5.0, slept.append)
    assert (slept, is_cut) == ([5.0], False)
    assert counted.tallies()[0].split == TokenSplit(read=30, fresh_or_written=10)
    assert now.prefill_rate() == 2400.0  # over all that the server has measured


def test_a_server_that_answers_otherwise_is_one_clear_error() -> None:
    with serving(httpx.Response(404), httpx.Response(200, text="<html>")) as client:
        with pytest.raises(ConfigError, match="answers 404, not 200"):
            fetch_metrics(client, "http://server:8000/metrics")
        with pytest.raises(ConfigError, match=r"/metrics: it has none of the counters"):
            fetch_metrics(client, "http://server:8000/metrics")


def test_a_watch_that_ctrl_c_ends_tells_what_was_counted_until_then() -> None:
    def break_off(seconds: float) -> None:
        raise KeyboardInterrupt

    with serving(httpx.Response(200, text=VLLM), httpx.Response(200, text=LATER)) as client:
        watched = read_server(client, "http://server:8000", 5.0, break_off)
    assert watched.is_cut
    assert watched.counted.tallies()[0].split == TokenSplit(read=30, fresh_or_written=10)


def endless() -> Iterator[bytes]:
    while True:
        yield b"# HELP x\n" * 10_000


def test_an_answer_without_an_end_is_cut_off() -> None:
    """By its length, or by the clock where it drips."""
    ticks = iter([0.0, 0.0, TIMEOUT_S + 1])
    with serving(httpx.Response(200, content=endless()), httpx.Response(200, content=endless())) as client:
        with pytest.raises(ConfigError, match=f"answers more than {MAX_BYTES:,} bytes"):
            fetch_metrics(client, "http://server:8000/metrics", lambda: 0.0)
        with pytest.raises(ConfigError, match="has not ended its answer after 10 s"):
            fetch_metrics(client, "http://server:8000/metrics", lambda: next(ticks))
