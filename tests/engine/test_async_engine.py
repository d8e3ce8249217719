"""The engine behind an event loop: streams, aborts, failures, resets."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from anaphora.engine.async_engine import STALL_LIMIT_S, AsyncEngine
from anaphora.errors import ContextLengthError, EngineDeadError, InvalidRequestError
from anaphora.request import FinishReason
from anaphora.scheduler.plan import StepPlan
from anaphora.scheduler.probe import Probe
from tests.engine.support import SmallEngine, async_engine, prompt, small_engine


@asynccontextmanager
async def running(small: SmallEngine) -> AsyncIterator[AsyncEngine]:
    """Start the engine and stop it whatever happens."""
    engine = async_engine(small)
    engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


async def collect(engine: AsyncEngine, name: str, **params: Any) -> str:
    """Return the whole text of a prompt."""
    return "".join([output.text async for output in engine.generate(prompt(name, **params))])


class Gate:
    """Holds the engine inside the n-th step that runs until told to go on; a plan of nothing is no such step."""

    def __init__(self, at_step: int = 1) -> None:
        self.num_steps_left = at_step
        self.is_inside, self.may_go = threading.Event(), threading.Event()

    def __call__(self, plan: StepPlan) -> None:
        """Stop here."""
        self.num_steps_left -= 1
        if not self.num_steps_left:
            self.is_inside.set()
            assert self.may_go.wait(10)


async def settled(small: SmallEngine, engine: AsyncEngine) -> None:
    """Wait until the engine has taken in everything that was asked before."""
    await engine.reset_prefix_cache()


def test_many_prompts_at_once_all_get_their_texts() -> None:
    """Twenty prompts through eight places."""

    async def story() -> None:
        small = small_engine({f"R{i}": f"answer {i}" for i in range(20)})
        async with running(small) as engine:
            texts = await asyncio.gather(*(collect(engine, f"R{i}") for i in range(20)))
        assert texts == [f"answer {i}" for i in range(20)]
        assert small.manager.pool.usage().used == 0

    asyncio.run(story())


def test_closing_a_stream_early_aborts_the_request() -> None:
    """Its pages are free before the next step."""

    async def story() -> None:
        gate = Gate(at_step=2)
        small = small_engine(before_step=gate)
        async with running(small) as engine:
            stream = engine.generate(prompt("A", max_tokens=100))
            await anext(stream)
            await stream.aclose()
            gate.may_go.set()
            await settled(small, engine)
            assert (small.scheduler.num_running, small.manager.pool.usage().used) == (0, 0)

    asyncio.run(story())


def test_cancelling_a_reader_aborts_the_request_even_during_its_prefill() -> None:
    """The step is still running when the client goes away."""

    async def story() -> None:
        gate = Gate()
        small = small_engine(before_step=gate)
        async with running(small) as engine:
            task = asyncio.create_task(collect(engine, "A", max_tokens=100))
            assert await asyncio.to_thread(gate.is_inside.wait, 10)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.may_go.set()
            await settled(small, engine)
            assert (small.scheduler.has_work, small.manager.pool.usage().used) == (False, 0)

    asyncio.run(story())


def test_a_prompt_that_never_fits_raises_before_the_first_output() -> None:
    """And the engine goes on for others."""

    async def story() -> None:
        async with running(small_engine({"B": "fine"})) as engine:
            with pytest.raises(ContextLengthError):
                await collect(engine, "A", max_tokens=200)
            assert await collect(engine, "B") == "fine"

    asyncio.run(story())


def test_a_request_id_in_use_is_refused() -> None:
    """The first request is not disturbed."""

    async def story() -> None:
        async with running(small_engine()) as engine:
            stream = engine.generate(prompt("A", max_tokens=50))
            await anext(stream)
            with pytest.raises(InvalidRequestError, match="'A' is in use"):
                await collect(engine, "A")
            assert (await anext(stream)).finish_reason is None
            await stream.aclose()

    asyncio.run(story())


def failing(message: str) -> Callable[[StepPlan], None]:
    """Return a step that fails."""

    def fail(plan: StepPlan) -> None:
        raise RuntimeError(message)

    return fail


def test_a_failing_step_fails_everyone_who_waits_and_the_health(caplog: pytest.LogCaptureFixture) -> None:
    """Both readers are told why, later ones at once."""

    async def story() -> None:
        async with running(small_engine(before_step=failing("out of tape"))) as engine:
            assert engine.failure is None
            results = await asyncio.gather(collect(engine, "A"), collect(engine, "B"), return_exceptions=True)
            assert [type(result) for result in results] == [EngineDeadError, EngineDeadError]
            assert "out of tape" in str(results[0])
            assert engine.failure
            with pytest.raises(EngineDeadError, match="out of tape"):
                await collect(engine, "C")
            with pytest.raises(EngineDeadError):
                await engine.reset_prefix_cache()

    asyncio.run(story())
    assert "the engine has failed" in caplog.text


def test_a_reset_that_waits_when_the_engine_dies_is_answered() -> None:
    """Nobody is left waiting."""

    async def story() -> None:
        gate = Gate()

        def step(plan: StepPlan) -> None:
            gate(plan)
            raise RuntimeError("gone")

        async with running(small_engine(before_step=step)) as engine:
            reader = asyncio.create_task(collect(engine, "A"))
            assert await asyncio.to_thread(gate.is_inside.wait, 10)
            reset = asyncio.create_task(engine.reset_prefix_cache())
            await asyncio.sleep(0)
            gate.may_go.set()
            with pytest.raises(EngineDeadError):
                await reset
            with pytest.raises(EngineDeadError):
                await reader

    asyncio.run(story())


def test_a_step_that_hangs_is_unhealthy() -> None:
    """Time passes while a step does not return."""

    async def story() -> None:
        gate = Gate()
        small = small_engine({"A": "x"}, before_step=gate)
        async with running(small) as engine:
            reader = asyncio.create_task(collect(engine, "A"))
            assert await asyncio.to_thread(gate.is_inside.wait, 10)
            assert engine.failure is None
            small.clock.advance(STALL_LIMIT_S + 1)
            assert engine.failure == "the engine's step has been running for over 120 s"
            gate.may_go.set()
            assert await reader == "x"

    asyncio.run(story())


def test_a_reset_is_refused_while_a_request_runs() -> None:
    """False, then True once it has ended; forced, it preempts."""

    async def story() -> None:
        gate = Gate(at_step=2)
        small = small_engine(before_step=gate)
        async with running(small) as engine:
            stream = engine.generate(prompt("A", max_tokens=100))
            await anext(stream)
            resets = [engine.reset_prefix_cache(reset_running_requests=force) for force in (False, True)]
            answers = asyncio.gather(*resets)
            await asyncio.sleep(0)  # both are asked before the step ends
            gate.may_go.set()
            assert await answers == [False, True]
            await anext(stream)
            await stream.aclose()
            assert await engine.reset_prefix_cache()

    asyncio.run(story())


def test_stopping_ends_streams_with_an_error() -> None:
    """A reader is not left waiting for ever."""

    async def story() -> None:
        gate = Gate(at_step=2)
        engine = async_engine(small_engine(before_step=gate))
        engine.start()
        stream = engine.generate(prompt("A", max_tokens=100))
        await anext(stream)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)  # it is asked before the step ends
        gate.may_go.set()
        await stopping
        with pytest.raises(EngineDeadError):
            async for _ in stream:
                pass
        assert engine.failure == "the server has stopped"

    asyncio.run(story())


def test_a_token_budget_of_outputs_ends_with_length() -> None:
    """The last output says so."""

    async def story() -> None:
        async with running(small_engine()) as engine:
            outputs = [output async for output in engine.generate(prompt("A", max_tokens=3))]
        assert [len(output.token_ids) for output in outputs] == [1, 1, 1]
        assert outputs[-1].finish_reason is FinishReason.LENGTH

    asyncio.run(story())


def test_a_probe_is_answered_between_two_steps_and_computes_nothing() -> None:
    """What the request that runs has computed by then is found."""

    async def story() -> None:
        gate = Gate(at_step=2)
        small = small_engine(before_step=gate)
        ids = prompt("A").prompt_token_ids
        async with running(small) as engine:
            assert await engine.probe(ids, None, None) == Probe(0, 8, 4)
            stream = engine.generate(prompt("A", max_tokens=100))
            await anext(stream)
            probing = asyncio.ensure_future(engine.probe(ids, None, None))
            await asyncio.sleep(0)  # it is asked before the step ends
            gate.may_go.set()
            assert await probing == Probe(8, 8, 4)
            num_steps = len(small.runner.plans)
            await stream.aclose()
            assert await engine.probe(ids, b"another", None) == Probe(0, 8, 4)
            assert len(small.runner.plans) - num_steps < 3

    asyncio.run(story())


def test_a_probe_of_an_engine_that_has_stopped_is_refused_at_once_or_as_it_stops() -> None:
    async def story() -> None:
        gate = Gate(at_step=2)
        engine = async_engine(small_engine(before_step=gate))
        engine.start()
        stream = engine.generate(prompt("A", max_tokens=100))
        await anext(stream)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        probing = asyncio.ensure_future(engine.probe([1, 2, 3], None, None))
        await asyncio.sleep(0)
        gate.may_go.set()
        await stopping
        with pytest.raises(EngineDeadError):
            await probing
        with pytest.raises(EngineDeadError):
            await engine.probe([1, 2, 3], None, None)

    asyncio.run(story())


def test_who_gives_up_a_probe_disturbs_nobody() -> None:
    async def story() -> None:
        async with running(small_engine()) as engine:
            probing = asyncio.ensure_future(engine.probe([1, 2, 3], None, None))
            await asyncio.sleep(0)
            probing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probing
            assert len(await collect(engine, "A", max_tokens=3)) > 0
            assert engine.failure is None

    asyncio.run(story())
