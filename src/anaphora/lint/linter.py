"""A log → what keeps its prompts from being reused, each finding with its cost in tokens, worst first.

Renders nothing itself: it is handed what renders a body. Costs are replayed, not guessed: a finding costs what the
log would have reused without it, alone or after all the others, whichever is more, since one fault hides another.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from anaphora.errors import RequestError
from anaphora.explain.bodies import ChatBody, read_body
from anaphora.explain.records import Render
from anaphora.ids import TokenId
from anaphora.lint.history_rules import side_calls, unstable_replies
from anaphora.lint.hosted import HostedLimit
from anaphora.lint.image_rules import DecodePixels, images_of, recoded_images, with_stand_ins
from anaphora.lint.json_rules import json_form, schema_order, tool_order
from anaphora.lint.log import Log
from anaphora.lint.prompt_rules import double_begin, short_prefixes, wrong_markers
from anaphora.lint.reuse import Prompt, Reuse, replay
from anaphora.lint.section_rules import conditional_sections
from anaphora.lint.spots import Source
from anaphora.lint.suspect import MAX_LINES, SEVERITIES, LintFinding, Suspect, severity_of
from anaphora.lint.template_rules import clock_in_template, rewritten_history
from anaphora.lint.value_rules import values_in_front

Tick: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and of how much."""

_BODY_RULES: tuple[Callable[[Log], Iterator[Suspect]], ...] = (
    values_in_front,
    conditional_sections,
    tool_order,
    schema_order,
    json_form,
    double_begin,
    wrong_markers,
    side_calls,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the rules may use.

    `count` gives the tokens of `render` alone, faster. `template_source` None: the template is not the one that the
    log was made with.
    """

    render: Render
    count: Callable[[ChatBody], Sequence[TokenId]]
    template_source: str | None = None
    limits: Sequence[HostedLimit] = ()
    decode_pixels: DecodePixels | None = None
    num_pages: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings, worst first, and the rules that could not run with the reason."""

    findings: tuple[LintFinding, ...]
    reuse: Reuse
    not_run: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the object that the command prints."""
        return {
            "requests": len(self.reuse.reused),
            "prompt_tokens": self.reuse.prompt_tokens,
            "reused_tokens": self.reuse.reused_tokens,
            "hit_rate": round(self.reuse.hit_rate, 4),
            "findings": [finding.as_json() for finding in self.findings],
            "not_run": [{"rule": rule, "reason": reason} for rule, reason in self.not_run.items()],
        }


def _say_nothing(what: str, done: int, total: int) -> None:
    return


def lint(log: Log, means: Means, tick: Tick = _say_nothing) -> Report:
    """Return what is wrong with a log; raises ContextLengthError for a prompt that `num_pages` cannot hold."""
    not_run = _not_run(log, means)
    suspects = list(_suspects(log, means, tick))
    costs = _Costs(log, means, suspects)
    findings = []
    for number, suspect in enumerate(suspects):
        tick("counting costs", number, len(suspects))
        lost = costs.lost(number)
        findings.append(
            LintFinding(
                suspect=suspect,
                severity=severity_of(lost, costs.now.prompt_tokens, suspect.severity),
                tokens_lost=lost,
                lines=tuple(log.requests[i].line for i in suspect.indices[:MAX_LINES]),
            )
        )
    return Report(findings=tuple(sorted(findings, key=_rank)), reuse=costs.now, not_run=not_run)


def _rank(finding: LintFinding) -> tuple[int, int, int]:
    return SEVERITIES.index(finding.severity), -finding.tokens_lost, int(finding.suspect.rule[1:])


def _not_run(log: Log, means: Means) -> dict[str, str]:
    reasons = {}
    if means.template_source is None:
        no_template = "the template of the model is not known; give --model or --chat-template"
        reasons.update({"L7": no_template, "L8": no_template})
    if means.decode_pixels is None and any(any(images_of(source)) for source in log.sources):
        reasons["L14"] = "pictures cannot be decoded without Pillow; pip install 'anaphora[images]'"
    if not means.limits:
        reasons["L10 (hosted minimum)"] = "no table of hosted services was given"
    return reasons


def _suspects(log: Log, means: Means, tick: Tick) -> Iterator[Suspect]:
    named: set[int] = set()
    rules: list[Callable[[], Iterable[Suspect]]] = [lambda rule=rule: rule(log) for rule in _BODY_RULES]  # type: ignore[misc]
    rules.append(lambda: short_prefixes(log, means.limits, named))
    rules.append(lambda: unstable_replies(log, means.render))
    source, decode = means.template_source, means.decode_pixels
    if source is not None:
        rules.append(lambda: rewritten_history(log, means.render))
        rules.append(lambda: clock_in_template(source, len(log)))
    if decode is not None:
        rules.append(lambda: recoded_images(log, decode))
    for number, rule in enumerate(rules):
        tick("looking for faults", number, len(rules))
        for suspect in rule():
            if suspect.mend is not None:
                named.update(suspect.indices)
            yield suspect


class _Costs:
    """Replays the log with some faults mended; each body is rendered once for each way of mending it."""

    def __init__(self, log: Log, means: Means, suspects: Sequence[Suspect]) -> None:
        self._log, self._means, self._suspects = log, means, suspects
        self._ids: dict[tuple[int, tuple[int, ...]], array[int]] = {}  # a fifth of what tuples take
        self._reuse: dict[tuple[tuple[int, ...], ...], int] = {}
        self.now = replay([Prompt.of(record) for record in log.records], log.law, means.num_pages)

    def lost(self, number: int) -> int:
        """Return the tokens that would be reused without a fault and are not with it."""
        if self._suspects[number].mend is None:
            return self._suspects[number].lost
        everything = range(len(self._suspects))
        alone = self._reused([number]) - self.now.reused_tokens
        last = self._reused(everything) - self._reused([i for i in everything if i != number])
        return max(0, alone, last)

    def _reused(self, numbers: Sequence[int]) -> int:
        sources = [self._mended(index, numbers) for index in range(len(self._log))]
        key = tuple(changed for _, changed in sources)
        if not any(key):
            return self.now.reused_tokens
        if key not in self._reuse:
            prompts = [
                Prompt.of(self._log.records[index], self._token_ids(index, source, changed))
                for index, (source, changed) in enumerate(sources)
            ]
            self._reuse[key] = replay(prompts, self._log.law, self._means.num_pages).reused_tokens
        return self._reuse[key]

    def _mended(self, index: int, numbers: Sequence[int]) -> tuple[Source, tuple[int, ...]]:
        source, changed = self._log.sources[index], []
        for number in numbers:
            mend = self._suspects[number].mend
            made = source if mend is None else mend(index, source)
            if made is not source:
                source = made
                changed.append(number)
        return source, tuple(changed)

    def _token_ids(self, index: int, source: Source, changed: tuple[int, ...]) -> Sequence[TokenId]:
        if not changed:
            return self._log.records[index].token_ids
        if (index, changed) not in self._ids:
            self._ids[index, changed] = array("q", self._rendered(index, source))
        return [TokenId(token_id) for token_id in self._ids[index, changed]]

    def _rendered(self, index: int, source: Source) -> Sequence[TokenId]:
        try:
            return self._means.count(read_body(with_stand_ins(source)))
        except RequestError:
            return self._log.records[index].token_ids  # mended, it could not be sent: nothing is gained
