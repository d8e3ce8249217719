"""Runs single steps on an OpenVINORunner and keeps the logits of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.ids import PageId, RequestId, TokenId
from anaphora.request import SamplingParams
from anaphora.runner.openvino.runner import OpenVINORunner, Sampler
from anaphora.scheduler.plan import (
    PageCopy,
    PromptLogprobSpec,
    SampleSpec,
    ScheduledChunk,
    StepPlan,
    StepResult,
)

Logits = NDArray[np.float32]
PAGE_SIZE = 32


@dataclass(frozen=True)
class Chunk:
    """Tokens `start … end` of a sequence that lies on `pages`.

    `num_logprobs` asks for the log probabilities of the tokens chosen, `num_prompt_logprobs` for those of the
    tokens of the sequence that the chunk predicts.
    """

    token_ids: Sequence[TokenId]
    start: int
    end: int
    pages: Sequence[int]
    num_samples: int = 1
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


class Stepper:
    """Numbers the chunks of a step 0, 1, 2 … and returns their logits in that order."""

    def __init__(self, make_runner: Callable[[Sampler], OpenVINORunner]) -> None:
        self.seen: Logits = np.zeros((0, 0), np.float32)
        self.runner = make_runner(self._sample)

    def _sample(self, logits: Logits, specs: Sequence[SampleSpec]) -> list[TokenId]:
        self.seen = np.array(logits)
        return [int(token_id) for token_id in logits.argmax(1)]

    def step(self, *chunks: Chunk, copies: Sequence[PageCopy] = ()) -> Logits:
        """Run one step; return the logits of its samples, [num_samples, vocab_size]."""
        self.seen = self.seen[:0]
        self.result(*chunks, copies=copies)
        return self.seen

    def result(self, *chunks: Chunk, copies: Sequence[PageCopy] = ()) -> StepResult:
        """Run one step; return what came of it."""
        scheduled = tuple(_scheduled(str(i), chunk) for i, chunk in enumerate(chunks))
        return self.runner.run(StepPlan(0, scheduled, tuple(copies)))

    def prefill(
        self, token_ids: Sequence[TokenId], pages: Sequence[int], *, cuts: Sequence[int] = (), start: int = 0
    ) -> Logits:
        """Compute a whole sequence from `start`, in chunks that end at `cuts`; return its last logits."""
        for begin, end in zip([start, *cuts], [*cuts, len(token_ids)], strict=True):
            self.step(Chunk(token_ids, begin, end, pages))
        last: Logits = self.seen[0]
        return last


def _scheduled(name: str, chunk: Chunk) -> ScheduledChunk:
    samples = tuple(
        SampleSpec(
            RequestId(f"{name}.{i}"),
            SamplingParams(logprobs=chunk.num_logprobs),
            0,
            chunk.token_ids,
            len(chunk.token_ids),
        )
        for i in range(chunk.num_samples)
    )
    predicted = chunk.token_ids[chunk.start + 1 : chunk.end + 1]
    is_asked = chunk.num_prompt_logprobs is not None and predicted
    return ScheduledChunk(
        RequestId(name),
        chunk.token_ids[chunk.start : chunk.end],
        chunk.start,
        [PageId(page) for page in chunk.pages],
        is_decode=chunk.end - chunk.start == 1,
        samples=samples,
        prompt_logprobs=PromptLogprobSpec(chunk.num_prompt_logprobs or 0, 0, predicted) if is_asked else None,
    )


class Pages:
    """Hands out shuffled pages, never the null page."""

    def __init__(self, num_pages: int, rng: np.random.Generator) -> None:
        self._free = [int(page) for page in 1 + rng.permutation(num_pages - 1)]

    def take(self, num_tokens: int) -> list[int]:
        """Return enough pages for so many tokens."""
        num = -(-num_tokens // PAGE_SIZE)
        taken, self._free = self._free[:num], self._free[num:]
        assert len(taken) == num, "the test needs more pages"
        return taken
