"""What `peers.py` asks of each server: prompts alone, documents with questions, conversations, bursts."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from anaphora.bench.client import Client
from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.workloads import PromptMaker
from anaphora.errors import TargetError


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the workloads are, in tokens and numbers."""

    prompts: tuple[int, ...] = (1441, 5401)
    outputs: int = 64
    documents: int = 8
    document: int = 1024
    questions: int = 16
    turns: int = 10
    steps: int = 20
    head: int = 1200
    burst: int = 16
    batch: int = 16


QUICK = Sizes(prompts=(1441,), outputs=32, documents=4, document=512, questions=4, turns=5, steps=8, batch=8)

Texts = Sequence[str]
Figures = dict[str, float]


class Unit:
    """One workload on one server in one round: sends, and keeps what came back."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answers: list[Answer] = []
        self.failure: str | None = None

    async def ask(self, text: str, max_tokens: int) -> Answer:
        """Send one text while nothing else runs."""
        await self._client.touch()
        return (await self._send([text], max_tokens))[0]

    async def burst(self, texts: Texts, max_tokens: int) -> float:
        """Send texts at one moment; return the seconds until the last was answered."""
        await self._client.touch(len(texts))
        started = time.perf_counter()
        await self._send(texts, max_tokens)
        return time.perf_counter() - started

    async def _send(self, texts: Texts, max_tokens: int) -> list[Answer]:
        prompts = [Prompt(text=text, num_tokens=0) for text in texts]
        answers = await asyncio.gather(*(self._client.complete(prompt, max_tokens) for prompt in prompts))
        self.answers += answers
        for answer in answers:
            why = answer.failure
            if why is None and answer.completion_tokens not in {None, max_tokens}:
                why = f"{answer.completion_tokens} instead of {max_tokens} output tokens"
            self.failure = self.failure or why
        if self.failure:
            raise TargetError(self.failure)
        return answers

    @property
    def cached(self) -> int | None:
        """The cached tokens of all answers, or None where one does not say."""
        known = [answer.cached_tokens for answer in self.answers if answer.cached_tokens is not None]
        return sum(known) if known and len(known) == len(self.answers) else None


def first_ms(answer: Answer) -> float:
    """Return the time to the first token."""
    return (answer.ttft_s or answer.e2e_s) * 1e3


async def one_prompt(unit: Unit, texts: Texts, sizes: Sizes) -> Figures:
    """Cold, the same again three times, a never-seen one right after, then the first with many output tokens.

    Two tokens each, because transformers keeps nothing of a request that ends with its prefill.
    """
    cold = await unit.ask(texts[0], 2)
    warm = [first_ms(await unit.ask(texts[0], 2)) for _ in range(3)]
    control = await unit.ask(texts[1], 2)
    long = await unit.ask(texts[0], sizes.outputs)
    figures = {"cold": first_ms(cold), "warm": statistics.median(warm), "control": first_ms(control)}
    if long.tpot_s is None:  # the server does not say how many tokens there were
        return figures
    return figures | {"inter-token": long.tpot_s * 1e3}


async def each(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """One text after the other: the mean time of an answer of eight tokens, and the median first token."""
    answers = [await unit.ask(text, 8) for text in texts]
    first = statistics.median(map(first_ms, answers))
    return {"first token": first, "a request": statistics.mean(answer.e2e_s for answer in answers) * 1e3}


async def conversation(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """Each text is put behind all that was said: the whole time, and the first token of the later turns."""
    said, answers = "", list[Answer]()
    for text in texts:
        said += f"{text}\n"
        answers.append(await unit.ask(said, 24))
        said += f"{answers[-1].text}\n"
    later = statistics.median(map(first_ms, answers[1:]))
    return {"first token, 2nd and later": later, "in total": sum(answer.e2e_s for answer in answers) * 1e3}


async def identical(unit: Unit, texts: Texts, sizes: Sizes) -> Figures:
    """Many requests for one text at one moment."""
    seconds = await unit.burst(texts * sizes.burst, 8)
    return {
        "first token": statistics.median(map(first_ms, unit.answers)),
        "until the last": seconds * 1e3,
    }


async def batch(unit: Unit, texts: Texts, _sizes: Sizes) -> Figures:
    """Never-seen texts at one moment: tokens per second, prompts and outputs together."""
    seconds = await unit.burst(texts, 32)
    counts = [count for answer in unit.answers for count in (answer.prompt_tokens, answer.completion_tokens)]
    known = [count for count in counts if count is not None]
    return {"tokens/s": sum(known) / seconds} if len(known) == len(counts) else {}


Run = Callable[[Unit, Texts, Sizes], Awaitable[Figures]]


async def workloads(maker: PromptMaker, sizes: Sizes, rng: random.Random) -> list[tuple[str, Run, Texts]]:
    """Return the workloads of a round with new texts."""

    async def fresh(*lengths: int) -> list[str]:
        return [(await maker.fresh(length)).text for length in lengths]

    documents = await fresh(*[sizes.document] * sizes.documents)
    questions = [f"{text} {q}" for text in documents for q in await fresh(*[24] * sizes.questions)]
    rng.shuffle(questions)
    return [
        *[(f"prompt of {size:,}", one_prompt, await fresh(size, size)) for size in sizes.prompts],
        (f"RAG, {sizes.documents} × {sizes.questions}", each, questions),
        (f"multi-turn, {sizes.turns}", conversation, await fresh(*[96] * sizes.turns)),
        (f"agent, {sizes.steps} steps", conversation, await fresh(sizes.head, *[80] * (sizes.steps - 1))),
        (f"{sizes.burst} identical", identical, await fresh(600)),
        (f"{sizes.batch} different, no hits", batch, await fresh(*[512] * sizes.batch)),
    ]
