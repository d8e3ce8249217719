"""What a running engine writes down of each request, so that the simulator can play it again.

A recording holds no text and no token: blocks stand in it by names made of their digests. Building a line costs the
engine a copy of a list; everything else is left to whoever takes the turns.
"""

import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import BlockDigest
from anaphora.ids import RequestId
from anaphora.request import FinishReason, Request
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.plan import StepPlan
from anaphora.sim.trace import RecordedEngine, RecordedTurn
from anaphora.sim.trace_lines import engine_entry, turn_entry

_NAME_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTurn:
    """One admitted request at its end, as the engine's thread hands it over."""

    arrival_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    root: BlockDigest
    digests: tuple[BlockDigest, ...]
    turn: RecordedTurn


@dataclass(slots=True)
class _Open:
    """A request that has not ended: its number and step of arrival, its chain once it has one that runs."""

    number: int
    first_step: int
    last_token_step: int = -1
    chain: BlockChain | None = None
    fork_of: int | None = None


class RequestRecorder(SchedulerListener):
    """Hands over a FinishedTurn for each request that was admitted, when it ends. Belongs to the engine's thread."""

    def __init__(
        self, chain_of: Callable[[RequestId], BlockChain], take: Callable[[FinishedTurn], None]
    ) -> None:
        self._chain_of = chain_of
        self._take = take
        self._open: dict[RequestId, _Open] = {}
        self._num_arrived = self._num_ended = self._num_steps = 0

    def request_arrived(self, request: Request) -> None:
        """Give it a number."""
        self._open[request.request_id] = _Open(self._num_arrived, self._num_steps)
        self._num_arrived += 1

    def fork_arrived(self, request: Request, parent: Request) -> None:
        """Remember whose prompt it shares."""
        self._open[request.request_id].fork_of = self._open[parent.request_id].number

    def request_admitted(self, request: Request, now: float) -> None:
        """Remember its chain, which goes on growing."""
        self._open[request.request_id].chain = self._chain_of(request.request_id)

    def request_forked(self, request: Request, parent: Request, now: float) -> None:
        """Remember its chain, which parts from the parent's now."""
        self._open[request.request_id].chain = self._chain_of(request.request_id)

    def token_appended(self, request: Request, now: float) -> None:
        """Note in which step."""
        self._open[request.request_id].last_token_step = self._num_steps

    def step_committed(self, plan: StepPlan, now: float) -> None:
        """Count."""
        self._num_steps += 1

    def request_finished(self, request: Request, now: float) -> None:
        """Hand over what is known of it, unless it was never admitted."""
        entry = self._open.pop(request.request_id)
        if entry.chain is None:
            return
        is_warmed_up = request.params.is_warm_up and request.finish_reason is FinishReason.LENGTH
        ended_in_step = is_warmed_up or entry.last_token_step == self._num_steps
        turn = RecordedTurn(
            number=entry.number,
            cached_tokens=request.num_cached_tokens or 0,
            first_step=entry.first_step,
            last_step=self._num_steps,
            ended_between_steps=not ended_in_step,
            ending=self._num_ended,
            num_preemptions=request.num_preemptions,
            priority=request.priority,
            fork_of=entry.fork_of,
            skip_reading_cache=request.skip_reading_cache,
        )
        self._num_ended += 1
        self._take(
            FinishedTurn(
                arrival_s=request.arrival_time,
                num_prompt_tokens=request.num_prompt_tokens,
                num_output_tokens=request.num_output_tokens,
                root=entry.chain.root,
                digests=tuple(entry.chain.digests),
                turn=turn,
            )
        )


class BlockNames:
    """Names that are equal where digests are: their beginning, or with a key their HMAC-SHA256.

    Without the key, a name of the second kind tells nothing, not even to who can guess the prompt.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key
        self.kind = "digest" if key is None else "hmac-sha256"

    def __call__(self, digest: BlockDigest) -> str:
        """Return the name of a block, or of a namespace by its root."""
        named = digest if self._key is None else hmac.digest(self._key, digest, sha256)
        return named[:_NAME_BYTES].hex()


class LineWriter:
    """Turns what was handed over into lines of a recording: the Mooncake form and what we know besides."""

    def __init__(self, engine: RecordedEngine, names: BlockNames, start_s: float) -> None:
        self._engine = engine_entry(engine)
        self._block_size = engine.layout.block_size
        self._names = names
        self._start_s = start_s

    def line(self, finished: FinishedTurn) -> str:
        """Return the line of one request, its end included."""
        names = [self._names(digest) for digest in finished.digests]
        num_prompt_blocks = finished.num_prompt_tokens // self._block_size
        entry = {
            "timestamp": round((finished.arrival_s - self._start_s) * 1000, 3),
            "input_length": finished.num_prompt_tokens,
            "output_length": finished.num_output_tokens,
            "hash_ids": names[:num_prompt_blocks],
            "output_hash_ids": names[num_prompt_blocks:],
            "block_size": self._block_size,
            "id_kind": self._names.kind,
            "namespace": self._names(finished.root),
            "cached_tokens": finished.turn.cached_tokens,
            "reused_blocks": finished.turn.cached_tokens // self._block_size,
            "turn_record": turn_entry(finished.turn),
            "engine": self._engine,
        }
        return json.dumps(entry, separators=(",", ":")) + "\n"
