"""Twenty thousand requests through the engine's own thread, a third of them abandoned at random.

Not part of the test command: `make soak`. ANAPHORA_SOAK_REQUESTS sets another number.
"""

import asyncio
import os
import random
from collections import Counter

import pytest

from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.manager import KVManager
from anaphora.config import EvictionPolicyName, KVLayout, SchedulerConfig
from anaphora.engine.async_engine import AsyncEngine
from anaphora.engine.core import EngineCore
from anaphora.engine.protocols import GenerateInput
from anaphora.ids import RequestId
from anaphora.request import FinishReason, RequestOutput, SamplingParams, Usage
from anaphora.scheduler.plan import StepPlan, StepResult
from anaphora.scheduler.scheduler import Scheduler
from tests.fake_runner import FakeClock, FakeRunner
from tests.fakes import ByteTokenizer

NUM_REQUESTS = int(os.environ.get("ANAPHORA_SOAK_REQUESTS", "20000"))
NUM_CLIENTS = 48
LAYOUT = KVLayout(8, 16, 150, 2)
MAX_MODEL_LEN = 400


class ForgetfulRunner(FakeRunner):
    """A FakeRunner that keeps no plans: there will be too many."""

    def run(self, plan: StepPlan) -> StepResult:
        """Run a step and forget it."""
        result = super().run(plan)
        self.plans.clear()
        return result


class Soak:
    """One engine, many clients, and the books of all of them."""

    def __init__(self, policy: EvictionPolicyName, seed: int) -> None:
        self.rng = random.Random(seed)
        self.manager = KVManager(
            LAYOUT, exact_reuse=True, policy=make_policy(policy, LAYOUT), partial_block_reuse=1
        )
        config = SchedulerConfig(
            max_num_seqs=24,
            max_num_batched_tokens=128,
            scheduler_reserve_full_isl=False,
            coalesce_deadline_ms=60_000,
        )
        self.scheduler = Scheduler(
            config, self.manager, model_fingerprint=bytes(32), max_model_len=MAX_MODEL_LEN, exact_reuse=True
        )
        self.runner = ForgetfulRunner(LAYOUT)
        clock = FakeClock()
        core = EngineCore(self.scheduler, self.runner, ByteTokenizer(), clock, seed=seed)
        self.engine = AsyncEngine(
            core, ByteTokenizer(), clock, max_model_len=MAX_MODEL_LEN, metrics_text=lambda: ""
        )
        self.heads = [[self.rng.randrange(256) for _ in range(120)] for _ in range(12)]
        self.endings: Counter[str] = Counter()
        self.left = NUM_REQUESTS

    def prompt(self, number: int) -> GenerateInput:
        """Return a prompt that shares its beginning with many others."""
        head = self.rng.choice(self.heads)[: self.rng.randrange(121)]
        tail = [self.rng.randrange(256) for _ in range(self.rng.randrange(1, 60))]
        params = SamplingParams(
            n=self.rng.choice([1, 1, 1, 2, 4]),
            max_tokens=self.rng.randrange(1, 40),
            temperature=0.0,
            ignore_eos=True,
        )
        return GenerateInput(
            request_id=RequestId(f"R{number}"),
            prompt_token_ids=head + tail,
            params=params,
            cache_salt=self.rng.choice([None, None, "a"]),
        )

    async def client(self) -> None:
        """Send one request after another."""
        while self.left:
            self.left -= 1
            request = self.prompt(self.left)
            patience = self.rng.randrange(1, 60) if self.rng.random() < 1 / 3 else None
            await self.serve(request, patience)

    async def serve(self, request: GenerateInput, patience: int | None) -> None:
        """Read a request's outputs to the end, or go away after so many."""
        outputs: list[RequestOutput] = []
        stream = self.engine.generate(request)
        async for output in stream:
            outputs.append(output)
            if len(outputs) == patience:
                break
        await stream.aclose()
        num_ended = sum(output.finish_reason is not None for output in outputs)
        self.endings["ended" if num_ended == request.params.n else "abandoned"] += 1
        if num_ended == request.params.n:
            self.judge(request, outputs)

    def judge(self, request: GenerateInput, outputs: list[RequestOutput]) -> None:
        """Check the books and the text of a request that ended by itself."""
        last = {output.index: output for output in outputs}
        for index, output in last.items():
            usage: Usage = output.usage
            assert output.finish_reason is FinishReason.LENGTH
            assert usage.completion_tokens == request.params.max_tokens
            assert usage.cached_tokens + usage.cache_write_tokens <= usage.prompt_tokens
            said = [token for one in outputs if one.index == index for token in one.token_ids]
            assert said == self.runner.text_alone(list(request.prompt_token_ids), len(said))

    async def run(self) -> None:
        """Run all clients, then look what is left."""
        self.engine.start()
        await asyncio.gather(*(self.client() for _ in range(NUM_CLIENTS)))
        assert await self.engine.reset_prefix_cache(), "a page is still held"
        await self.engine.stop()
        self.scheduler.check_invariants()
        assert not self.scheduler.has_work
        assert self.manager.pool.usage() == (0, 0, LAYOUT.num_usable_pages)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", ["lru", "slru", "lfu", "cost"])
def test_a_soak_ends_with_every_page_free_and_every_text_right(policy: EvictionPolicyName) -> None:
    """Small pool, preemptions, forks, salts, parts of blocks, abandonments: nothing leaks, no text changes."""
    soak = Soak(policy, seed=1)
    asyncio.run(soak.run())
    print(f"\n{policy}: {dict(soak.endings)}, {soak.scheduler._step} steps")
    assert sum(soak.endings.values()) == NUM_REQUESTS
    assert soak.endings["abandoned"] > NUM_REQUESTS / 10
