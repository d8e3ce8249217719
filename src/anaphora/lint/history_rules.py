"""L12 and L13: side calls that quote a conversation behind their instruction, and replies that are cut otherwise."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator

from anaphora.errors import RequestError
from anaphora.explain.bodies import ChatBody
from anaphora.explain.comparison import Comparison
from anaphora.explain.history_kinds import helper_call
from anaphora.explain.records import PromptRecord, Render
from anaphora.explain.render_kinds import retokenised
from anaphora.lint.log import Log, opening_of
from anaphora.lint.spots import Source
from anaphora.lint.suspect import Suspect, against, trimmed

NUM_REMEMBERED = 64
"""So many conversations back a side call may speak of."""

MIN_AHEAD_CHARS = 8


def side_calls(log: Log) -> Iterator[Suspect]:
    """L12: a title, a tag or a summary asked for in front of the quoted conversation."""
    recent: OrderedDict[str, int] = OrderedDict()
    seen: set[str] = set()
    found: dict[int, tuple[int, str]] = {}
    path = evidence = ""
    for index, spots in enumerate(log.spots):
        new = [spot for spot in spots if spot.text not in seen]
        seen.update(spot.text for spot in new)
        for earlier, instruction in _quoted([spot.text for spot in new if not spot.is_system], recent):
            finding = helper_call(Comparison(log.records[earlier], log.records[index]))
            if finding is not None and index not in found:
                found[index] = (earlier, instruction)
                path, evidence = path or finding.path or "", evidence or repr(trimmed(finding.new or "", 120))
        words = opening_of(spots)
        if words is not None:
            recent[words] = index
            recent.move_to_end(words)
            if len(recent) > NUM_REMEMBERED:
                recent.popitem(last=False)
    if found:
        yield Suspect(
            rule="L12",
            code="helper_call",
            path=path,
            evidence=evidence,
            fix="Send the conversation as it was, and put the instruction behind it as one more user message.",
            indices=tuple(sorted(found)),
            certainty="inferred",
            mend=_instructed_behind(log, found),
        )


def _quoted(texts: list[str], recent: "OrderedDict[str, int]") -> Iterator[tuple[int, str]]:
    """The latest requests whose first words stand in a text, and what stands in front of them there."""
    for text in texts:
        for words, index in reversed(recent.items()):
            start = text.find(words.strip())
            if start >= MIN_AHEAD_CHARS:
                yield index, text[:start]


def _instructed_behind(log: Log, found: dict[int, tuple[int, str]]) -> Callable[[int, Source], Source]:
    def mend(index: int, source: Source) -> Source:
        if index not in found:
            return source
        earlier, instruction = found[index]
        older = log.sources[earlier]
        messages = older.get("messages")
        if not isinstance(messages, list):
            return source
        message = {"role": "user", "content": instruction.strip()}
        return {**older, "messages": [*messages, message]}

    return mend


# ---------------------------------------------------------------------------------------------------------------------
# L13


def unstable_replies(log: Log, render: Render) -> Iterator[Suspect]:
    """L13: replies whose text does not come back from their tokens, or whose tokens run into their neighbours'."""
    seen: dict[str, str | None] = {}
    indices: list[int] = []
    path = evidence = ""
    for index, record in enumerate(log.records):
        for spot in log.spots[index]:
            if spot.role == "assistant" and spot.text:
                if spot.text not in seen:
                    seen[spot.text] = _fault(record, spot.path, spot.text, render)
                if seen[spot.text] is not None:
                    path, evidence = path or spot.path, evidence or str(seen[spot.text])
                    if not indices or indices[-1] != index:
                        indices.append(index)
    lost = _lost_by_other_tokens(log)
    if indices or lost:
        yield Suspect(
            rule="L13",
            code="retokenised",
            path=path,
            evidence=evidence or "the same characters were cut into other tokens",
            fix="Send token ids, or have the server keep the generated tokens (--splice-generated-tokens).",
            indices=tuple(indices),
            lost=lost,
        )


def _fault(record: PromptRecord, path: str, text: str, render: Render) -> str | None:
    prompt = record.prompt
    span = next((span for span in prompt.spans if record.body.translated(span.path) == path), None)
    starts = prompt.char_starts
    if span is not None and starts is not None:
        number = bisect_right(starts, span.char_start) - 1
        first = starts[number]
        if first < span.char_start:
            return f"the token {prompt.text[first : prompt.char_of(number + 1)]!r} begins before the reply"
    try:
        raw = render(ChatBody(prompt=text, source={"add_special_tokens": False}))
        back = render(ChatBody(prompt=tuple(raw.token_ids))).text
    except RequestError:
        return None
    return None if back == text else against(*_difference(text, back))


def _difference(text: str, back: str) -> tuple[str, str]:
    place = next(
        (i for i, (a, b) in enumerate(zip(text, back, strict=False)) if a != b), min(len(text), len(back))
    )
    start = max(0, place - 10)
    return text[start : place + 20], back[start : place + 20]


def _lost_by_other_tokens(log: Log) -> int:
    lost = 0
    for index, near in enumerate(log.nearest):
        if near is None or near.num_matched in {0, len(log.records[near.request].token_ids)}:
            continue
        c = Comparison(log.records[near.request], log.records[index])
        finding = retokenised(c)
        fix = finding.fix() if finding is not None and finding.fix is not None else None
        if fix is not None and fix.common is not None:
            now = log.law.hit(c.num_matched, len(c.new_ids))
            lost += max(0, log.law.hit(fix.common[0], len(c.new_ids)) - now)
    return lost
