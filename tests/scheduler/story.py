"""A scheduler with a FakeRunner, stepped by hand."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.hashing import SHA256, HashAlgorithm
from anaphora.cache.manager import KVManager
from anaphora.config import EvictionPolicyName, KVLayout, SchedulerConfig
from anaphora.ids import RequestId
from anaphora.request import Request, SamplingParams, TokenLogprobs
from anaphora.scheduler.events import SchedulerListener
from anaphora.scheduler.plan import StepPlan
from anaphora.scheduler.scheduler import Scheduler
from tests.fake_runner import FakeClock, FakeRunner


class SchedulerStory:
    """Adds requests, runs steps, checks every invariant after each."""

    def __init__(
        self,
        layout: KVLayout,
        *,
        budget: int = 512,
        max_num_seqs: int = 32,
        max_model_len: int | None = None,
        caching: bool = True,
        exact_reuse: bool = False,
        watermark: float = 0.0,
        reserve_full: bool = True,
        threshold: int = 0,
        script: Mapping[str, Sequence[int]] | None = None,
        listener: SchedulerListener | None = None,
        kernels_differ: bool = True,
        policy: Literal["fcfs", "priority"] = "fcfs",
        coalesce_ms: int = 60_000,
        lookahead: int = 8,
        max_passes: int = 8,
        max_pinned_pages: int = 0,
        hash_algorithm: HashAlgorithm = SHA256,
        partial_block_reuse: int = 0,
        cache_listener: CacheListener | None = None,
        eviction: EvictionPolicyName = "lru",
    ) -> None:
        self.manager = KVManager(
            layout,
            cache_listener,
            policy=make_policy(eviction, layout),
            enable_prefix_caching=caching,
            exact_reuse=exact_reuse,
            max_pinned_pages=max_pinned_pages,
            hash_algorithm=hash_algorithm,
            partial_block_reuse=partial_block_reuse,
        )
        self.scheduler = Scheduler(
            SchedulerConfig(
                max_num_seqs=max(1, min(max_num_seqs, budget + 2 - 2 * layout.min_prefill_tokens)),
                max_num_batched_tokens=budget,
                watermark=watermark,
                scheduler_reserve_full_isl=reserve_full,
                long_prefill_token_threshold=threshold,
                scheduling_policy=policy,
                coalesce_deadline_ms=coalesce_ms,
                admission_lookahead=lookahead,
                admission_max_passes=max_passes,
            ),
            self.manager,
            model_fingerprint=bytes(32),
            max_model_len=max_model_len or layout.num_usable_pages * layout.page_size,
            exact_reuse=exact_reuse,
            listener=listener,
        )
        self.runner = FakeRunner(layout, script=script, kernels_differ=kernels_differ)
        self.clock = FakeClock()
        self.requests: dict[str, Request] = {}
        self.prompt_logprobs: dict[str, list[TokenLogprobs]] = {}

    def add(
        self, name: str, tokens: Sequence[int], params: SamplingParams | None = None, **options: Any
    ) -> Request:
        """Queue a request."""
        return self.add_n(1, name, tokens, params, **options)[0]

    def add_n(
        self, n: int, name: str, tokens: Sequence[int], params: SamplingParams | None = None, **options: Any
    ) -> list[Request]:
        """Queue a request with n sequences: `name`, `name`1, `name`2, …"""
        requests = [
            Request(
                request_id=RequestId(f"{name}{index or ''}"),
                token_ids=list(tokens),
                params=params or SamplingParams(max_tokens=4, temperature=0.0),
                seed=index,
                arrival_time=self.clock.now(),
                **options,
            )
            for index in range(n)
        ]
        self.scheduler.add(requests[0], requests[1:])
        self.requests.update({str(request.request_id): request for request in requests})
        return requests

    def step(self) -> StepPlan:
        """Run one step."""
        self.clock.advance(1.0)
        plan = self.scheduler.plan(self.clock.now())
        self.scheduler.check_invariants()
        if not plan.is_empty:
            result = self.runner.run(plan)
            self.scheduler.commit(plan, result, self.clock.now())
            for request_id, found in result.prompt_logprobs.items():
                self.prompt_logprobs.setdefault(str(request_id), []).extend(found)
            self.scheduler.check_invariants()
        return plan

    def run(self, most_steps: int = 10_000) -> int:
        """Step until nothing is left; return how many steps it took."""
        for step in range(most_steps):
            if not self.scheduler.has_work:
                return step
            self.step()
        raise AssertionError(f"still at work after {most_steps} steps")

    def chunks(self, plan: StepPlan) -> list[tuple[str, int, int]]:
        """Return (request, start, number of tokens) of every chunk."""
        return [(str(chunk.request_id), chunk.start, len(chunk.token_ids)) for chunk in plan.chunks]

    def outputs(self, name: str) -> list[int]:
        """Return what a request has generated."""
        request = self.requests[name]
        return request.token_ids[request.num_prompt_tokens :]
