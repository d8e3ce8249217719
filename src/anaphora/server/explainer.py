"""Verdicts of a running server, made beside the engine: a thread takes its notes in, and answers when asked why.

The engine's thread only hands notes over; comparing, and rebuilding texts from token ids, happens here.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from anaphora.cache.chain import pack_tokens
from anaphora.errors import UnknownRequestError
from anaphora.explain import skeleton
from anaphora.explain.bodies import ChatBody, bypass_of
from anaphora.explain.books import labelled
from anaphora.explain.history import Compared, EarlierTurn, History, Remembered, Scope
from anaphora.explain.live import Relative, Surroundings, case_of
from anaphora.explain.records import (
    CacheNamespace,
    Contents,
    Explanation,
    HitLaw,
    PartSpan,
    PromptRecord,
    Render,
    RenderedPrompt,
)
from anaphora.explain.sketch import sketch_of
from anaphora.explain.verdict import Case, explain
from anaphora.explain.watch import Admitted, Ended, Note
from anaphora.ids import TokenId

logger = logging.getLogger(__name__)

VERDICT_WAIT_S = 5.0
"""How long an answer waits for its verdict, which is ready long before in any case that was seen."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How bodies and tokens of the served model are read: `body` from a source, `prompt` from ids and spans."""

    body: Callable[[Mapping[str, Any]], ChatBody]
    prompt: Callable[[Sequence[TokenId], Sequence[PartSpan]], RenderedPrompt]
    render: Render


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
    ) -> None:
        self._history = history
        self._reading = reading
        self._law = law
        self._count_missed, self._count_failure = count_missed, count_failure
        self._is_lru = is_lru
        self._coalesce_deadline_ms = coalesce_deadline_ms
        self._wall_time = wall_time
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
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), VERDICT_WAIT_S)
        except TimeoutError:
            return None

    async def settle(self) -> None:
        """Return once all notes of now have been taken in, so that the counts of causes are complete."""
        if not self._thread.is_alive():
            return
        done = threading.Event()
        self._notes.put(done)
        await asyncio.to_thread(done.wait, VERDICT_WAIT_S)

    async def explanation(
        self, request_id: str, tenant_salt: bytes | None, against: str | None = None
    ) -> Explanation:
        """Return the whole explanation of a request, its text compared with that of `against` if one is named.

        Raises UnknownRequestError for requests that are unknown, forgotten, or another tenant's.
        """
        await self.settle()
        return await asyncio.to_thread(self._explain, request_id, tenant_salt, against)

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
                    self._take_admission(note)
                else:
                    self._take_end(note)
            except Exception:
                logger.exception("a verdict could not be made of %s", note.request_id)
                self._count_failure()

    def _take_admission(self, admitted: Admitted) -> None:
        """Find out why, tell who waits, then remember the request: it must not be its own relative."""
        draft = self._drafts.pop(admitted.request_id, None)
        with self._lock:
            request = self._history.new(admitted, self._wall_time())
        token_ids = admitted.token_ids[: admitted.num_prompt_tokens]
        packed = pack_tokens(token_ids)
        keeps_ids = bool(self._history.limits.max_bytes)
        if draft is not None:
            request.helped = draft.helped
        if draft is not None and keeps_ids:
            request.spans, request.turn = draft.spans, draft.turn
        if keeps_ids:
            request.sketch = sketch_of(packed)
        contents = cache(partial(self._contents_of_draft, draft, token_ids))
        record = self._record(request, token_ids, contents, draft.source if draft else None)
        with self._lock:
            relatives = self._relatives(self._history.relatives(request, packed))
            has_forgotten = bool(self._history.num_forgotten)
        case = case_of(record, admitted, relatives, self._around(has_forgotten), self._reading.render)
        found = self._safely_explained(case)
        if admitted.bypassed_by is None:
            self._count_missed(labelled(found.uncached))
        request.note = replace(found, old=None, new=None, advice="")
        request.compared = self._compared(case)
        self._tell(found)
        if draft is not None and keeps_ids:
            request.body = skeleton.pack(draft.source, contents().prompt.text)
        with self._lock:
            self._history.add(request, packed)

    def _safely_explained(self, case: Case) -> Explanation:
        """Return the verdict; should a comparison fail, which is our fault, the one that needs none."""
        try:
            return explain(case, with_counterfactual=False)
        except Exception:
            logger.exception("request %s could not be compared", case.request.request_id)
            self._count_failure()
            return explain(replace(case, longest=None, nearest=None, render=None), with_counterfactual=False)

    def _tell(self, found: Explanation) -> None:
        future = self._verdicts.get(found.request_id)
        if future is not None and not future.done():
            future.set_result(found)

    def _take_end(self, ended: Ended) -> None:
        with self._lock:
            request = self._history.find(ended.request_id)
            if request is not None:
                self._history.end(request, ended.token_ids, ended.num_computed_tokens)

    # Building records.

    def _around(self, has_forgotten: bool) -> Surroundings:
        return Surroundings(
            law=self._law,
            has_forgotten_requests=has_forgotten,
            is_lru=self._is_lru,
            coalesce_deadline_ms=self._coalesce_deadline_ms,
        )

    def _record(
        self,
        request: Remembered,
        token_ids: Sequence[TokenId],
        contents: Callable[[], Contents],
        source: Mapping[str, Any] | None = None,
    ) -> PromptRecord:
        admitted = request.admitted
        bypassed_by = admitted.bypassed_by
        if bypassed_by is not None and source is not None:
            bypassed_by = bypass_of(source) or bypassed_by
        return PromptRecord(
            request_id=admitted.request_id,
            token_ids=token_ids,
            contents=contents,
            namespace=CacheNamespace(salt=admitted.cache_salt),
            bypassed_by=bypassed_by,
        )

    def _relatives(self, requests: Sequence[Remembered]) -> list[Relative]:
        """Return earlier requests as far as their K/V exist; the lock is held."""
        return [
            Relative(self._remembered_record(request, request.num_usable_tokens), request.admitted.time)
            for request in requests
        ]

    def _remembered_record(self, request: Remembered, num_tokens: int) -> PromptRecord:
        """Return a remembered request and the beginning of its reply, `num_tokens` in all."""
        token_ids = self._history.token_ids(request)[:num_tokens]
        return self._record(request, token_ids, cache(partial(self._contents, request, token_ids)))

    def _contents_of_draft(self, draft: Draft | None, token_ids: Sequence[TokenId]) -> Contents:
        prompt = self._reading.prompt(token_ids, draft.spans if draft else ())
        return Contents(self._body(draft.source if draft else None, token_ids), prompt)

    def _body(self, source: Mapping[str, Any] | None, token_ids: Sequence[TokenId]) -> ChatBody:
        if source is None or not {"messages", "prompt"} & source.keys():
            return ChatBody(prompt=tuple(token_ids), source=source or {})
        return self._reading.body(source)

    def _contents(self, request: Remembered, token_ids: Sequence[TokenId]) -> Contents:
        """Rebuild the body and the text of a remembered request; its reply is one more message."""
        num_prompt = request.admitted.num_prompt_tokens
        prompt = self._reading.prompt(token_ids, request.spans)
        source = None if request.body is None else skeleton.unpack(request.body, prompt.text)
        contents = Contents(self._body(source, token_ids), prompt)
        return contents if len(token_ids) <= num_prompt else _with_reply(contents, num_prompt)

    def _compared(self, case: Case) -> tuple[Compared, ...]:
        """Note what a case rests on, the request whose text is compared first."""
        records = [record for record in (case.nearest, case.longest) if record is not None]
        found: dict[str, Compared] = {}
        with self._lock:
            for record in records:
                request = self._history.find(record.request_id)
                if request is not None:
                    found.setdefault(record.request_id, Compared(request.number, len(record.token_ids)))
        return tuple(found.values())

    # Asked why.

    def _explain(self, request_id: str, tenant_salt: bytes | None, against: str | None) -> Explanation:
        request = self.remembered(request_id, tenant_salt)
        note = request.note
        assert note is not None, "what is found has a verdict"  # noqa: S101
        named = None if against is None else self.remembered(against, tenant_salt)
        with self._lock:
            earlier = [
                (self._history.at(compared.number), compared.num_tokens) for compared in request.compared
            ]
            is_whole = request.entry is not None and all(found is not None for found, _ in earlier)
            if not is_whole:
                return _without_text(note, request)
            relatives = [
                Relative(self._remembered_record(found, num_tokens), found.admitted.time)
                for found, num_tokens in earlier
                if found is not None
            ]
            own = self._remembered_record(request, request.admitted.num_prompt_tokens)
            nearest = relatives[0].record if relatives else None
            if named is not None:
                nearest = self._remembered_record(named, named.num_usable_tokens)
        # Whether anything was forgotten is part of the verdict as it was given.
        around = self._around(note.certainty == "inferred" and note.cause == "never_seen")
        case = case_of(own, request.admitted, relatives, around, self._reading.render, nearest)
        found = explain(case)
        return replace(found, advice=_with_help(found.advice, request))


def _with_reply(contents: Contents, num_prompt_tokens: int) -> Contents:
    """Return the contents with the reply as one more message at the end."""
    body, prompt = contents
    start = prompt.char_of(num_prompt_tokens)
    if body.prompt is not None:
        return contents
    reply = {"role": "assistant", "content": prompt.text[start:]}
    path = f"messages[{len(body.messages)}]"
    ends = (start, len(prompt.text), num_prompt_tokens, len(prompt.token_ids))
    spans = (*prompt.spans, PartSpan(path, *ends), PartSpan(f"{path}.content", *ends))
    return Contents(replace(body, messages=(*body.messages, reply)), replace(prompt, spans=spans))


def _without_text(note: Explanation, request: Remembered) -> Explanation:
    """Return what is left of a verdict when the texts it rests on are no longer remembered."""
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
