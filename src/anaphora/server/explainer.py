"""Verdicts of a running server, made beside the engine: a thread takes its notes in, and answers when asked why.

The engine's thread only hands notes over; comparing, and rebuilding texts from token ids, happens here.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from anaphora.cache.chain import pack_tokens, unpack_tokens
from anaphora.cache.hashing import TOKEN_BYTES
from anaphora.errors import UnknownRequestError
from anaphora.explain import skeleton
from anaphora.explain.bodies import ChatBody
from anaphora.explain.books import labelled
from anaphora.explain.comparison import Comparison
from anaphora.explain.history import Compared, EarlierTurn, History, Place, Remembered, Scope
from anaphora.explain.live import Relative, Surroundings, case_of, chosen_of, num_compared
from anaphora.explain.records import Contents, Explanation, HitLaw, PartSpan, PromptRecord, RenderedPrompt
from anaphora.explain.sketch import sketch_of
from anaphora.explain.vendors import NamedComparison, NotCompared, named_comparison
from anaphora.explain.verdict import Case, explain
from anaphora.explain.watch import Admitted, Ended, Note
from anaphora.ids import TokenId
from anaphora.server.prompt_records import READ_FIELDS
from anaphora.server.rebuilt_records import Reading, RebuiltRecords

logger = logging.getLogger(__name__)

MAX_LONGER = 8
"""How many times as many tokens a text may have that comes back in other tokens."""

VERDICT_WAIT_S = 5.0
"""How long an answer waits for its verdict, which is ready long before in any case that was seen."""

STEP_BEGINS_S = 0.001
"""How long the engine's thread takes from the note of an admission to the model, which frees the interpreter.

Whoever takes the interpreter in that time is waited for: the first token of a prompt of 1,400 cached tokens came
1.5 ms later, of 25.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What the server knows of a prompt that it hands to the engine.

    `source` is the body as it was sent, but for what the server changed in it; `helped` says what that was, and how
    many leading tokens the unchanged prompt has in common with this one. `turn` is the digest of the conversation
    that a later request may go on from.
    """

    source: Mapping[str, Any]
    spans: tuple[PartSpan, ...] = ()
    helped: tuple[tuple[str, int], ...] = ()
    turn: bytes | None = None


class Explainer:
    """Remembers requests and explains them. `note` belongs to the engine's thread, all else to any."""

    def __init__(
        self,
        history: History,
        reading: Reading,
        law: HitLaw,
        *,
        count_missed: Callable[[Mapping[tuple[str, str], int]], None],
        count_failure: Callable[[], None],
        is_lru: bool,
        coalesce_deadline_ms: int,
        wall_time: Callable[[], float] = time.time,
        wait_s: float = VERDICT_WAIT_S,
        let_step_begin: Callable[[], None] = lambda: time.sleep(STEP_BEGINS_S),
    ) -> None:
        self._history = history
        self._reading = reading
        self._law = law
        self._count_missed, self._count_failure = count_missed, count_failure
        self._is_lru = is_lru
        self._coalesce_deadline_ms = coalesce_deadline_ms
        self._wall_time, self._wait_s, self._let_step_begin = wall_time, wait_s, let_step_begin
        self._notes: queue.SimpleQueue[Note | threading.Event | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of the history
        self._drafts: dict[str, Draft] = {}
        self._verdicts: dict[str, Future[Explanation]] = {}
        self._thread = threading.Thread(target=self._run, name="anaphora-explain", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread once it has taken in all notes."""
        self._notes.put(None)
        if self._thread.is_alive():
            self._thread.join()

    # From the engine.

    def note(self, note: Note) -> None:
        """Take in what the engine has noted; returns at once."""
        self._notes.put(note)

    # From the server.

    def expect(self, request_id: str, draft: Draft) -> None:
        """Announce a prompt before the engine gets it."""
        self._verdicts[request_id] = Future()
        self._drafts[request_id] = draft

    def dismiss(self, request_id: str) -> None:
        """Say that nobody waits for a request's verdict any more; it stays remembered."""
        self._verdicts.pop(request_id, None)
        self._drafts.pop(request_id, None)

    async def verdict(self, request_id: str) -> Explanation | None:
        """Return the verdict of an expected request without its counterfactual, waiting for it a while."""
        future = self._verdicts.get(request_id)
        if future is None:
            return None
        verdict = asyncio.wrap_future(future)
        await asyncio.wait([verdict], timeout=self._wait_s)
        return verdict.result() if verdict.done() and not verdict.cancelled() else None

    async def settle(self) -> None:
        """Return once all notes of now have been taken in, so that the counts of causes are complete."""
        if not self._thread.is_alive():
            return
        done = threading.Event()
        self._notes.put(done)
        await asyncio.to_thread(done.wait, self._wait_s)

    async def explanation(
        self, request_id: str, tenant_salt: bytes | None, against: str | None = None
    ) -> Explanation:
        """Return the whole explanation of a request, its text compared with that of `against` if one is named.

        Raises UnknownRequestError for requests that are unknown, forgotten, or another tenant's.
        """
        await self.settle()
        return await asyncio.to_thread(self._explain, request_id, tenant_salt, against)

    async def diagnosis(
        self, request_id: str, tenant_salt: bytes | None, against: str
    ) -> NamedComparison | NotCompared:
        """Return how a request differs from the one that the caller named; a diagnosis never fails a request."""
        await self.settle()
        return await asyncio.to_thread(self._diagnose, request_id, tenant_salt, against)

    async def requests(self, tenant_salt: bytes | None, limit: int) -> list[Remembered]:
        """Return what is remembered of a tenant's requests, the latest first."""
        await self.settle()
        with self._lock:
            self._history.forget_old(self._wall_time())
            return self._history.latest(tenant_salt, limit)

    async def earlier_turns(
        self, scope: Scope, turns: Sequence[bytes], limit: int
    ) -> list[tuple[bytes, EarlierTurn]]:
        """Return the ended requests of these conversations, in the order of the digests, the latest of each first."""
        await self.settle()  # the reply that comes back may have ended a moment ago
        found: list[tuple[bytes, EarlierTurn]] = []
        with self._lock:
            self._history.forget_old(self._wall_time())
            for turn in turns:
                found += [(turn, earlier) for earlier in self._history.turns(scope, turn, limit - len(found))]
        return found

    def remembered(self, request_id: str, tenant_salt: bytes | None) -> Remembered:
        """Return what is remembered of a request; raises UnknownRequestError."""
        with self._lock:
            self._history.forget_old(self._wall_time())
            found = self._history.get(request_id, tenant_salt)
        if found is None or found.note is None:
            limits = self._history.limits
            raise UnknownRequestError(
                f"no request {request_id[:100]!r} of yours is remembered; records are kept for {limits.max_age_s:,.0f} "
                f"seconds, for the latest {limits.max_requests:,} requests, and in {limits.max_bytes:,} bytes at most: "
                "ask sooner, or raise --explain-ttl-s, --explain-requests or --explain-memory",
                param="request_id",
            )
        return found

    @property
    def limits(self) -> Mapping[str, float]:
        """How much is remembered at most, by the names of the wire."""
        return dict(self._history.limits._asdict())

    # The thread.

    def _run(self) -> None:
        while (note := self._notes.get()) is not None:
            if isinstance(note, threading.Event):
                note.set()
                continue
            try:
                if isinstance(note, Admitted):
                    if self._notes.empty():  # else it is late already
                        self._let_step_begin()
                    self._take_admission(note)
                else:
                    self._take_end(note)
            except Exception:
                logger.exception("a verdict could not be made of %s", note.request_id)
                self._count_failure()
                if future := self._verdicts.get(note.request_id):
                    future.cancel()

    def _take_admission(self, admitted: Admitted) -> None:
        """Find out why, tell who waits, then remember the request: it must not be its own relative."""
        draft = self._drafts.pop(admitted.request_id, None)
        token_ids = admitted.token_ids[: admitted.num_prompt_tokens]
        packed = pack_tokens(token_ids)
        with self._lock:
            request = self._history.new(admitted, self._wall_time())
            request.had_forgotten = bool(self._history.num_forgotten) or not self._history.limits.max_bytes
        if draft is not None:
            request.helped = draft.helped
        if self._history.limits.max_bytes:
            request.sketch = sketch_of(packed)
            if draft is not None:
                self._take_draft(request, draft, token_ids)
        records = RebuiltRecords(self._reading)
        own = records.record(request, token_ids)
        with self._lock:
            relatives = self._relatives(records, request, packed, self._history.relatives(request, packed))
        chosen = chosen_of(own, relatives, self._law)
        # From here on as whoever asks later will have it.
        request.compared = self._compared(chosen)
        with self._lock:
            case = self._case(RebuiltRecords(self._reading), request, token_ids)
        found = self._safely_explained(case)
        if admitted.bypassed_by is None:
            self._count_missed(labelled(found.uncached))
        request.note = replace(found, old=None, new=None, advice="")
        self._tell(found)
        if self._history.limits.max_bytes:
            request.stopped_at = self._stopped_at(case.request, admitted.cached_tokens)
        with self._lock:
            self._history.add(request, packed)

    def _take_draft(self, request: Remembered, draft: Draft, token_ids: Sequence[TokenId]) -> None:
        request.spans, request.turn = draft.spans, draft.turn
        text = self._reading.text(token_ids)
        source = {name: value for name, value in draft.source.items() if name in READ_FIELDS}
        request.body = skeleton.pack(source, text)

    def _safely_explained(self, case: Case) -> Explanation:
        """Return the verdict; should a comparison fail, which is our fault, the one that needs none."""
        try:
            return explain(case, with_counterfactual=False)
        except Exception:
            logger.exception("request %s could not be compared", case.request.request_id)
            self._count_failure()
            alone = replace(case.request, contents=lambda: Contents(ChatBody(), RenderedPrompt("", ())))
            return explain(
                replace(case, request=alone, longest=None, nearest=None, render=None),
                with_counterfactual=False,
            )

    def _tell(self, found: Explanation) -> None:
        future = self._verdicts.get(found.request_id)
        if future is not None:
            with suppress(InvalidStateError):  # nobody waits any more
                future.set_result(found)

    def _take_end(self, ended: Ended) -> None:
        with self._lock:
            request = self._history.find(ended.request_id)
            if request is not None:
                self._history.end(request, ended.token_ids, ended.num_computed_tokens)

    # Building records.

    def _relatives(
        self, records: RebuiltRecords, request: Remembered, packed: bytes, earlier: Sequence[Remembered]
    ) -> list[Relative]:
        """Return earlier requests as far as their K/V exist, if any was cached; the lock is held."""
        least, sketch = self._law.block_size, set(request.sketch)
        return [
            replace(
                self._relative(records, found, self._num_compared(packed, found)),
                num_alike=len(sketch.intersection(found.sketch)),
            )
            for found in earlier
            if found.num_usable_tokens >= min(least, found.admitted.num_prompt_tokens)
        ]

    def _num_compared(self, packed: bytes, earlier: Remembered) -> int:
        old, num_usable = self._history.packed(earlier), earlier.num_usable_tokens
        num_prompt = earlier.admitted.num_prompt_tokens
        found = num_compared(packed, old, num_prompt, num_usable)
        start = num_prompt * TOKEN_BYTES
        if not (found == num_prompt < num_usable and packed.startswith(old[:start])):
            return found
        # The same text may have come back as other tokens.
        reply = self._reading.text(unpack_tokens(old[start : num_usable * TOKEN_BYTES]))
        rest = self._reading.text(unpack_tokens(packed[start : start + MAX_LONGER * len(old)]))
        return num_usable if reply and rest.startswith(reply) else found

    def _relative(self, records: RebuiltRecords, request: Remembered, num_tokens: int) -> Relative:
        record = records.record(request, self._history.token_ids(request), num_tokens)
        return Relative(record, request.admitted.time)

    def _stopped_at(self, record: PromptRecord, num_cached_tokens: int) -> Place:
        body, prompt = record.contents()
        char_offset = prompt.char_of(num_cached_tokens)
        span = prompt.span_at(char_offset)
        path = "prompt" if body.prompt is not None else body.translated(span.path) if span else None
        return Place(num_cached_tokens // self._law.block_size, num_cached_tokens, char_offset, path)

    def _compared(self, chosen: Sequence[Relative]) -> tuple[Compared, ...]:
        """Note what a verdict rests on, the request whose text is compared first."""
        with self._lock:
            found = [
                (self._history.find(relative.record.request_id), len(relative.record.token_ids))
                for relative in chosen
            ]
        return tuple(Compared(request.number, length) for request, length in found if request is not None)

    def _case(
        self,
        records: RebuiltRecords,
        request: Remembered,
        token_ids: Sequence[TokenId],
        against: Remembered | None = None,
        num_tokens: int = 0,
    ) -> Case:
        """Return the case of a request from what its verdict rests on, all of it remembered; the lock is held.

        Of `against`, the first `num_tokens` are compared; 0 is as many as of any other.
        """
        earlier = [(self._history.at(compared.number), compared.num_tokens) for compared in request.compared]
        chosen = [self._relative(records, found, length) for found, length in earlier if found is not None]
        own = records.record(request, token_ids[: request.admitted.num_prompt_tokens])
        named = None
        if against is not None:
            packed = pack_tokens(own.token_ids)
            named = self._relative(records, against, num_tokens or self._num_compared(packed, against)).record
        around = Surroundings(
            law=self._law,
            has_forgotten_requests=request.had_forgotten,
            is_lru=self._is_lru,
            coalesce_deadline_ms=self._coalesce_deadline_ms,
        )
        return case_of(own, request.admitted, chosen, around, self._reading.render, named)

    # Asked why.

    def _explain(self, request_id: str, tenant_salt: bytes | None, against: str | None) -> Explanation:
        request = self.remembered(request_id, tenant_salt)
        named = None if against is None else self.remembered(against, tenant_salt)
        case = self._case_again(request, named)
        if case is None:
            return _without_text(request)
        found = explain(case)
        return replace(found, advice=_with_help(found.advice, request))

    def _case_again(
        self, request: Remembered, against: Remembered | None, num_tokens: int = 0
    ) -> Case | None:
        """Return the case of a request that was admitted before; None when what it rests on is forgotten."""
        needed = [request.number, *(compared.number for compared in request.compared)]
        needed += [] if against is None else [against.number]
        with self._lock:
            # Whoever was forgotten in the meantime is not there any more.
            if any(found is None or found.entry is None for found in map(self._history.at, needed)):
                return None
            token_ids = self._history.token_ids(request)
            return self._case(RebuiltRecords(self._reading), request, token_ids, against, num_tokens)

    def _diagnose(
        self, request_id: str, tenant_salt: bytes | None, against: str
    ) -> NamedComparison | NotCompared:
        """Compare two prompts, without the reply of the earlier one: vendors compare requests."""
        try:
            named = self.remembered(against, tenant_salt)
        except UnknownRequestError:
            return "not_found"
        try:
            request = self.remembered(request_id, tenant_salt)
        except UnknownRequestError:  # forgotten since, in a very small memory
            return "unavailable"
        num_tokens = min(named.num_usable_tokens, named.admitted.num_prompt_tokens)
        case = self._case_again(request, named, num_tokens)
        if case is None or case.nearest is None:
            return "unavailable"
        return named_comparison(
            explain(case, with_counterfactual=False),
            Comparison(case.nearest, case.request, case.render),
            self._law,
            reusable_tokens=self._law.whole_blocks(num_tokens),
        )


def _without_text(request: Remembered) -> Explanation:
    """Return what is left of a verdict when the texts it rests on are no longer remembered."""
    note = request.note
    assert note is not None, "what is found has a verdict"  # noqa: S101
    advice = (
        "The prompts are no longer remembered, or were not kept (--explain-memory): no snippets can be shown."
    )
    return replace(note, advice=_with_help(advice, request))


def _with_help(advice: str, request: Remembered) -> str:
    """Say what the server changed in the prompt, and how much of the hit is due to it."""
    cached = request.admitted.cached_tokens
    words = [advice]
    for sentence, num_common in request.helped:
        words.append(sentence)
        if cached:
            found = f"{min(num_common, cached):,} of the {cached:,} reused tokens"
            words.append(f"Without that at most {found} would have been found.")
    return " ".join(words)
