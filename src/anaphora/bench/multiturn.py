"""A conversation that grows: the reply comes back as text, and, where the server gives them, as token ids.

Text that a server tokenizes again may give other tokens than those that it generated: what is then lost is the gap
between the two arms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.bench.experiment import Bench, Conclusion, cached_of, hit_rate, ms, sum_cached, ttft
from anaphora.bench.measurement import Log, Measurement, Prompt
from anaphora.bench.session import Plan
from anaphora.bench.statistics import median
from anaphora.bench.target import Target

_IDS = {"return_token_ids": True}
_TOLERATED = 0.1
"""Of the length: a chat of several messages has more around them than one of a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiturnExperiment:
    """Each round has one conversation per arm; behind each turn of `text` comes a never-seen prompt of its length."""

    turns: int = 5
    rounds: int = 4
    tokens: int = 150
    output_tokens: int = 32
    name: str = "multiturn"
    arms: tuple[str, ...] = ("text", "ids", "control")
    loop: str = "closed, one request at a time"
    same_length: bool = False
    as_planned: bool = False

    @property
    def num_requests(self) -> int:
        """At most three a turn."""
        return self.rounds * self.turns * 3

    @property
    def longest(self) -> int:
        """The last turn and its reply."""
        return self.turns * (self.tokens + self.output_tokens + 16)

    async def measure(self, bench: Bench) -> None:
        """Have the conversations."""
        arms = ["text", "ids"] if bench.session.target.gives_token_ids else ["text"]
        for number in range(self.rounds):
            for arm in bench.order.sample(arms, len(arms)):
                if arm == "ids":
                    await self._by_ids(bench, number)
                else:
                    await self._by_text(bench, number)

    async def _by_text(self, bench: Bench, number: int) -> None:
        prompts, session = bench.session.prompts, bench.session
        is_chat = session.target.api == "chat"
        said: list[tuple[str, str]] = []
        planned = prompts.head_tokens
        for turn in range(1, self.turns + 1):
            said.append(("user", " ".join(prompts.words(self.tokens))))
            prompt = await self._spoken(bench, said, is_chat=is_chat)
            sent = await session.send(prompt, self._plan("text", number, turn, planned))
            control = await prompts.fresh(sent.prompt_tokens if prompt.is_exact else prompt.num_tokens)
            await session.send(control, self._plan("control", number, turn, prompts.head_tokens))
            if not sent.is_good:
                return
            said.append(("assistant", sent.answer.text))
            planned = _written(sent)

    async def _spoken(self, bench: Bench, said: Sequence[tuple[str, str]], *, is_chat: bool) -> Prompt:
        counter = bench.session.prompts.counter
        # A reply begins with its own blank or line break.
        text = "".join(
            part if role == "assistant" or not place else f" {part}"
            for place, (role, part) in enumerate(said)
        )
        messages = tuple({"role": role, "content": part} for role, part in said) if is_chat else None
        counted = await counter.count_prompt(Prompt(text=text, num_tokens=0, messages=messages))
        return Prompt(text=text, num_tokens=counted.num_tokens, is_exact=counter.is_exact, messages=messages)

    async def _by_ids(self, bench: Bench, number: int) -> None:
        prompts, session = bench.session.prompts, bench.session
        ids: tuple[int, ...] = ()
        planned = prompts.head_tokens
        for turn in range(1, self.turns + 1):
            words = " ".join(prompts.words(self.tokens))
            counted = await prompts.counter.count(words if turn == 1 else f" {words}")
            if counted.ids is None:
                return
            ids += counted.ids if turn == 1 else counted.ids[prompts.head_tokens :]
            prompt = Prompt(text="", num_tokens=len(ids), ids=ids)
            sent = await session.send(prompt, self._plan("ids", number, turn, planned), **_IDS)
            if not sent.is_good:
                return
            ids += sent.answer.token_ids
            planned = _written(sent)

    def _plan(self, arm: str, number: int, turn: int, planned: int) -> Plan:
        return Plan(
            arm=arm,
            number=number,
            axis=turn,
            planned=planned,
            max_tokens=self.output_tokens,
            is_counted=turn > 1 and arm != "control",
        )

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Say how much of the conversation each turn found, and what is lost by replaying text."""
        unit = targets[0].unit
        conclusion = Conclusion(details={"turns": _by_turn(log, unit)})
        text, ids = log.good("text"), log.good("ids")
        later = [entry for entry in text if entry.axis > 1]
        conclusion.findings.append(
            f"text replayed, turns 2 and later: hit rate {hit_rate(later)}, achieved ÷ achievable "
            f"{_achieved(later, unit)}, time to first token {ms(ttft(later))}"
        )
        control = [entry for entry in log.good("control") if entry.axis > 1]
        conclusion.doubts += _lengths(later, control)
        conclusion.findings.append(
            f"never-seen prompts of the same lengths: time to first token {ms(ttft(control))}"
        )
        if not targets[0].gives_token_ids:
            conclusion.findings.append(
                "ids replayed: not measured, since the server gives no token ids (return_token_ids); "
                "what retokenizing replies loses is unknown"
            )
            return conclusion
        later_ids = [entry for entry in ids if entry.axis > 1]
        conclusion.findings.append(
            f"ids replayed, turns 2 and later: hit rate {hit_rate(later_ids)}, achieved ÷ achievable "
            f"{_achieved(later_ids, unit)}"
        )
        lost = [_lost(entries, unit) for entries in (later, later_ids)]
        conclusion.details["lost_tokens_per_turn"] = {"text": lost[0], "ids": lost[1]}
        if lost[0] is not None and lost[1] is not None:
            conclusion.findings.append(
                f"lost by replaying text instead of ids: {lost[0] - lost[1]:,.1f} tokens a turn of what was achievable"
            )
        return conclusion


def _written(sent: Measurement) -> int:
    """Return how many tokens of this turn have K/V: all but the last generated one."""
    return sent.prompt_tokens + max(0, (sent.answer.completion_tokens or 1) - 1)


def _reuse(entry: Measurement, unit: int) -> int:
    return min(entry.planned, entry.prompt_tokens - 1) // unit * unit


def _achieved(entries: Sequence[Measurement], unit: int) -> str:
    cached, best = sum_cached(entries), sum(_reuse(entry, unit) for entry in entries)
    return "unknown" if cached is None or not best else f"{cached / best:.3f}"


def _lengths(text: Sequence[Measurement], control: Sequence[Measurement]) -> list[str]:
    """Times can be laid side by side only where the prompts are about as long."""
    lengths = [_mean([entry.prompt_tokens for entry in entries]) for entries in (text, control)]
    if lengths[0] is None or lengths[1] is None or abs(lengths[0] - lengths[1]) <= _TOLERATED * lengths[0]:
        return []
    return [f"prompts differ in length: text {lengths[0]:,.0f}, control {lengths[1]:,.0f}"]


def _lost(entries: Sequence[Measurement], unit: int) -> float | None:
    """Return the tokens per turn that could have been reused and were not."""
    cached = sum_cached(entries)
    return None if cached is None else (sum(_reuse(e, unit) for e in entries) - cached) / len(entries)


def _by_turn(log: Log, unit: int) -> list[dict[str, Any]]:
    """Return, for each arm and turn, the middle values over the rounds."""
    rows = []
    for arm in ("text", "ids", "control"):
        for turn in sorted({entry.axis for entry in log.good(arm)}):
            entries = [entry for entry in log.good(arm) if entry.axis == turn]
            times = [e.answer.ttft_s for e in entries if e.answer.ttft_s is not None]
            rows.append(
                {
                    "arm": arm,
                    "turn": turn,
                    "prompt_tokens": _mean([e.prompt_tokens for e in entries]),
                    "achievable": _mean([_reuse(e, unit) for e in entries]),
                    "cached_tokens": _mean([cached_of(e) for e in entries]),
                    "ttft_ms": median(times) * 1000 if times else None,
                }
            )
    return rows


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
