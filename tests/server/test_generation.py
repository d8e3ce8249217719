"""Several sequences run as one call."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from anaphora.engine.protocols import GenerateInput
from anaphora.errors import EngineError
from anaphora.request import RequestOutput, SamplingParams, Usage
from anaphora.server.generation import Books, Generation
from anaphora.server.prompts import Prompt
from tests.server.fakes import WAIT_S, FakeEngine, Say


def generation(num_prompts: int = 1, n: int = 1) -> Generation:
    """A call with prompts of one token."""
    return Generation(
        call_id="call",
        source={},
        prompts=[Prompt(f"prompt[{i}]", [i]) for i in range(num_prompts)],
        params=[SamplingParams(n=n)] * num_prompts,
        tenant_salt=None,
        cache_salt=None,
    )


def test_books_count_a_prompt_once_and_all_outputs() -> None:
    """Sequences 0 and 2 are the first of their prompts; the later counts of a sequence replace the earlier."""
    books = Books(num_prompts=2, n=2)
    books.record(1, Usage(10, 9, 0, 1))
    assert books.total == Usage(0, 0, 0, 1)
    books.record(0, Usage(10, 0, 8, 1))
    assert not books.is_complete
    books.record(0, Usage(10, 0, 8, 5))
    books.record(2, Usage(20, 16, 0, 1))
    assert books.is_complete
    assert books.total == Usage(30, 16, 8, 7)


def test_outputs_come_when_they_are_there_not_in_the_order_of_prompts() -> None:
    """A prompt that waits does not hold up the others."""
    engine = FakeEngine(lambda request: Say(["x"], wait_at=0 if request.prompt_token_ids == [0] else None))

    async def first() -> int:
        outputs = generation(num_prompts=2).run(engine)
        index, _ = await anext(outputs)
        await outputs.aclose()
        return index

    assert asyncio.run(first()) == 1
    assert "call-0" in engine.aborted


@pytest.mark.parametrize("wait_at", [0, 1])
def test_closing_early_aborts_what_still_runs(wait_at: int) -> None:
    """Before the first output, and between two."""

    async def run() -> FakeEngine:
        are_all_started = asyncio.Event()

        def script(request: GenerateInput) -> Say:
            if request.request_id == "call-2":
                are_all_started.set()
            return Say(wait_at=wait_at)

        engine = FakeEngine(script)

        async def read() -> None:
            async for _ in generation(num_prompts=3).run(engine):
                pass

        reading = asyncio.ensure_future(read())
        await asyncio.wait_for(are_all_started.wait(), WAIT_S)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return engine

    assert sorted(asyncio.run(run()).aborted) == ["call-0", "call-1", "call-2"]


def test_an_engine_that_ends_without_a_reason_is_at_fault() -> None:
    """Else a client would take a part for the whole."""

    class Silent(FakeEngine):
        async def generate(self, request: object) -> AsyncGenerator[RequestOutput, None]:
            return
            yield

    async def read() -> None:
        async for _ in generation().run(Silent()):
            pass

    with pytest.raises(EngineError, match="without a reason"):
        asyncio.run(read())
