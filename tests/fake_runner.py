"""A runner without weights whose every token depends on the K/V it really reads.

Each slot of a page remembers the token written there and by which kernel. The next token is a digest of all
slots the page table leads to, so a wrong page, a missed copy, or a decode-written block taken for a
prefill-written one gives another text, and other log probabilities.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from anaphora.config import KVLayout
from anaphora.ids import NULL_PAGE, PageId, RequestId
from anaphora.request import TokenLogprob, TokenLogprobs
from anaphora.scheduler.plan import ScheduledChunk, StepPlan, StepResult

EMPTY = -1
VOCAB_SIZE = 256


class FakeRunner:
    """Satisfies the Runner protocol; `script` gives some requests their tokens instead.

    `before_step` is called with every plan, to fail or to look. With `kernels_differ` off, K/V written by a
    decode step equal those written by a prefill.
    """

    def __init__(
        self,
        layout: KVLayout,
        script: Mapping[str, Sequence[int]] | None = None,
        before_step: Callable[[StepPlan], None] | None = None,
        *,
        kernels_differ: bool = True,
    ) -> None:
        self._layout = layout
        self._kernels_differ = kernels_differ
        self._script = {RequestId(name): list(tokens) for name, tokens in (script or {}).items()}
        self._before_step = before_step
        self._slots = [[EMPTY] * layout.page_size for _ in range(layout.num_pages)]
        self.plans: list[StepPlan] = []

    @property
    def layout(self) -> KVLayout:
        """How the K/V memory is divided."""
        return self._layout

    @property
    def num_computed_tokens(self) -> int:
        """How many tokens were computed in all steps."""
        return sum(plan.num_scheduled_tokens for plan in self.plans)

    def run(self, plan: StepPlan) -> StepResult:
        """Copy, write, read back, choose."""
        if self._before_step:
            self._before_step(plan)
        self.plans.append(plan)
        for copy in plan.copies:
            self._slots[copy.target][: copy.num_tokens] = self._slots[copy.source][: copy.num_tokens]
        for chunk in plan.chunks:
            self._write(chunk)
        chosen = {s.request_id: self._choose(c, s.request_id) for c in plan.chunks for s in c.samples}
        return StepResult(
            plan.step,
            chosen,
            {
                s.request_id: self.logprobs(self._read(c), chosen[s.request_id], s.params.logprobs)
                for c in plan.chunks
                for s in c.samples
                if s.params.logprobs is not None
            },
            {c.request_id: self._prompt_logprobs(c) for c in plan.chunks if c.prompt_logprobs},
        )

    def _prompt_logprobs(self, chunk: ScheduledChunk) -> tuple[TokenLogprobs, ...]:
        assert chunk.prompt_logprobs, f"{chunk} asks for none"
        asked, values = chunk.prompt_logprobs, self._read(chunk)
        first = chunk.start + asked.first_row + 1
        return tuple(
            self.logprobs(values[:position], token, asked.num_top)
            for position, token in enumerate(asked.token_ids, first)
        )

    def _write(self, chunk: ScheduledChunk) -> None:
        least = self._layout.min_prefill_tokens
        assert chunk.is_decode or len(chunk.token_ids) >= least, f"{chunk} is too short a prefill"
        assert NULL_PAGE not in chunk.page_table, f"{chunk} writes to the null page"
        for offset, token in enumerate(chunk.token_ids):
            page, slot = divmod(chunk.start + offset, self._layout.page_size)
            self._slots[chunk.page_table[page]][slot] = self.value(token, is_decode=chunk.is_decode)

    def value(self, token: int, *, is_decode: bool) -> int:
        """Return what a slot holds for a token."""
        return 2 * token + (is_decode and self._kernels_differ)

    def _read(self, chunk: ScheduledChunk) -> list[int]:
        size = self._layout.page_size
        values = [self._slots[chunk.page_table[at // size]][at % size] for at in range(chunk.end)]
        assert EMPTY not in values, f"{chunk} reads what nobody wrote"
        return values

    def _choose(self, chunk: ScheduledChunk, request_id: RequestId) -> int:
        if script := self._script.get(request_id):
            return script.pop(0)
        return self.next_token(self._read(chunk))

    def next_token(self, values: Sequence[int]) -> int:
        """Return the token that follows these slots."""
        digest = sha256(struct.pack(f"<{len(values)}q", *values)).digest()
        return int.from_bytes(digest[:4], "little") % VOCAB_SIZE

    def logprobs(self, values: Sequence[int], token: int, num_top: int) -> TokenLogprobs:
        """Return how likely a token is after these slots: an eighth less for each place behind the likeliest."""
        likeliest = self.next_token(values)
        rank = 1 + (token - likeliest) % VOCAB_SIZE
        top = [TokenLogprob((likeliest + place) % VOCAB_SIZE, -(place + 1) / 8) for place in range(num_top)]
        return TokenLogprobs(token, -rank / 8, rank, tuple(top))

    def prompt_logprobs_alone(self, prompt: Sequence[int], num_top: int) -> tuple[TokenLogprobs, ...]:
        """Return those of a prompt's tokens but the first, with nothing cached and nobody beside it."""
        is_short = len(prompt) < self._layout.min_prefill_tokens
        values = [self.value(token, is_decode=is_short) for token in prompt]
        return tuple(
            self.logprobs(values[:position], prompt[position], num_top) for position in range(1, len(prompt))
        )

    def text_alone(self, prompt: Sequence[int], num_outputs: int) -> list[int]:
        """Return what a prompt generates with nothing cached and nobody beside it."""
        is_short = len(prompt) < self._layout.min_prefill_tokens
        values = [self.value(token, is_decode=is_short) for token in prompt]
        outputs: list[int] = []
        while len(outputs) < num_outputs:
            outputs.append(self.next_token(values))
            values.append(self.value(outputs[-1], is_decode=True))
        return outputs

    def read_page(self, page: PageId) -> bytes:
        """Return the slots of a page."""
        return struct.pack(f"<{self._layout.page_size}q", *self._slots[page])

    def write_page(self, page: PageId, data: bytes) -> None:
        """Replace the slots of a page."""
        self._slots[page] = list(struct.unpack(f"<{self._layout.page_size}q", data))


class FakeClock:
    """Time that passes only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.time = now

    def now(self) -> float:
        """Return the time."""
        return self.time

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
