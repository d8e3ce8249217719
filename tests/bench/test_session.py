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


def test_counters_that_come_late_are_waited_for_but_not_for_ever() -> None:
    """Each request is to have its own; a server that never counts as it answers is waited for once."""

    async def go(server: FakeServer) -> tuple[list[float | None], float]:
        found = await session(server)
        await found.start()
        started = asyncio.get_running_loop().time()
        for _ in range(4):
            await found.send(await found.prompts.fresh(40), Plan(arm="one"))
        waited = asyncio.get_running_loop().time() - started
        return [entry.counters.prompt_tokens if entry.counters else None for entry in found.log], waited

    counted, _ = run(go(FakeServer(late_s=0.3)))
    assert counted == [40, 40, 40, 40]
    _, waited = run(go(FakeServer(foreign_tokens=-1)))
    assert waited < 1.5


def test_a_burst_of_which_one_failed_has_no_counters() -> None:
    """What was counted of the failed one, nobody knows."""

    async def go() -> list[object]:
        found = await session(FakeServer(trouble={3: "cut"}))
        prompts = [await found.prompts.fresh(40) for _ in range(3)]
        together = await found.together(prompts, 4)
        found.record_together(prompts, [Plan(arm="burst")] * 3, together)
        return [entry.counters for entry in found.log]

    assert run(go()) == [None] * 3


def test_what_was_planned_in_words_is_noted_in_tokens() -> None:
    """A server that does not count beforehand says afterwards how many there were."""

    async def go() -> list[tuple[int, int]]:
        found = await session(FakeServer(tokenize=None, per_word=2))
        prompt = await found.prompts.fresh(40)
        for plan in (
            Plan(arm="a", planned=40),
            Plan(arm="a", planned=10),
            Plan(arm="a", planned=70, is_counted=True),
        ):
            await found.send(prompt, plan)
        return [(entry.prompt_tokens, entry.planned) for entry in found.log]

    assert run(go()) == [(80, 80), (80, 20), (80, 70)]
