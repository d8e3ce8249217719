"""One API call as one or more sequences in the engine: several prompts, or n answers, or both.

Knows no wire format; `answers.py` gives the outputs their shape.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from anaphora.engine.protocols import EngineClient, GenerateInput
from anaphora.errors import EngineError
from anaphora.ids import RequestId
from anaphora.request import FinishReason, RequestOutput, SamplingParams, Usage
from anaphora.server.explainer import Draft
from anaphora.server.prompts import Prompt

IndexedOutput: TypeAlias = tuple[int, RequestOutput]
_Queue: TypeAlias = asyncio.Queue[IndexedOutput | Exception | None]


class Books:
    """The token counts of one call.

    A prompt counts once, as its first sequence found it: were the n sequences of a prompt summed, a cold call
    would report hits that it made itself. Outputs of all sequences count.
    """

    def __init__(self, num_prompts: int, n: int) -> None:
        self._num_prompts = num_prompts
        self._n = n
        self._usages: dict[int, Usage] = {}

    def record(self, index: int, usage: Usage) -> None:
        """Replace what is known of one sequence."""
        self._usages[index] = usage

    @property
    def total(self) -> Usage:
        """The counts so far, over all prompts."""
        first = [usage for index, usage in self._usages.items() if index % self._n == 0]
        return Usage(
            sum(usage.prompt_tokens for usage in first),
            sum(usage.cached_tokens for usage in first),
            sum(usage.cache_write_tokens for usage in first),
            sum(usage.completion_tokens for usage in self._usages.values()),
        )

    @property
    def is_complete(self) -> bool:
        """Whether every prompt has been counted."""
        return sum(index % self._n == 0 for index in self._usages) == self._num_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What is asked of the engine; sequence i belongs to prompt i // n. `source` is the body as it was sent."""

    call_id: str
    source: Mapping[str, Any]
    prompts: Sequence[Prompt]
    params: Sequence[SamplingParams]
    tenant_salt: bytes | None
    cache_salt: str | None
    priority: int = 0

    @property
    def n(self) -> int:
        """How many answers each prompt gets."""
        return self.params[0].n

    @property
    def num_sequences(self) -> int:
        """How many answers there will be in all."""
        return len(self.prompts) * self.n

    def new_books(self) -> Books:
        """Return empty books for this call."""
        return Books(len(self.prompts), self.n)

    def run(self, engine: EngineClient) -> AsyncGenerator[IndexedOutput, None]:
        """Yield the outputs of all sequences as they come; closing it aborts those still running."""
        return _merge([engine.generate(self._input(number)) for number in range(len(self.prompts))], self.n)

    @property
    def request_ids(self) -> list[RequestId]:
        """The engine's name for each prompt."""
        if len(self.prompts) == 1:
            return [RequestId(self.call_id)]
        return [RequestId(f"{self.call_id}-{number}") for number in range(len(self.prompts))]

    def drafts(self) -> Iterator[Draft]:
        """Yield what a verdict needs to know of each prompt."""
        for prompt in self.prompts:
            yield Draft(
                source=prompt.own_source(self.source),
                spans=prompt.part_spans,
                helped=prompt.helped,
                turn=prompt.turn,
            )

    def _input(self, number: int) -> GenerateInput:
        prompt = self.prompts[number]
        return GenerateInput(
            request_id=self.request_ids[number],
            prompt_token_ids=prompt.token_ids,
            params=self.params[number],
            tenant_salt=self.tenant_salt,
            cache_salt=self.cache_salt,
            priority=self.priority,
            retention=prompt.retention,
        )


async def _merge(
    prompts: Sequence[AsyncGenerator[RequestOutput, None]], n: int
) -> AsyncGenerator[IndexedOutput, None]:
    """Yield from the generators of all prompts at once; the first failure closes the others."""
    # Unbounded on purpose: a slow reader must not hold up the engine, and max_tokens bounds it anyway.
    outputs: _Queue = asyncio.Queue()
    pumps = [
        asyncio.ensure_future(_pump(number * n, n, prompt, outputs)) for number, prompt in enumerate(prompts)
    ]
    num_running = len(pumps)
    try:
        while num_running:
            item = await outputs.get()
            if item is None:
                num_running -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    first_index: int, n: int, prompt: AsyncGenerator[RequestOutput, None], outputs: _Queue
) -> None:
    """Put all outputs of a prompt in the queue, then None, or the exception that ended it."""
    num_live = n
    try:
        async with aclosing(prompt):
            async for output in prompt:
                _refuse_failure(output)
                outputs.put_nowait((first_index + output.index, output))
                num_live -= output.finish_reason is not None
        if num_live:
            raise EngineError("the engine ended the request without a reason")
        outputs.put_nowait(None)
    except Exception as error:  # noqa: BLE001 - it is raised again by the reader of the queue
        outputs.put_nowait(error)


def _refuse_failure(output: RequestOutput) -> None:
    """Turn an ending that no finish_reason of the API can express into an error."""
    if output.finish_reason in {FinishReason.ERROR, FinishReason.ABORT}:
        raise EngineError(f"the engine ended the request with {output.finish_reason.value}: {output.error}")
