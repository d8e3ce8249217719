"""L9, L10 and L11: begin-of-text twice, prefixes too short to be reused, and markers that cannot work."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from anaphora.explain.marker_kinds import marker
from anaphora.explain.value_kinds import doubled_front
from anaphora.lint.hosted import HostedLimit, limit_of
from anaphora.lint.log import Log
from anaphora.lint.spots import Source
from anaphora.lint.suspect import Suspect, trimmed


def double_begin(log: Log) -> Iterator[Suspect]:
    """L9: a prompt that begins with its begin-of-text token twice."""
    found = {}
    for index, record in enumerate(log.records):
        markup = doubled_front(record.prompt)
        if markup is not None:
            found[index] = markup
    if not found:
        return
    first = next(iter(found))
    yield Suspect(
        rule="L9",
        code="special_tokens",
        path="prompt" if log.records[first].body.prompt is not None else "template-preamble",
        evidence=repr(trimmed(log.records[first].prompt.text, 40)),
        fix="Send one begin-of-text token: render with tokenize=True, or encode with add_special_tokens=False.",
        indices=tuple(found),
        mend=lambda index, source: _with_one_begin(source, found.get(index)),
    )


def _with_one_begin(source: Source, markup: str | None) -> Source:
    prompt = source.get("prompt")
    if markup is None:
        return source
    if isinstance(prompt, str) and prompt.startswith(markup):
        return {**source, "prompt": prompt[len(markup) :]}
    if isinstance(prompt, list) and len(prompt) > 1 and prompt[0] == prompt[1]:
        return {**source, "prompt": prompt[1:]}
    return source


def short_prefixes(log: Log, limits: Sequence[HostedLimit], named: Collection[int]) -> Iterator[Suspect]:
    """L10: what requests share is shorter than a block, or a prompt is below what its hosted model caches.

    A short match of a request that is `named` by another rule is the doing of that one.
    """
    size = log.law.block_size
    short = {i for i, record in enumerate(log.records) if log.law.best_possible(len(record.token_ids)) == 0}
    matched = {
        i: near.num_matched
        for i, near in enumerate(log.nearest)
        if near is not None and 0 < near.num_matched < size and i not in short and i not in named
        if _begin_alike(log, near.request, i)
    }
    if short:
        count = len(log.records[min(short)].token_ids)
        yield _short(
            f"{count} tokens in a prompt; whole blocks of {size} are reused, and the last token is computed",
            sorted(short),
        )
    if matched:
        count = next(iter(matched.values()))
        yield _short(f"{count} tokens are shared; whole blocks of {size} are reused", list(matched))
    yield from _below_hosted(log, limits)


def _begin_alike(log: Log, earlier: int, index: int) -> bool:
    """Whether two requests have their first text in common, or are raw prompts."""
    a, b = (log.spots[i][0] if log.spots[i] else None for i in (earlier, index))
    return a is None or b is None or a.role == b.role == "prompt" or a.text == b.text


def _short(evidence: str, indices: list[int]) -> Suspect:
    return Suspect(
        rule="L10",
        code="too_short",
        path="prompt",
        evidence=evidence,
        fix="Put what all requests share first, in the same words, and let it fill a block.",
        indices=tuple(indices),
    )


def _below_hosted(log: Log, limits: Sequence[HostedLimit]) -> Iterator[Suspect]:
    below: dict[HostedLimit, list[int]] = defaultdict(list)
    for index, record in enumerate(log.records):
        limit = limit_of(str(log.sources[index].get("model") or ""), limits)
        if limit is not None and len(record.token_ids) < limit.min_tokens:
            below[limit].append(index)
    for limit, indices in below.items():
        count = len(log.records[indices[0]].token_ids)
        yield Suspect(
            rule="L10",
            code="too_short",
            path="prompt",
            evidence=f"about {count:,} tokens for {log.sources[indices[0]].get('model')}; {limit.service} caches from "
            f"{limit.min_tokens:,} (as of {limit.as_of})",
            fix="Expect no hosted cache hit for these, or let the shared part reach the minimum.",
            indices=tuple(indices),
            certainty="inferred",
        )


def wrong_markers(log: Log) -> Iterator[Suspect]:
    """L11: markers for hosted caches: too many, in a wrong order, behind a value, too far from the end, too early."""
    groups: dict[str, list[int]] = defaultdict(list)
    said: dict[str, tuple[str, str]] = {}
    for index, record in enumerate(log.records):
        finding = marker(record)
        if finding is not None:
            kind = re.sub(r"\d[\d,]*", "#", finding.advice)
            groups[kind].append(index)
            said.setdefault(kind, (finding.path or "", finding.advice))
    for kind, indices in groups.items():
        path, advice = said[kind]
        what, _, fix = advice.partition(". ")
        yield Suspect(
            rule="L11",
            code="marker",
            path=path,
            evidence=what,
            fix=fix or f"{what}.",
            indices=tuple(indices),
            certainty="inferred",
            severity="low" if "ignore markers below" in advice else "medium",
        )
