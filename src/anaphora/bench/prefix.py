"""Is caching on, and what is it worth? Cold, warm, warm and control arms, interleaved."""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.bench.evidence import TEST, TOLERATED_BIAS, Timing, Verdict, judge, timing
from anaphora.bench.experiment import (
    Bench,
    Conclusion,
    at_hit_rate,
    compare_texts,
    length,
    ms,
    share_cached,
    ttft,
)
from anaphora.bench.measurement import Log, first_tokens_s
from anaphora.bench.session import Plan
from anaphora.bench.statistics import interleaved, ratio_interval
from anaphora.bench.target import Target

UNITS = (("cold",), ("warm", "warm", "control"))
_SHORT_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixExperiment:
    """Each round primes one prompt, repeats it twice, and sends two that were never seen, one of them right after."""

    tokens: int = 1500
    rounds: int = 8
    output_tokens: int = 16
    name: str = "prefix"
    arms: tuple[str, ...] = ("cold", "warm", "control")
    loop: str = "closed, one request at a time"
    same_length: bool = True
    as_planned: bool = True

    @property
    def num_requests(self) -> int:
        """A priming one, and four measured ones a round; without those that follow where the clock says nothing."""
        return self.rounds * 5

    @property
    def longest(self) -> int:
        """Prompt and output."""
        return self.tokens + self.output_tokens

    async def measure(self, bench: Bench) -> None:
        """Prime and measure round by round."""
        prompts = bench.session.prompts
        primed = None
        for number, arm in interleaved(bench.order, self.rounds, UNITS):
            if primed is None or primed[0] != number:
                primed = number, await prompts.fresh(self.tokens)
                plan = Plan(
                    arm="prime",
                    number=number,
                    planned=prompts.head_tokens,
                    max_tokens=self.output_tokens,
                    phase="prime",
                )
                await bench.session.prime(primed[1], plan)
            is_warm = arm == "warm"
            prompt = primed[1] if is_warm else await prompts.fresh(self.tokens)
            planned = prompt.num_tokens if is_warm else prompts.head_tokens
            await bench.session.send(
                prompt, Plan(arm=arm, number=number, planned=planned, max_tokens=self.output_tokens)
            )
        if timing(bench.log.good("warm"), bench.log.good("control"), 1.0).says != "yes":
            await self._probe(bench)

    async def _probe(self, bench: Bench) -> None:
        """Ask what a prompt costs that is hardly there: only then may the clock say that nothing is saved."""
        for number in range(self.rounds):
            short = await bench.session.prompts.fresh(_SHORT_TOKENS)
            plan = Plan(
                arm="short",
                number=number,
                planned=bench.session.prompts.head_tokens,
                max_tokens=self.output_tokens,
                phase="probe",
            )
            await bench.session.send(short, plan)

    def conclude(self, log: Log, targets: Sequence[Target]) -> Conclusion:
        """Say whether prefixes are cached, who says so, and what it is worth."""
        warm, cold, control = log.good("warm"), log.good("cold"), log.good("control")
        share = share_cached(warm)
        short = [entry for entry in log if entry.phase == "probe" and entry.is_good]
        by_clock = timing(warm, control, share or 1.0, short)
        around = 0 if warm and warm[0].prompt.is_exact else targets[0].num_around
        verdict = judge(warm, [*cold, *control], by_clock, targets[0].unit, around)
        primes = {entry.number: entry for entry in log if entry.phase == "prime"}
        conclusion = Conclusion(
            findings=[_headline(verdict)],
            disagreements=list(verdict.disagreements),
            doubts=_bias(log),
            equality=compare_texts(
                [(primes[entry.number], entry) for entry in warm if entry.number in primes]
            ),
            details={"verdict": verdict.as_json(), "hit_rate_warm": share},
            is_flagged=verdict.caching != "on",
        )
        if warm and control:
            _say_worth(log, by_clock, conclusion)
        if by_clock.ratio is None:
            conclusion.doubts.append("fewer than three warm or control requests were answered")
        return conclusion


def _headline(verdict: Verdict) -> str:
    says = verdict.timing.says
    text = (
        f"prefix caching: {verdict.caching} (usage: {verdict.reported}, /metrics: {verdict.counters}, "
        f"timing: {says})"
    )
    if {verdict.reported, verdict.counters} == {"silent"}:
        text += f"; reuse is inferred from timing only, by {TEST}"
    return text


def _say_worth(log: Log, by_clock: Timing, conclusion: Conclusion) -> None:
    """State the times, and a gain only where warm beats the control, with all that it depends on."""
    warm, control = log.good("warm"), log.good("control")
    facts = f"{at_hit_rate(warm)} on prompts of {length(warm):,} tokens, one request at a time"
    times = f"warm {ms(ttft(warm))}, control {ms(ttft(control))}"
    conclusion.findings.append(f"time to first token {facts}: {times}")
    if by_clock.says == "yes" and by_clock.ratio:
        low, high = by_clock.ratio
        conclusion.claims.append(f"warm takes {low:.3f} to {high:.3f} of the control's time, {facts}")
    else:
        conclusion.findings.append(
            f"no gain is claimed, since warm is not clearly below control ({by_clock.figures})"
        )
    if short := [entry for entry in log if entry.phase == "probe" and entry.is_good]:
        conclusion.findings.append(
            f"a never-seen prompt of {length(short):,} tokens takes {ms(ttft(short))}: only what longer ones take "
            "beyond that can be saved"
        )


def _bias(log: Log) -> list[str]:
    """Control and cold are the same kind of request: where they differ, something else than the cache is at work."""
    cold, control = first_tokens_s(log.good("cold")), first_tokens_s(log.good("control"))
    ratio = ratio_interval(control, cold) if cold and control else None
    if ratio is None or (ratio[0] <= 1 + TOLERATED_BIAS and ratio[1] >= 1 - TOLERATED_BIAS):
        return []
    facts = f"control takes {ratio[0]:.2f} to {ratio[1]:.2f} of cold, though neither was seen before"
    return [f"{facts}: a warm-up or the machine is at work, not the cache"]
