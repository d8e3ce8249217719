"""Any mix of arrivals, steps, aborts and resets: the books hold, nothing leaks, and no text changes.

The runner's tokens depend on the K/V really read, so a text that equals the one computed alone proves that
every page, copy and provenance was right.
"""

from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anaphora.config import KVLayout
from anaphora.ids import RequestId
from anaphora.request import FinishReason, Request, Retention, SamplingParams
from tests.scheduler.story import SchedulerStory

SHARED = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
PROMPTS = st.builds(
    lambda shared, tail: SHARED[:shared] + tail,
    st.integers(0, 12),
    st.lists(st.integers(0, 1), min_size=1, max_size=9),
)
RETENTION = st.lists(
    st.builds(Retention, st.integers(0, 24), st.sampled_from([1.0, 10.0, 100.0])), max_size=2
).map(tuple)


class SchedulerMachine(RuleBasedStateMachine):
    """Pages of one or more blocks, a small budget, a pool that is often too small."""

    exact_reuse: ClassVar[bool] = True

    @initialize(
        shape=st.sampled_from([(2, 2), (2, 4), (4, 4), (2, 8)]),
        num_pages=st.integers(8, 16),
        budget=st.integers(4, 24),
        least=st.integers(1, 2),
        threshold=st.sampled_from([0, 3, 5]),
        coalesce_ms=st.sampled_from([0, 2_000, 60_000]),
        limits=st.sampled_from([(0, 0), (2, 1), (8, 8)]),
        policy=st.sampled_from(["fcfs", "priority"]),
        pinnable=st.integers(0, 4),
        reserve=st.booleans(),
        partial=st.sampled_from([0, 1]),
    )
    def begin(
        self, shape: tuple[int, int], num_pages: int, least: int, limits: tuple[int, int], **options: Any
    ) -> None:
        """Start with an empty pool."""
        self.story = SchedulerStory(
            KVLayout(*shape, num_pages, least),
            budget=options["budget"],
            max_num_seqs=4,
            exact_reuse=self.exact_reuse,
            reserve_full=options["reserve"],
            threshold=options["threshold"],
            coalesce_ms=options["coalesce_ms"],
            partial_block_reuse=options["partial"],
            lookahead=limits[0],
            max_passes=limits[1],
            policy=options["policy"],
            kernels_differ=self.exact_reuse,
            max_model_len=min(48, (num_pages - 1 - options["pinnable"]) * shape[1]),
            max_pinned_pages=options["pinnable"],
        )
        self.live: dict[str, Request] = {}
        self.histories: list[list[int]] = []
        self.count = 0

    @precondition(lambda self: self.histories)
    @rule(
        data=st.data(),
        tail=st.lists(st.integers(0, 1), min_size=1, max_size=5),
        num_outputs=st.integers(1, 5),
    )
    def return_with_history(self, data: st.DataObject, tail: list[int], num_outputs: int) -> None:
        """A reply comes back as part of the next prompt."""
        self.arrive_with(data.draw(st.sampled_from(self.histories)) + tail, num_outputs)

    @rule(
        tokens=PROMPTS,
        num_outputs=st.integers(1, 9),
        n=st.sampled_from([1, 1, 2, 3]),
        priority=st.integers(0, 2),
        retention=RETENTION,
        skip=st.booleans(),
    )
    def arrive(
        self,
        tokens: list[int],
        num_outputs: int,
        n: int,
        priority: int,
        retention: tuple[Retention, ...],
        *,
        skip: bool,
    ) -> None:
        """A request comes, perhaps one that wants its beginning kept."""
        options: dict[str, Any] = {"priority": priority, "retention": retention, "skip_reading_cache": skip}
        self.arrive_with(tokens, num_outputs, n, **options)

    @rule(tokens=PROMPTS, retention=RETENTION)
    def warm_up(self, tokens: list[int], retention: tuple[Retention, ...]) -> None:
        """A prompt is to be cached before anybody needs it."""
        self.arrive_with(tokens, 0, retention=retention)

    @rule(tokens=PROMPTS, num_outputs=st.integers(1, 9), num_top=st.integers(0, 2))
    def arrive_to_be_scored(self, tokens: list[int], num_outputs: int, num_top: int) -> None:
        """A request comes that wants to know how likely its prompt is."""
        self.arrive_with(tokens, num_outputs, skip_reading_cache=True, prompt_logprobs=num_top)

    def arrive_with(
        self,
        tokens: list[int],
        num_outputs: int,
        n: int = 1,
        prompt_logprobs: int | None = None,
        **options: Any,
    ) -> None:
        """Send it, unless it could never fit."""
        limit = self.story.scheduler.max_model_len
        if len(tokens) + num_outputs > limit:
            return
        self.count += 1
        params = SamplingParams(max_tokens=num_outputs, temperature=0.0, prompt_logprobs=prompt_logprobs)
        for request in self.story.add_n(n, f"R{self.count}.", tokens, params, **options):
            self.live[str(request.request_id)] = request

    @rule(turns=st.integers(1, 4))
    def step(self, turns: int) -> None:
        """The engine steps."""
        for _ in range(turns):
            self.story.step()
        self.judge_finished()

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        """A client goes away."""
        name = data.draw(st.sampled_from(sorted(self.live)))
        self.story.scheduler.abort(RequestId(name), 0.0)
        del self.live[name]

    @rule(force=st.booleans())
    def reset(self, *, force: bool) -> None:
        """The cache is cleared, if need be under those who run."""
        is_done = self.story.scheduler.reset_prefix_cache(reset_running_requests=force)
        assert is_done or not force

    def judge_finished(self) -> None:
        """Every finished text is the one computed alone, and its books add up."""
        for name in [name for name, request in self.live.items() if request.is_finished]:
            request = self.live.pop(name)
            self.histories = [*self.histories[-5:], list(request.token_ids)]
            prompt = request.token_ids[: request.num_prompt_tokens]
            assert self.story.outputs(name) == self.story.runner.text_alone(prompt, request.num_output_tokens)
            if request.params.prompt_logprobs is not None:
                expected = self.story.runner.prompt_logprobs_alone(prompt, request.params.prompt_logprobs)
                assert tuple(self.story.prompt_logprobs.get(name, ())) == expected
            assert request.finish_reason is FinishReason.LENGTH
            assert request.num_cached_tokens is not None
            assert request.num_cached_tokens + request.num_cache_write_tokens <= request.num_prompt_tokens
            assert request.num_cached_tokens < request.num_prompt_tokens
            longest = max((kept.num_tokens for kept in request.retention), default=-1)
            assert request.num_pinned_tokens is None or request.num_pinned_tokens <= longest

    @invariant()
    def the_books_hold(self) -> None:
        """Pages: used + cached + empty = all."""
        if hasattr(self, "story"):
            self.story.scheduler.check_invariants()
            assert sum(self.story.manager.pool.usage()) == self.story.manager.layout.num_usable_pages

    def teardown(self) -> None:
        """Whatever happened: all that is left runs to its end, and every page comes back."""
        if hasattr(self, "story"):
            self.story.run(1500)
            self.judge_finished()
            assert not self.live
            pool = self.story.manager.pool
            assert pool.usage().used == 0
            pool.lapse(self.story.clock.now() + 100.0)
            assert (pool.num_pinned_pages, pool.num_free_pages) == (0, pool.layout.num_usable_pages)


class SloppyMachine(SchedulerMachine):
    """The same without exact reuse, on a runner whose two kernels agree."""

    exact_reuse: ClassVar[bool] = False


TestExact = SchedulerMachine.TestCase
TestExact.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestSloppy = SloppyMachine.TestCase
TestSloppy.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
