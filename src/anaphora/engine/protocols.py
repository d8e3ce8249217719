"""What the engine needs from the outside world, and nothing about how it is done."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from anaphora.config import KVLayout
from anaphora.ids import PageId, RequestId, TokenId
from anaphora.request import RequestOutput, Retention, SamplingParams
from anaphora.scheduler.plan import StepPlan, StepResult
from anaphora.scheduler.probe import Probe


class Runner(Protocol):
    """Computes steps on some hardware and owns its K/V pages."""

    @property
    def layout(self) -> KVLayout:
        """How the K/V memory is divided; fixed for the runner's life."""
        ...

    def run(self, plan: StepPlan) -> StepResult:
        """Do all copies of the plan in order, then one packed forward pass, then sample."""
        ...

    def read_page(self, page: PageId) -> bytes:
        """Return the K/V of one page in every layer, in a form `write_page` accepts."""
        ...

    def write_page(self, page: PageId, data: bytes) -> None:
        """Replace the K/V of one page with what `read_page` returned, bit for bit."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def vocab_size(self) -> int:
        """How many token ids there are; ids are below it."""
        ...

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        """Tokens that end a text."""
        ...

    @property
    def special_token_ids(self) -> frozenset[TokenId]:
        """Tokens that are markup, not text."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        """Return the ids of a text; markup such as `<|im_end|>` in it becomes its special token."""
        ...

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        """Return the text of some ids; bytes that are no UTF-8 become U+FFFD."""
        ...

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return the bytes one token stands for; a special token's are its literal markup."""
        ...


class Clock(Protocol):
    """Time for the effect world; the pure world is told the time."""

    def now(self) -> float:
        """Return seconds from some fixed point, never going back."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateInput:
    """One prompt, ready for the engine.

    `tenant_salt` is derived by the server from the API key, never taken from a client.
    `retention` says what to keep of the prompt once it is computed, as far as the pinned share of the pages allows.
    """

    request_id: RequestId
    prompt_token_ids: Sequence[TokenId]
    params: SamplingParams
    tenant_salt: bytes | None = None
    cache_salt: str | None = None
    priority: int = 0
    retention: tuple[Retention, ...] = ()


class EngineClient(Protocol):
    """What the HTTP server sees of an engine. All methods belong to the event loop's thread."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the served model."""
        ...

    @property
    def max_model_len(self) -> int:
        """The most tokens a prompt and its outputs may have together."""
        ...

    @property
    def max_pinnable_tokens(self) -> int:
        """The most tokens a prompt may have whose full blocks can all be pinned, if nothing else is."""
        ...

    @property
    def failure(self) -> str | None:
        """Why the engine can no longer step, or None while it can."""
        ...

    def generate(self, request: GenerateInput) -> AsyncGenerator[RequestOutput, None]:
        """Run one prompt; yield what each step adds to each of its n sequences, the last with `finish_reason` set.

        Raises InvalidRequestError before the first output when the prompt can never fit, EngineDeadError
        when the engine fails. Closing the generator early aborts the request: its pages are free within
        one step.
        """
        ...

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; False, with nothing changed, while requests hold pages."""
        ...

    async def probe(
        self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None
    ) -> Probe:
        """Return how much of a prompt is cached now; changes nothing."""
        ...

    def metrics_text(self) -> str:
        """Return all metrics in the Prometheus text format, version 0.0.4."""
        ...
