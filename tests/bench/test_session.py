"""Sending, waiting and counting."""

import asyncio

import pytest

from anaphora.bench.session import Plan
from tests.bench.fakes import FakeServer, run, session


def _waited_s(server: FakeServer, busy_reads: int) -> float:
    async def go() -> float:
        found = await session(server)
        server.busy_reads = busy_reads
        started = asyncio.get_running_loop().time()
        await found.settle()
        return asyncio.get_running_loop().time() - started

    return run(go())


def test_after_priming_it_waits_until_nothing_runs_but_not_for_ever() -> None:
    """0.05 s a look, forty looks at most; a server without metrics gets one."""
    assert round(_waited_s(FakeServer(), 0), 6) == 0.05
    assert round(_waited_s(FakeServer(), 3), 6) == 0.2
    assert round(_waited_s(FakeServer(), 10**6), 6) == 2.0
    assert round(_waited_s(FakeServer(counts="nothing"), 10**6), 6) == 0.05


@pytest.mark.parametrize("counts", ["truth", "nothing"])
def test_a_server_that_hangs_up_after_each_stream_loses_no_request_and_no_reading(counts: str) -> None:
    """As llama.cpp's does: the question behind the stream is asked again, the measured request never is."""

    async def go() -> tuple[list[str | None], int, int]:
        server = FakeServer(hangs_up=True, counts=counts)
        found = await session(server)
        for _ in range(3):
            await found.send(await found.prompts.fresh(40), Plan(arm="one"))
        entries = found.log.entries
        failures = [entry.answer.failure for entry in entries]
        return failures, sum(entry.counters is not None for entry in entries), len(server.bodies)

    num_probes = 2
    assert run(go()) == ([None] * 3, 3 * (counts == "truth"), num_probes + 3)


def test_counters_are_read_around_each_request_and_once_around_a_burst() -> None:
    """The way over the burst stands with its first request, so that sums are right."""

    async def go() -> list[tuple[float | None, float | None]]:
        found = await session(FakeServer())
        prompt = await found.prompts.fresh(40)
        await found.send(prompt, Plan(arm="one"))
        together = await found.together([prompt] * 3, 1)
        found.record_together([prompt] * 3, [Plan(arm="burst")] * 3, together)
        return [(e.counters.prompt_tokens, e.counters.cached_tokens) for e in found.log if e.counters]

    assert run(go()) == [(40, 0), (120, 96), (0, 0), (0, 0)]
