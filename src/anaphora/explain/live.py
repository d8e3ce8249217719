"""A running server's request, what its cache noted, and its nearest relatives → the case for a verdict.

Pure: who remembers requests and rebuilds their texts hands them in.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.cache.hashing import TOKEN_BYTES
from anaphora.explain.alignment import common_length
from anaphora.explain.finding import plural
from anaphora.explain.ghosts import Requester
from anaphora.explain.records import CacheFact, HitLaw, Lookup, PromptRecord, Render
from anaphora.explain.verdict import Case, longest_of, nearest_of
from anaphora.explain.watch import Admitted, MissedRun

_REPLY_TOKENS = 8
"""So many tokens of a reply, found in a later prompt, are no chance."""


@dataclass(frozen=True, slots=True)
class Relative:
    """An earlier request, when it was admitted, and how many hashes its sketch has in common with the request's."""

    record: PromptRecord
    time: float
    num_alike: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a verdict rests on besides the two prompts.

    `has_forgotten_requests` says that the memory of requests no longer reaches back to the start. The pages that
    would have kept a block are counted for LRU, whatever the policy.
    """

    law: HitLaw
    has_forgotten_requests: bool
    is_lru: bool = True
    coalesce_deadline_ms: int = 0


def num_compared(new: bytes, old: bytes, num_prompt_tokens: int, num_usable_tokens: int) -> int:
    """Return how many leading tokens of an earlier request are compared: its reply only if some of it was sent back.

    Both are packed; a chat may go on with other words, or be asked anew, and then the reply says nothing of it.
    """
    start, size = num_prompt_tokens * TOKEN_BYTES, _REPLY_TOKENS * TOKEN_BYTES
    reply = old[start : num_usable_tokens * TOKEN_BYTES]
    if not reply:
        return num_usable_tokens
    rest = new[common_length(new, old[:start]) :]
    pieces = (reply[at : at + size] for at in range(0, max(1, len(reply) - size + 1), size))
    return num_usable_tokens if any(piece in rest for piece in pieces) else num_prompt_tokens


def chosen_of(request: PromptRecord, relatives: Sequence[Relative], law: HitLaw) -> list[Relative]:
    """Return the relatives that a verdict rests on, first the one whose text is compared.

    The others are the longest token match, and the longest in the same namespace.
    """
    records = [relative.record for relative in relatives]
    alike = [record for record in records if record.namespace == request.namespace]
    num_alike = {id(relative.record): relative.num_alike for relative in relatives}
    nearest = nearest_of(request, alike or records, law, lambda record: num_alike[id(record)])
    own = longest_of(request, alike, nearest)
    others = [record for record in records if record.namespace != request.namespace]
    longest = longest_of(request, [*others, *alike], own)
    found = {id(record): record for record in (nearest, own, longest) if record is not None}
    return [relative for record in found.values() for relative in relatives if relative.record is record]


def case_of(
    request: PromptRecord,
    admitted: Admitted,
    chosen: Sequence[Relative],
    around: Surroundings,
    render: Render | None = None,
    against: PromptRecord | None = None,
) -> Case:
    """Return the case of an admitted request, from what `chosen_of` chose.

    `against` is compared with in place of the nearest; it changes no books.
    """
    records = [relative.record for relative in chosen]
    nearest = records[0] if records else None
    alike = [record for record in records if record.namespace == request.namespace]
    own = longest_of(request, alike, nearest)
    longest = longest_of(request, [*(record for record in records if record not in alike), *alike], own)
    books = _Books(request, admitted, around)
    books.add_lost(own, next((relative.time for relative in chosen if relative.record is own), None))
    books.add_foreign(longest if longest is not own else None)
    if longest is not own and longest is not None and books.has_foreign:
        nearest = longest
    return Case(
        request=request,
        lookup=Lookup(admitted.cached_tokens, tuple(books.labels)),
        law=around.law,
        longest=longest if books.has_foreign else own,
        nearest=against or nearest,
        render=render,
        is_named=against is not None,
        facts=books.facts,
        is_horizon_whole=not (around.has_forgotten_requests or admitted.num_forgotten_ghosts),
    )


class _Books:
    """The labels of the blocks from where reuse stopped, and what is known of each label."""

    def __init__(self, request: PromptRecord, admitted: Admitted, around: Surroundings) -> None:
        self._request = request
        self._admitted = admitted
        self._around = around
        self._size = around.law.block_size
        self.has_foreign = False
        self.labels = [run.first.label for run in admitted.runs for _ in range(run.num_blocks)]
        self.facts: dict[str, CacheFact] = {}
        for run in admitted.runs:
            if (fact := self._fact(run)) is not None:
                self.facts.setdefault(run.first.label, fact)

    @property
    def _end(self) -> int:
        """K, in blocks."""
        return self._admitted.cached_tokens // self._size + len(self.labels)

    def _num_missing_blocks(self, record: PromptRecord | None) -> int:
        """How many whole blocks behind K a record shares with the request."""
        if record is None or self._admitted.bypassed_by is not None:
            return 0
        matched = common_length(tuple(record.token_ids), tuple(self._request.token_ids))
        return max(0, matched // self._size - self._end)

    def add_lost(self, record: PromptRecord | None, time: float | None) -> None:
        """Label blocks that an earlier request has computed and that the books no longer know."""
        num_blocks = self._num_missing_blocks(record)
        if not num_blocks:
            return
        self.labels += ["evicted"] * num_blocks
        reset_time = self._admitted.reset_time
        if reset_time is not None and time is not None and time <= reset_time:
            age = _ago(self._admitted.time - reset_time)
            fact = CacheFact(f"The whole cache was reset {age}; {plural(num_blocks, 'block')} went with it.")
        else:
            fact = CacheFact(
                "An earlier request had computed these blocks, and they are gone; when is no longer remembered. "
                "Raise --explain-ghosts to know, or the size of the cache to keep them.",
                certainty="inferred",
            )
        self.facts.setdefault("evicted", fact)

    def add_foreign(self, record: PromptRecord | None) -> None:
        """Label blocks that are only known in another namespace."""
        num_blocks = self._num_missing_blocks(record)
        if record is None or not num_blocks:
            return
        self.has_foreign = True
        self.labels += ["namespace"] * num_blocks
        path = record.namespace.difference(self._request.namespace)
        words = "cache_salt differs" if path == "cache_salt" else f"{path} differs"
        self.facts["namespace"] = CacheFact(
            f"Same words, different cache namespace: {words}. Send the same {path} to share the cache.",
            path=path,
        )

    def _fact(self, run: MissedRun) -> CacheFact | None:
        if run.first.eviction is not None:
            return CacheFact(self._lost_words(run))
        if run.first.owner is not None:
            return CacheFact(self._owner_words(run))
        return None

    def _lost_words(self, run: MissedRun) -> str:
        eviction = run.first.eviction
        assert eviction is not None, "no eviction, no words"
        age = _ago(self._admitted.time - eviction.time)
        blocks = plural(run.num_blocks, "block")
        were = "was" if run.num_blocks == 1 else "were"
        if eviction.cause == "expired":
            return (
                f"The time for which {blocks} had been pinned was over, and then, {age}, they were evicted to make "
                "room. Pin them for longer, or send the prompt again in time."
            )
        whom = self._name(eviction.requester)
        short = self._admitted.num_pages_short
        pages = plural(eviction.num_pages, "page")
        about = "About" if self._around.is_lru else "With --eviction-policy lru, about"
        kept = "" if short is None else f" {about} {plural(short, 'more page')} would have kept them."
        return f"{blocks} {were} evicted {age} to make room for {whom}, which took {pages}.{kept}"

    def _owner_words(self, run: MissedRun) -> str:
        owner = run.first.owner
        assert owner is not None, "no owner, no words"
        whom = self._name(owner.requester)
        started = f"{max(0.0, self._admitted.time - owner.since) * 1000:,.0f} ms before"
        return (
            f"{whom[0].upper()}{whom[1:]} was still computing {plural(run.num_blocks, 'block')} of this prefix, "
            f"started {started}. Stagger the requests, or raise --coalesce-deadline-ms "
            f"({self._around.coalesce_deadline_ms:,} now)."
        )

    def _name(self, requester: Requester | None) -> str:
        """Name the caller's own requests, and no other's."""
        if requester is None:
            return "another request"
        is_own = requester.tenant_salt == self._admitted.tenant_salt
        return f"request {requester.request_id}" if is_own else "another tenant"


def _ago(seconds: float) -> str:
    seconds = max(0.0, seconds)
    return f"{seconds * 1000:,.0f} ms earlier" if seconds < 1 else f"{seconds:,.0f} s earlier"
