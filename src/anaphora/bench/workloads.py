"""Makes prompts of an exact number of tokens, each unlike every other from its first block on.

Texts are random common words, drawn by a seed. Words that the server does not take as one token each are left out.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from anaphora.bench.measurement import Prompt
from anaphora.bench.tokens import TokenCounter, num_shared

_TRIES = 6
_MIN_WORDS = 32
_SAMPLE = 40


def common_words() -> tuple[str, ...]:
    """Return the words that prompts are made of."""
    return tuple(files("anaphora.bench").joinpath("words.txt").read_text("utf-8").split())


@dataclass(frozen=True, slots=True)
class Pair:
    """Two prompts, and how many tokens they have in common at their beginning."""

    first: Prompt
    second: Prompt
    shared: int


class PromptMaker:
    """Draws prompts. One seed gives one series of prompts, whatever is asked in between."""

    def __init__(self, counter: TokenCounter, seed: int) -> None:
        self.counter = counter
        self._seed = seed
        self._rng = random.Random(f"{seed}:words")
        self._words: Sequence[str] = common_words()
        self.head_tokens = 0
        """Tokens that every prompt begins with: a mark of the beginning, or the head of a chat template."""
        self._around = 0
        self._per_word = 1.0

    async def prepare(self) -> None:
        """Find the words that are one token each, and what the server puts around a text."""
        if not self.counter.is_exact:
            return
        kept = await self._single(self._words)
        if len(kept) >= _MIN_WORDS:
            self._words = kept
        a, b = self.words(_SAMPLE), self.words(_SAMPLE)
        counts = [await self.counter.count(" ".join(words)) for words in (a, b, a + b)]
        if counts[2].num_tokens <= counts[0].num_tokens:
            self.counter.distrust()
            return
        self._per_word = (counts[2].num_tokens - counts[0].num_tokens) / _SAMPLE
        self._around = counts[0].num_tokens - round(self._per_word * _SAMPLE)
        self.head_tokens = num_shared(counts[0].ids or (), counts[1].ids or ())

    async def _single(self, words: Sequence[str]) -> list[str]:
        """Return those that are one token behind another word, asking by halves."""
        base = (await self.counter.count("the")).num_tokens
        pending, kept = [list(words)], list[str]()
        while pending:
            part = pending.pop()
            counted = (await self.counter.count(" ".join(["the", *part]))).num_tokens - base
            if counted == len(part):
                kept += part
            elif len(part) > 1:
                pending += [part[: len(part) // 2], part[len(part) // 2 :]]
        return sorted(kept)

    def words(self, num_words: int) -> list[str]:
        """Draw some words."""
        return self._rng.choices(self._words, k=max(0, num_words))

    def fixed_words(self, name: str, num_words: int) -> list[str]:
        """Return the words that belong to a name: the same whenever they are asked for, with one seed."""
        return random.Random(f"{self._seed}:{name}").choices(self._words, k=num_words)

    async def fresh(self, num_tokens: int) -> Prompt:
        """Return a prompt that was never sent."""
        return await self.fitted(num_tokens)

    async def fitted(self, num_tokens: int, before: str = "", after: str = "") -> Prompt:
        """Return a prompt of fixed texts with as many new words between them as make that many tokens.

        Where words are several tokens each, the length is as near as whole words allow.
        """
        words = self.words(num_tokens + _SAMPLE)
        fixed = len(before.split()) + len(after.split())
        num_words = max(1, round((num_tokens - self._around) / self._per_word) - fixed)
        for _ in range(_TRIES):
            prompt = await self.prompt(_joined(before, " ".join(words[:num_words]), after))
            more = self._words_for(num_tokens - prompt.num_tokens)
            if more == 0 or num_words + more < 1:
                break
            num_words += more
            words += self.words(num_words - len(words))
        return prompt

    def _words_for(self, num_tokens: int) -> int:
        """Return how many words more (or fewer, below 0) make up for so many tokens."""
        return round(num_tokens / self._per_word)

    async def prompt(self, text: str) -> Prompt:
        """Return a text as a prompt, with its length."""
        counted = await self.counter.count(text)
        return Prompt(text=text, num_tokens=counted.num_tokens, is_exact=self.counter.is_exact)

    async def pair(self, shared: int, num_tokens: int) -> Pair:
        """Return two prompts of one length that have as nearly as possible `shared` tokens in common."""
        stem = self.words(shared)
        num_words = max(0, self._words_for(shared - self.head_tokens))
        for _ in range(_TRIES):
            pair = await self._pair(stem[:num_words], num_tokens)
            more = self._words_for(shared - pair.shared)
            if more == 0 or not 0 <= num_words + more <= len(stem):
                break
            num_words += more
        return pair

    async def _pair(self, stem: list[str], num_tokens: int) -> Pair:
        heads = self._rng.sample(self._words, 2)
        prompts = [await self.fitted(num_tokens, before=" ".join([*stem, head])) for head in heads]
        return Pair(prompts[0], prompts[1], await self.shared(prompts[0], prompts[1]))

    async def shared(self, a: Prompt, b: Prompt) -> int:
        """Return how many tokens two prompts have in common at their beginning."""
        if self.counter.is_exact:
            counts = [await self.counter.count_prompt(prompt) for prompt in (a, b)]
            return num_shared(counts[0].ids or (), counts[1].ids or ())
        left, right = a.text.split(), b.text.split()
        same = (place for place, (x, y) in enumerate(zip(left, right, strict=False)) if x != y)
        return next(same, min(len(left), len(right)))


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)
