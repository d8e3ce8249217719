"""One API call as one or more sequences in the engine: several prompts, or n answers, or both.

Knows no wire format; `answers.py` gives the outputs their shape.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from anaphora.engine.protocols import EngineClient, GenerateInput
from anaphora.errors import EngineError
from anaphora.ids import RequestId
from anaphora.request import FinishReason, RequestOutput, SamplingParams, Usage
from anaphora.server.prompts import Prompt

IndexedOutput: TypeAlias = tuple[int, RequestOutput]
_Queue: TypeAlias = asyncio.Queue[IndexedOutput | Exception | None]

_NUM_SEEDS = 2**64
_MIN_SEED = -(2**63)


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
    """What is asked of the engine; sequence i belongs to prompt i // n."""

    call_id: str
    prompts: Sequence[Prompt]
    params: Sequence[SamplingParams]
    tenant_salt: bytes | None
    cache_salt: str | None

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
        return _merge([engine.generate(self._input(index)) for index in range(self.num_sequences)])

    def _input(self, index: int) -> GenerateInput:
        prompt, params = self.prompts[index // self.n], self.params[index // self.n]
        return GenerateInput(
            request_id=RequestId(self.call_id if self.num_sequences == 1 else f"{self.call_id}-{index}"),
            prompt_token_ids=prompt.token_ids,
            params=params.with_changes(n=1, seed=_seed_of(params.seed, index % self.n)),
            tenant_salt=self.tenant_salt,
            cache_salt=self.cache_salt,
            spans=prompt.spans,
        )


def _seed_of(seed: int | None, answer: int) -> int | None:
    """Return the seed of one of n answers, which would all be the same under one seed."""
    return None if seed is None else (seed + answer - _MIN_SEED) % _NUM_SEEDS + _MIN_SEED


async def _merge(
    sequences: Sequence[AsyncGenerator[RequestOutput, None]],
) -> AsyncGenerator[IndexedOutput, None]:
    """Yield from all generators at once; the first failure closes the others."""
    # Unbounded on purpose: a slow reader must not hold up the engine, and max_tokens bounds it anyway.
    outputs: _Queue = asyncio.Queue()
    pumps = [
        asyncio.ensure_future(_pump(index, sequence, outputs)) for index, sequence in enumerate(sequences)
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


async def _pump(index: int, sequence: AsyncGenerator[RequestOutput, None], outputs: _Queue) -> None:
    """Put all outputs of a sequence in the queue, then None, or the exception that ended it."""
    finish_reason = None
    try:
        async with aclosing(sequence):
            async for output in sequence:
                _refuse_failure(output)
                outputs.put_nowait((index, output))
                finish_reason = output.finish_reason
        if finish_reason is None:
            raise EngineError("the engine ended the request without a reason")
        outputs.put_nowait(None)
    except Exception as error:  # noqa: BLE001 - it is raised again by the reader of the queue
        outputs.put_nowait(error)


def _refuse_failure(output: RequestOutput) -> None:
    """Turn an ending that no finish_reason of the API can express into an error."""
    if output.finish_reason in {FinishReason.ERROR, FinishReason.ABORT}:
        raise EngineError(f"the engine ended the request with {output.finish_reason.value}: {output.error}")
