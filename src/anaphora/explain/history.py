"""The bounded memory of recent requests: their token ids, their bodies' skeletons, and what the cache did for each.

Nothing in it crosses from one tenant to another. It holds no text: that is rebuilt from the ids.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anaphora.cache.chain import pack_tokens, unpack_tokens
from anaphora.cache.hashing import TOKEN_BYTES
from anaphora.explain import skeleton
from anaphora.explain.prompt_tree import Entry, Match, PromptTree
from anaphora.explain.records import Explanation, PartSpan
from anaphora.explain.sketch import HASH_BYTES, Sketch, SketchIndex
from anaphora.explain.watch import Admitted
from anaphora.ids import TokenId

RECORD_BYTES = 2_000
"""What a remembered request costs besides its tokens and its body, roughly."""

TURN_BYTES = 250
"""What it costs to find a request by its conversation, roughly."""

MAX_REST = 8
"""So many outputs without K/V are kept at most; an ordinary request ends with one."""

MAX_MATCHES = 8
MAX_ALIKE = 3


class HistoryLimits(NamedTuple):
    """How many requests are remembered, in how much memory, and for how long after their admission."""

    max_requests: int
    max_bytes: int
    max_age_s: float


class Place(NamedTuple):
    """A place in a prompt: its block, its token, its character, and the part that holds it if that is known."""

    block_index: int
    token_index: int
    char_offset: int
    path: str | None


class Scope(NamedTuple):
    """Whose conversations may be continued: those of one tenant with one `cache_salt`."""

    tenant_salt: bytes | None
    cache_salt: str | None


class EarlierTurn(NamedTuple):
    """An earlier request that has ended: its prompt and its whole reply, and the parts of the prompt."""

    token_ids: Sequence[TokenId]
    num_prompt_tokens: int
    spans: tuple[PartSpan, ...]


class Compared(NamedTuple):
    """An earlier request that a verdict rests on, by its number, and how long it was then."""

    number: int
    num_tokens: int


@dataclass(slots=True, kw_only=True)
class Remembered:
    """One request. `number` counts admissions; `wall_time` is in seconds since 1970.

    `num_usable_tokens` is for how many leading tokens K/V exist or will; `num_reply_tokens` how many of the stored
    ones are outputs. `note` is its verdict without any text, `compared` what it rests on (see `live.chosen_of`), and
    `had_forgotten` whether requests had been forgotten by then. `body` is a skeleton, None for token ids alone.
    `stopped_at` is the first token that was computed, None where ids are not kept.
    `helped` says what the server changed in the prompt, and how many tokens the unchanged one has in common with it.
    `turn` is the digest of its conversation, None if nothing can go on from it; `rest_ids` are the outputs behind the
    stored ones, None before the end, or if they are too many.
    """

    number: int
    admitted: Admitted
    wall_time: float
    path: str = "prompt"
    body: skeleton.Skeleton | None = None
    spans: tuple[PartSpan, ...] = ()
    helped: tuple[tuple[str, int], ...] = ()
    turn: bytes | None = None
    note: Explanation | None = None
    stopped_at: Place | None = None
    compared: tuple[Compared, ...] = ()
    had_forgotten: bool = False
    num_usable_tokens: int
    num_reply_tokens: int = 0
    rest_ids: tuple[TokenId, ...] | None = None
    has_ended: bool = False
    entry: Entry | None = field(default=None, repr=False)
    sketch: Sketch = field(default=(), repr=False)
    size_bytes: int = RECORD_BYTES

    @property
    def request_id(self) -> str:
        """Its id."""
        return self.admitted.request_id

    @property
    def group(self) -> Hashable:
        """Those with an equal one can share K/V."""
        return self.admitted.cache_salt


@dataclass(slots=True)
class _Tenant:
    tree: PromptTree = field(default_factory=PromptTree)
    sketches: SketchIndex = field(default_factory=SketchIndex)
    numbers: set[int] = field(default_factory=set)
    turns: dict[tuple[str | None, bytes], list[int]] = field(default_factory=dict)


class History:
    """Remembers requests up to its limits; the oldest go first.

    `size_bytes` is about how much memory they take, `num_forgotten` how many are no longer remembered.
    """

    def __init__(self, limits: HistoryLimits) -> None:
        self.limits = limits
        self._requests: OrderedDict[int, Remembered] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._tenants: dict[bytes | None, _Tenant] = {}
        self.size_bytes = 0
        self._num_numbers = 0
        self.num_forgotten = 0

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self._requests)

    # Questions.

    def get(self, request_id: str, tenant_salt: bytes | None) -> Remembered | None:
        """Return a request of a tenant; None for one that is unknown, forgotten or another tenant's."""
        found = self.find(request_id)
        return found if found is not None and found.admitted.tenant_salt == tenant_salt else None

    def find(self, request_id: str) -> Remembered | None:
        """Return a request, whoever's it is; for the books alone, not for answers."""
        number = self._numbers.get(request_id)
        return None if number is None else self._requests[number]

    def at(self, number: int) -> Remembered | None:
        """Return a request by its number, or None if it is forgotten."""
        return self._requests.get(number)

    def latest(self, tenant_salt: bytes | None, limit: int) -> list[Remembered]:
        """Return a tenant's requests, the latest first."""
        tenant = self._tenants.get(tenant_salt)
        numbers = sorted(tenant.numbers, reverse=True)[:limit] if tenant else []
        return [self._requests[number] for number in numbers]

    def token_ids(self, request: Remembered) -> Sequence[TokenId]:
        """Return the token ids of a request and of its reply; none when ids are not kept."""
        return unpack_tokens(self.packed(request))

    def packed(self, request: Remembered) -> bytes:
        """Return the same packed."""
        return b"" if request.entry is None else PromptTree.packed(request.entry)

    def relatives(self, request: Remembered, packed: bytes) -> list[Remembered]:
        """Return earlier requests of the same tenant that may be most like this one, the earliest first.

        Those with the longest common beginning, and those with most in common wherever it stands.
        """
        tenant = self._tenants.get(request.admitted.tenant_salt)
        if tenant is None:
            return []
        matches: list[Match] = tenant.tree.matches(packed, request.group, MAX_MATCHES)
        numbers = {match.number for match in matches}
        longest = max((match.num_tokens for match in matches), default=0)
        if longest * TOKEN_BYTES < len(packed):
            numbers.update(tenant.sketches.best(request.sketch, MAX_ALIKE))
        return [self._requests[number] for number in sorted(numbers)]

    def turns(self, scope: Scope, turn: bytes, limit: int) -> list[EarlierTurn]:
        """Return the requests of a conversation that have ended, the latest first."""
        tenant = self._tenants.get(scope.tenant_salt)
        numbers = tenant.turns.get((scope.cache_salt, turn), []) if tenant else []
        found: list[EarlierTurn] = []
        for request in (self._requests[number] for number in reversed(numbers)):
            if len(found) >= limit:
                break
            if request.rest_ids is not None:
                token_ids = (*self.token_ids(request), *request.rest_ids)
                found.append(EarlierTurn(token_ids, request.admitted.num_prompt_tokens, request.spans))
        return found

    # Verbs.

    def new(self, admitted: Admitted, wall_time: float) -> Remembered:
        """Return a request that is not remembered yet, with the next number."""
        number = self._num_numbers
        self._num_numbers += 1
        return Remembered(
            number=number,
            admitted=admitted,
            wall_time=wall_time,
            num_usable_tokens=admitted.num_prompt_tokens,
        )

    def add(self, request: Remembered, packed: bytes) -> None:
        """Remember a request and its packed prompt; the oldest are forgotten as the limits ask."""
        tenant = self._tenants.setdefault(request.admitted.tenant_salt, _Tenant())
        if self.limits.max_bytes:
            before = tenant.tree.size_bytes
            request.entry = tenant.tree.add(request.number, request.group, packed)
            self.size_bytes += tenant.tree.size_bytes - before
            tenant.sketches.add(request.number, request.sketch)
            if request.turn is not None:
                tenant.turns.setdefault((request.admitted.cache_salt, request.turn), []).append(
                    request.number
                )
        request.size_bytes = (
            RECORD_BYTES
            + HASH_BYTES * len(request.sketch)
            + 150 * len(request.spans)
            + (0 if request.turn is None else TURN_BYTES)
            + skeleton.size_bytes(request.body)
        )
        tenant.numbers.add(request.number)
        self._requests[request.number] = request
        self._numbers[request.request_id] = request.number
        self.size_bytes += request.size_bytes
        self._shrink(request.wall_time)

    def end(self, request: Remembered, token_ids: Sequence[TokenId], num_computed_tokens: int) -> None:
        """Take in how a request ended; K/V exist for its first `num_computed_tokens`, outputs included."""
        request.has_ended = True
        request.num_usable_tokens = num_computed_tokens
        num_prompt = request.admitted.num_prompt_tokens
        if request.entry is None or num_computed_tokens < num_prompt:
            return
        if len(token_ids) - num_computed_tokens <= MAX_REST:
            request.rest_ids = tuple(token_ids[num_computed_tokens:])
        if num_computed_tokens == num_prompt:
            return
        tenant = self._tenants[request.admitted.tenant_salt]
        before = tenant.tree.size_bytes
        tenant.tree.extend(request.entry, pack_tokens(token_ids[:num_computed_tokens]))
        self.size_bytes += tenant.tree.size_bytes - before
        request.num_reply_tokens = num_computed_tokens - num_prompt
        self._shrink(request.wall_time)

    def forget_old(self, wall_time: float) -> None:
        """Forget what has grown too old."""
        self._shrink(wall_time)

    def _shrink(self, wall_time: float) -> None:
        limits = self.limits
        while self._requests:
            oldest = next(iter(self._requests.values()))
            is_too_old = wall_time - oldest.wall_time > limits.max_age_s
            is_too_much = len(self._requests) > limits.max_requests or (
                limits.max_bytes and self.size_bytes > limits.max_bytes
            )
            if not (is_too_old or is_too_much):
                return
            self._forget(oldest)

    def _forget(self, request: Remembered) -> None:
        self.num_forgotten += 1
        del self._requests[request.number]
        if self._numbers.get(request.request_id) == request.number:
            del self._numbers[request.request_id]
        self.size_bytes -= request.size_bytes
        tenant = self._tenants[request.admitted.tenant_salt]
        tenant.numbers.discard(request.number)
        if request.entry is not None:
            before = tenant.tree.size_bytes
            tenant.tree.remove(request.entry)
            self.size_bytes += tenant.tree.size_bytes - before
            tenant.sketches.remove(request.number, request.sketch)
            self._forget_turn(tenant, request)
        if not tenant.numbers:
            del self._tenants[request.admitted.tenant_salt]

    @staticmethod
    def _forget_turn(tenant: _Tenant, request: Remembered) -> None:
        if request.turn is None:
            return
        key = (request.admitted.cache_salt, request.turn)
        tenant.turns[key].remove(request.number)
        if not tenant.turns[key]:
            del tenant.turns[key]
