"""A small engine: FakeRunner, ByteTokenizer, FakeClock, and the real scheduler and cache between them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anaphora.cache.manager import KVManager
from anaphora.config import KVLayout, SchedulerConfig
from anaphora.engine.async_engine import AsyncEngine
from anaphora.engine.core import EngineCore
from anaphora.engine.protocols import GenerateInput
from anaphora.ids import RequestId
from anaphora.request import SamplingParams
from anaphora.scheduler.plan import StepPlan
from anaphora.scheduler.scheduler import Scheduler
from tests.fake_runner import FakeClock, FakeRunner
from tests.fakes import ByteTokenizer

LAYOUT = KVLayout(4, 8, 33, 2)


@dataclass(frozen=True)
class SmallEngine:
    """The parts, so that a test can look into each."""

    core: EngineCore
    manager: KVManager
    scheduler: Scheduler
    runner: FakeRunner
    clock: FakeClock


def small_engine(
    script: Mapping[str, Sequence[int] | str] | None = None,
    *,
    layout: KVLayout = LAYOUT,
    before_step: Callable[[StepPlan], None] | None = None,
    max_model_len: int = 128,
    max_num_seqs: int = 8,
    max_pinned_pages: int = 0,
    policy: Literal["fcfs", "priority"] = "fcfs",
) -> SmallEngine:
    """Build one; a script may give a request's tokens as text, which ends with the end-of-text token."""
    tokens = {name: _tokens(said) for name, said in (script or {}).items()}
    runner = FakeRunner(layout, script=tokens, before_step=before_step)
    manager = KVManager(layout, max_pinned_pages=max_pinned_pages)
    config = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=64, scheduling_policy=policy)
    scheduler = Scheduler(config, manager, model_fingerprint=bytes(32), max_model_len=max_model_len)
    clock = FakeClock()
    return SmallEngine(
        EngineCore(scheduler, runner, ByteTokenizer(), clock, seed=0), manager, scheduler, runner, clock
    )


def _tokens(said: Sequence[int] | str) -> list[int]:
    if isinstance(said, str):
        return [*said.encode(), ByteTokenizer.special_id("<|eos|>")]
    return list(said)


def async_engine(small: SmallEngine) -> AsyncEngine:
    """Put the core into its thread; not started."""
    return AsyncEngine(
        small.core,
        ByteTokenizer(),
        small.clock,
        max_model_len=128,
        max_pinnable_tokens=small.manager.max_pinnable_tokens,
        metrics_text=lambda: "",
    )


def prompt(name: str, text: str = "hello there", **params: Any) -> GenerateInput:
    """Return a prompt for the engine."""
    options = {"max_tokens": 20, "temperature": 0.0, **params}
    return GenerateInput(
        request_id=RequestId(name),
        prompt_token_ids=ByteTokenizer().encode(text),
        params=SamplingParams(**options),
    )
