"""One request, what the cache answered, and the nearest earlier request → why it was not reused further.

The order in which codes are tried is that of docs/explain.md: the first that applies is the headline, the
others go under `also`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anaphora.explain import (
    history_kinds,
    marker_kinds,
    render_kinds,
    structure_kinds,
    user_kinds,
    value_kinds,
)
from anaphora.explain.alignment import common_length
from anaphora.explain.books import bypassed, partition
from anaphora.explain.comparison import Comparison
from anaphora.explain.finding import Finder, Finding, Fix
from anaphora.explain.records import (
    CacheFact,
    Counterfactual,
    Explanation,
    HitLaw,
    Lookup,
    PromptRecord,
    Render,
)

SNIPPET_CHARS = 120

CACHE_CAUSES = (
    "namespace",
    "in_flight",
    "evicted",
    "expired",
    "other_replica",
    "tier_refused",
    "tier_declined",
)
"""Causes that the cache tells, in the order in which they become the headline; before any content."""

CONTENT_FINDERS: tuple[Finder, ...] = (
    value_kinds.special_tokens,
    value_kinds.client_stamp,
    user_kinds.user_in_system,
    value_kinds.volatile_value,
    structure_kinds.tool_order,
    structure_kinds.tool_set,
    structure_kinds.settings,
    structure_kinds.whitespace,
    structure_kinds.unicode,
    structure_kinds.json_written,
    render_kinds.template,
    render_kinds.retokenised,
    structure_kinds.retrieved_docs_reordered,
    history_kinds.history_dropped,
    history_kinds.history_edited,
    history_kinds.history_moved,
    history_kinds.helper_call,
)

_REFINES: Mapping[str, Sequence[str]] = {
    "special_tokens": ("helper_call", "template"),
    "client_stamp": ("volatile_value",),
    "user_in_system": ("volatile_value",),
    "volatile_value": ("tool_set", "history_edited"),
    "whitespace": ("unicode", "history_edited"),
    "unicode": ("history_edited",),
    "json_order": ("history_edited",),
    "json_format": ("history_edited",),
    "retrieved_docs_reordered": ("history_edited", "history_moved"),
    "history_dropped": ("history_moved", "history_edited"),
    "history_edited": ("history_moved",),
}
"""What a narrower code says already: the general ones that the same stretch also looks like are not repeated."""

FINE_CAUSES = frozenset({"ok_partial", "never_seen", "too_short", "architecture"})
"""Codes that say that nothing was lost but by the law."""

_ARCHITECTURE = {
    "one_token": "one block was given back, since a prefill of fewer than {law.min_prefill_tokens} "
    "tokens is not computed exactly",
    "decode_written": "the blocks were written while decoding, and --exact-reuse takes only what a prefill wrote",
    "draft_drop": "the draft model needs the last block computed again",
    "checkpoint": "the state that the model needs at this place was not kept",
}
_DEFAULT_ADVICE = {
    "namespace": "Same words, different cache namespace.",
    "in_flight": "Another request was still computing this prefix. Stagger, or raise --coalesce-deadline-ms.",
    "evicted": "These blocks were evicted to make room for others. A larger cache would have kept them.",
    "expired": "These blocks had outlived their time.",
    "other_replica": "Another replica holds these blocks. Send a stable prompt_cache_key, or use prefix routing.",
    "tier_refused": "A cold copy exists, but may not be used.",
    "tier_declined": "A cold copy exists, but loading it was slower than computing.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything that a verdict on one request needs.

    `longest` is the request with the longest token match, by which the books are kept; `nearest` is the one
    whose text is compared, the same unless the caller named another. `facts` say more of the labels in `lookup`.
    `is_horizon_whole` is False once the books have forgotten anything. `is_named` says that the caller named `nearest`.
    """

    request: PromptRecord
    lookup: Lookup
    law: HitLaw
    longest: PromptRecord | None = None
    nearest: PromptRecord | None = None
    render: Render | None = None
    facts: Mapping[str, CacheFact] = field(default_factory=dict)
    is_horizon_whole: bool = True
    is_named: bool = False


def explain(case: Case, *, with_counterfactual: bool = True) -> Explanation:
    """Return the explanation of one request.

    The counterfactual renders edited bodies again: it belongs on no hot path, and may be left out.
    """
    return _Verdict(case).explanation(with_counterfactual=with_counterfactual)


def nearest_of(
    request: PromptRecord,
    earlier: Sequence[PromptRecord],
    law: HitLaw,
    likeness: Callable[[PromptRecord], int] | None = None,
) -> PromptRecord | None:
    """Return the earlier request that this one is most like: of those that match nearly longest, the closest.

    Among equals the latest. At most eight are compared: in full, unless `likeness` says how alike one is.
    """
    if not earlier:
        return None
    ids = tuple(request.token_ids)
    matched = [common_length(ids, tuple(record.token_ids)) for record in earlier]
    least = max(matched) - law.block_size
    whole = [
        record for record, length in zip(earlier, matched, strict=True) if _is_whole(length, record, ids)
    ]
    close = [record for record, length in zip(earlier, matched, strict=True) if length > least][-8:]
    if whole and whole[-1] in close:
        return whole[-1]
    if len(close) == 1:
        return close[0]

    def in_full(record: PromptRecord) -> int:
        c = Comparison(record, request)
        same_messages = len(set(c.old_keys) & set(c.new_keys))
        return c.num_matched + c.num_behind + same_messages

    scores = list(map(likeness or in_full, close))
    best = max(scores)
    return next(r for r, score in zip(reversed(close), reversed(scores), strict=True) if score == best)


def _is_whole(num_matched: int, record: PromptRecord, ids: Sequence[int]) -> bool:
    """Whether one of two prompts is the beginning of the other: nothing can be more alike."""
    return num_matched == min(len(record.token_ids), len(ids))


def longest_of(
    request: PromptRecord, earlier: Sequence[PromptRecord], preferred: PromptRecord | None
) -> PromptRecord | None:
    """Return the earlier request with the longest token match; `preferred` among equals, else the latest."""
    ids = tuple(request.token_ids)
    best, best_length = None, -1
    for record in earlier:
        length = common_length(ids, tuple(record.token_ids))
        if length > best_length or (length == best_length and best is not preferred):
            best, best_length = record, length
    return best


class _Verdict:
    """The steps of one verdict; lives for one call."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._request = case.request
        self._num_tokens = len(case.request.token_ids)
        self._nearest = case.nearest or case.longest
        self._comparison = (
            Comparison(self._nearest, case.request, case.render) if self._nearest is not None else None
        )
        self._books = self._book()
        self._fix: Counterfactual | None = None

    def _book(self) -> Mapping[str, int]:
        case = self._case
        if self._request.bypassed_by is not None:
            return bypassed(self._num_tokens)
        longest = case.longest or case.nearest
        if longest is None:
            return partition(self._num_tokens, case.lookup, case.law, 0, 0)
        c = self._comparison
        if c is None or longest is not self._nearest:
            c = Comparison(longest, self._request)
        return partition(self._num_tokens, case.lookup, case.law, len(c.old_ids), c.num_matched, c.runs)

    def explanation(self, *, with_counterfactual: bool) -> Explanation:
        """Return the headline with its place, its words and its numbers."""
        findings = self._findings()
        head = findings[0]
        c = self._comparison
        is_compared = c is not None and (head.code != "never_seen" or self._case.is_named)
        has_place = is_compared and c is not None and c.has_diverged
        lost = self._tokens_lost(head.code)
        self._fix = self._counterfactual(head) if with_counterfactual else None
        place = c.char_offset if has_place and c is not None else None
        return Explanation(
            request_id=self._request.request_id,
            prompt_tokens=self._num_tokens,
            reused_tokens=0 if self._request.bypassed_by else self._case.lookup.reused_tokens,
            best_possible_reuse=self._case.law.best_possible(self._num_tokens),
            cause=head.code,
            path=head.path or (self._path() if has_place else None),
            char_offset=place,
            token_index=c.num_matched if has_place and c is not None else None,
            block_index=self._case.lookup.reused_tokens // self._case.law.block_size,
            old=_trimmed(head.old),
            new=_trimmed(head.new),
            tokens_lost=lost,
            advice=self._advice(head, lost, place),
            counterfactual=self._fix,
            certainty=head.certainty,
            also=_others(head.code, [finding.code for finding in findings[1:]]),
            uncached=self._books,
            compared_with=self._nearest.request_id if is_compared and self._nearest else None,
        )

    # The decision.

    def _findings(self) -> list[Finding]:
        """All codes that apply, in their order."""
        found = [self._bypassed(), self._too_short_prompt(), *self._cache_findings()]
        content = self._content_findings()
        found += content
        found.append(self._marker())
        found.append(self._architecture())
        if not content:
            found += [self._system_edited(), self._never_seen()]
        applying = [finding for finding in found if finding is not None]
        return applying or [self._too_short_match() or self._ok_partial()]

    def _bypassed(self) -> Finding | None:
        field_name = self._request.bypassed_by
        if field_name is None:
            return None
        if field_name.startswith("--"):
            words = f"This server was started with {field_name}: blocks are neither read nor written. Leave it out."
            return Finding(code="bypassed", advice=words)
        return Finding(
            code="bypassed",
            path=field_name,
            advice=f"This request asked for {field_name}, which needs every position computed. Blocks "
            "were written, not read.",
        )

    def _too_short_prompt(self) -> Finding | None:
        size = self._case.law.block_size
        if self._num_tokens - 1 >= size:
            return None
        return Finding(
            code="too_short",
            advice=f"The prompt has {self._num_tokens} tokens. Whole blocks of {size} are reused, and "
            "the last token is always "
            "computed. Largest possible hit: 0.",
        )

    def _cache_findings(self) -> list[Finding]:
        labels = {label.partition(":")[0] for label in self._case.lookup.block_labels}
        found = []
        for code in CACHE_CAUSES:
            if code in labels:
                fact = self._case.facts.get(code, CacheFact(_DEFAULT_ADVICE[code]))
                found.append(Finding(code=code, advice=fact.advice, certainty=fact.certainty, path=fact.path))
        return found

    def _content_findings(self) -> list[Finding]:
        c = self._comparison
        if c is None or not c.has_diverged:
            return []
        law = self._case.law
        if c.is_seam and law.whole_blocks(c.num_matched) == law.whole_blocks(len(c.old_ids)):
            return []  # it costs no block
        return [finding for finder in CONTENT_FINDERS if (finding := finder(c)) is not None]

    def _marker(self) -> Finding | None:
        return marker_kinds.marker(self._request, self._nearest)

    def _architecture(self) -> Finding | None:
        sub = next((sub for sub in _ARCHITECTURE if self._books.get(sub)), None)
        if sub is None:
            return None
        why = _ARCHITECTURE[sub].format(law=self._case.law)
        best = self._case.law.best_possible(self._num_tokens)
        return Finding(
            code="architecture",
            advice=f"{self._books[sub]:,} tokens were computed although they are cached: {why}. "
            f"Largest possible hit: {best:,} tokens.",
        )

    def _system_edited(self) -> Finding | None:
        return history_kinds.system_edited(self._comparison) if self._comparison else None

    def _never_seen(self) -> Finding | None:
        c = self._comparison
        if self._case.lookup.reused_tokens if c is None else not _is_stranger(c):
            return None
        if self._case.is_named:
            words = "The two requests share no whole part, and neither is a version of the other."
            return Finding(code="never_seen", advice=words)
        horizon = "" if self._case.is_horizon_whole else " within what is remembered"
        reused = self._case.lookup.reused_tokens
        opening = f"; it shares only its opening, {reused:,} tokens, with another" if reused else ""
        return Finding(
            code="never_seen",
            advice=f"First time we see this prompt{horizon}{opening}.",
            certainty="known" if self._case.is_horizon_whole else "inferred",
        )

    def _too_short_match(self) -> Finding | None:
        c, size = self._comparison, self._case.law.block_size
        if c is None or not 0 < c.num_matched < size:
            return None
        return Finding(
            code="too_short",
            advice=f"The shared prefix is {c.num_matched} tokens. Whole blocks of {size} are reused. "
            "Largest possible hit: 0.",
        )

    def _ok_partial(self) -> Finding:
        reused, best = self._case.lookup.reused_tokens, self._case.law.best_possible(self._num_tokens)
        if reused == best:
            return Finding(
                code="ok_partial", advice=f"The hit is the maximum possible: {self._law_words()} = {best:,}."
            )
        c = self._comparison
        if c is None:  # the blocks are there, and whose they were is no longer remembered
            words = f"What follows the {reused:,} reused tokens is in no prompt that is remembered."
            return Finding(code="ok_partial", advice=words, certainty="inferred")
        advice = (
            f"All {self._case.law.whole_blocks(c.num_matched):,} tokens that this prompt shares in "
            "whole blocks were reused; "
            "what follows is new."
        )
        return Finding(code="ok_partial", advice=advice)

    def _law_words(self) -> str:
        """The largest hit as a sum."""
        law, num_tokens = self._case.law, self._num_tokens
        whole = f"floor(({num_tokens}-1)/{law.block_size})*{law.block_size}"
        is_less = law.best_possible(num_tokens) < law.whole_blocks(num_tokens - 1)
        return f"{whole}-{law.block_size}" if is_less else whole

    # The words.

    def _path(self) -> str | None:
        c = self._comparison
        if c is None:
            return None
        prompt = c.new.prompt
        span = prompt.span_at(min(c.char_offset, len(prompt.text) - 1))
        if c.new.body.prompt is not None:
            return "prompt"
        return c.new.body.translated(span.path) if span is not None else None

    def _tokens_lost(self, code: str) -> int:
        if code == "bypassed" or code in CACHE_CAUSES:
            stranded = self._books.get("stranded", 0) if code != "bypassed" else 0
            return self._books.get(code, 0) + stranded
        if code in {"ok_partial", "never_seen", "marker"}:
            return 0
        if code == "architecture":
            return sum(self._books.get(sub, 0) for sub in _ARCHITECTURE)
        if code == "too_short":
            return self._books.get("block_floor", 0) + self._books.get("last_token", 0)
        return self._books.get("behind_change", 0)

    def _counterfactual(self, head: Finding) -> Counterfactual | None:
        """What the fix would have given; where it makes the prompt longer, as much of it as this one could hit."""
        fix = head.fix() if head.fix is not None else None
        counted = None if fix is None else self._count(fix)
        if fix is None or counted is None:
            return None
        reused = min(self._case.law.hit(*counted), self._case.law.best_possible(self._num_tokens))
        return Counterfactual(fix.change, reused) if reused >= self._case.lookup.reused_tokens else None

    def _count(self, fix: Fix) -> tuple[int, int] | None:
        """The tokens in common if both requests had been written this way, and of how many."""
        if fix.common is not None or fix.bodies is None or self._comparison is None:
            return fix.common
        old, new = (self._comparison.render(body) for body in fix.bodies)
        if old is None or new is None:
            return None
        return common_length(tuple(old.token_ids), tuple(new.token_ids)), len(new.token_ids)

    def _advice(self, head: Finding, lost: int, place: int | None) -> str:
        advice = head.advice.replace("{char_offset:,}", f"{place or 0:,}")
        if self._fix is None:
            return advice
        wasted = f" {lost:,} tokens behind the change were computed again." if lost else ""
        change, reused = self._fix.change, self._fix.reused_tokens
        if reused == self._case.lookup.reused_tokens:
            return f"{advice}{wasted} To {change} alone would not have reused more than {reused:,} tokens."
        return f"{advice}{wasted} To {change} would have reused {reused:,} of {self._num_tokens:,} tokens."


def _others(head: str, codes: Sequence[str]) -> tuple[str, ...]:
    hidden = {head, *_REFINES.get(head, ())}
    return tuple(dict.fromkeys(code for code in codes if code not in hidden))


def _is_stranger(c: Comparison) -> bool:
    """Whether the two prompts share no whole part of a caller, and are no versions of one another."""
    if not c.has_diverged and c.num_matched:
        return False
    if c.new.body.prompt is not None or c.old.body.prompt is not None:
        return not c.is_version
    has_tools = any(
        re.fullmatch(r"tools\[\d+\]", span.path) and 0 < span.token_end <= c.num_matched
        for span in c.new.prompt.spans
    )
    return c.num_equal_messages == 0 and not c.is_version and not has_tools


def _trimmed(text: str | None) -> str | None:
    if text is None or len(text) <= SNIPPET_CHARS:
        return text
    return text[: SNIPPET_CHARS - 1] + "…"
