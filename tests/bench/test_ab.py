"""Caching on against off, on two servers."""

import itertools
from typing import Any

import httpx

from anaphora.bench.ab import AbExperiment
from anaphora.bench.target import Access
from tests.bench.fakes import ACCESS, FakeServer, bench

OTHER = Access(base_url="http://127.0.0.1:2")
SMALL = AbExperiment(tokens=100, rounds=4, output_tokens=3, batch=2)


class TwoServers(httpx.AsyncBaseTransport):
    """Port 1 has caching on, port 2 off."""

    def __init__(self, on: FakeServer, off: FakeServer) -> None:
        self.servers = {1: on, 2: off}
        self.order: list[int] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        port = request.url.port or 0
        if "completions" in request.url.path:
            self.order.append(port)
        return await self.servers[port].handle_async_request(request)


def test_both_get_the_same_arms_in_turns_and_equal_outputs_are_counted() -> None:
    """96 of 100 tokens are cached on the one, none on the other; both do the same work at no hits."""
    servers = TwoServers(FakeServer(), FakeServer(caching=False))
    report = bench(SMALL, servers, ACCESS, OTHER)
    assert {(arm.arm, arm.sent, arm.reported) for arm in report.arms} >= {
        ("on warm", 4, 384),
        ("off warm", 4, 0),
        ("on batch", 8, 0),
        ("off batch", 8, 0),
    }
    facts, worth, zero = report.findings
    assert "at hit rates of 96.0% on and 0.0% off, on prompts of 100 tokens, one request at a time: " in facts
    assert "on 14.0 ms [14.0 to 14.0], off 110.0 ms [110.0 to 110.0]" in facts
    assert "with caching on, the first token takes 0.127 to 0.127 of the time" in worth
    assert "on ÷ off round by round 1.000 [1.000 to 1.000]" in zero
    assert report.conclusion.equality and report.conclusion.equality.compared == 4
    assert report.conclusion.equality.different == 0
    assert (report.exit_line, report.exit_code) == ("comparable: yes", 0)
    changes = sum(a != b for a, b in itertools.pairwise(servers.order))
    assert changes >= 4 * SMALL.rounds


def test_two_servers_that_differ_otherwise_are_not_compared() -> None:
    """Another model under the same roof."""
    servers = TwoServers(FakeServer(), FakeServer(caching=False, models=("huge",)))
    report = bench(SMALL, servers, ACCESS, OTHER)
    assert "the servers differ in more than caching" in report.exit_line
    assert report.findings[1:] == ["no gain is claimed, since the run is not comparable"]


def test_caching_off_on_both_claims_nothing() -> None:
    """And the exit code says that there is something to look at."""
    report = bench(SMALL, TwoServers(FakeServer(caching=False), FakeServer(caching=False)), ACCESS, OTHER)
    assert report.findings[1].startswith(
        "no gain is claimed, since on is not clearly below off (ratio 1.000 to 1.000"
    )
    assert report.exit_code == 2


def test_a_server_that_is_faster_without_reuse_too_is_not_compared() -> None:
    """No cache makes never-seen prompts faster; nobody reports anything here, so that only the clock knows."""
    silent: dict[str, Any] = {"caching": False, "reports": "nothing", "counts": "nothing"}
    report = bench(SMALL, TwoServers(FakeServer(**silent), FakeServer(slow=4.0, **silent)), ACCESS, OTHER)
    assert "never-seen prompts take 0.27 to 0.27 of the time where caching is on" in report.exit_line
    assert (
        report.findings[-1] == "no gain is claimed, since the run is not comparable"
        or not report.conclusion.claims
    )
    assert not any("the first token takes" in text for text in report.findings)
