"""The scheduler: budgets, chunks, admission, preemption, endings."""

from typing import Any

import pytest

from anaphora.cache.cbor_hashing import CborHashing
from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import SHA256_FUNCTION, Namespace
from anaphora.config import KVLayout
from anaphora.errors import ConfigError, ContextLengthError, InvalidRequestError, NotEnoughMemoryError
from anaphora.ids import RequestId
from anaphora.request import FinishReason, Request, RequestStatus, SamplingParams
from anaphora.scheduler.events import SchedulerListener
from tests.conformance.story import numbers
from tests.scheduler.story import SchedulerStory


class ResumeLog(SchedulerListener):
    """Writes down who was resumed with how many reused and recomputed tokens."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, int]] = []
        self.num_recomputed = 0

    def request_resumed(self, request: Request, num_reused_tokens: int) -> None:
        """Note it."""
        self.entries.append((str(request.request_id), num_reused_tokens))

    def tokens_recomputed(self, request: Request, num_tokens: int) -> None:
        """Add up."""
        self.num_recomputed += num_tokens


BLOCK_16 = KVLayout(16, 16, 11)


def greedy(max_tokens: int, **changes: object) -> SamplingParams:
    """Return greedy parameters."""
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, **changes)  # type: ignore[arg-type]


def test_a_prompt_within_the_budget_is_one_chunk_and_then_decodes_one_token_a_step() -> None:
    """Two prompts share the first step; afterwards each step has one token of each."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(0, 20), greedy(3))
    story.add("B", numbers(500, 5), greedy(2))
    assert story.chunks(story.step()) == [("A", 0, 20), ("B", 0, 5)]
    assert story.chunks(story.step()) == [("A", 20, 1), ("B", 5, 1)]
    assert story.chunks(story.step()) == [("A", 21, 1)]
    assert not story.scheduler.has_work
    assert story.manager.pool.usage().used == 0


def test_a_long_prompt_is_cut_by_the_budget_and_decodes_go_first() -> None:
    """With a budget of 8, A's decode takes one token and B's prefill the other seven."""
    story = SchedulerStory(BLOCK_16, budget=8)
    story.add("A", numbers(0, 4), greedy(9))
    story.step()
    story.add("B", numbers(500, 20), greedy(2))
    plans = [story.step() for _ in range(3)]
    assert [story.chunks(plan) for plan in plans] == [
        [("A", 4, 1), ("B", 0, 7)],
        [("A", 5, 1), ("B", 7, 7)],
        [("A", 6, 1), ("B", 14, 6)],
    ]
    assert [chunk.is_decode for chunk in plans[2].chunks] == [True, False]
    assert [len(chunk.samples) for chunk in plans[1].chunks] == [1, 0]
    assert [len(chunk.samples) for chunk in plans[2].chunks] == [1, 1]


@pytest.mark.parametrize(
    ("num_prompt", "budget", "sizes"),
    [(9, 8, [7, 2]), (8, 8, [8]), (17, 8, [8, 7, 2]), (10, 8, [8, 2]), (1, 8, [1]), (4, 3, [2, 2])],
)
def test_no_prefill_chunk_is_shorter_than_the_runner_can_compute_exactly(
    num_prompt: int, budget: int, sizes: list[int]
) -> None:
    """With a minimum of two tokens, a chunk is shortened rather than leaving one token behind."""
    story = SchedulerStory(KVLayout(16, 16, 11, min_prefill_tokens=2), budget=budget)
    story.add("A", numbers(0, num_prompt), greedy(1))
    seen = []
    while story.scheduler.has_work:
        seen += [size for _, _, size in story.chunks(story.step())]
    assert seen == sizes


def test_the_long_prefill_threshold_caps_each_chunk() -> None:
    """A threshold of 6 cuts 20 tokens into 6, 6, 6, 2."""
    story = SchedulerStory(BLOCK_16, threshold=6)
    story.add("A", numbers(0, 20), greedy(1))
    assert [story.chunks(story.step())[0][2] for _ in range(4)] == [6, 6, 6, 2]


def test_the_second_prompt_computes_only_what_is_new() -> None:
    """48 of 60 tokens are cached; the chunk starts there and the hit is in the books."""
    story = SchedulerStory(BLOCK_16)
    first = story.add("A", numbers(0, 55), greedy(1))
    story.run()
    second = story.add("B", [*numbers(0, 48), *numbers(900, 12)], greedy(1))
    assert story.chunks(story.step()) == [("B", 48, 12)]
    assert (first.num_cached_tokens, first.num_cache_write_tokens) == (0, 48)
    assert (second.num_cached_tokens, second.num_cache_write_tokens) == (48, 0)


def test_a_salt_parts_requests_and_skipping_reads_still_publishes() -> None:
    """The same tokens: another salt computes all, a reader that skips computes all, the next one hits."""
    story = SchedulerStory(BLOCK_16)
    turns: list[tuple[str, dict[str, Any], int]] = [
        ("A", {"cache_salt": "one"}, 0),
        ("B", {"cache_salt": "two"}, 0),
        ("C", {"skip_reading_cache": True}, 0),
        ("D", {}, 32),
        ("E", {"cache_salt": "two"}, 32),
    ]
    for name, options, hit in turns:
        request = story.add(name, numbers(0, 40), greedy(1), **options)
        story.run()
        assert request.num_cached_tokens == hit, name


def test_a_partial_page_is_reused_by_copy() -> None:
    """Pages of 32 with blocks of 16: 48 cached tokens are one whole page and a copied half."""
    story = SchedulerStory(KVLayout(16, 32, 9))
    story.add("A", numbers(0, 50), greedy(1))
    story.run()
    story.add("B", [*numbers(0, 48), *numbers(900, 30)], greedy(1))
    plan = story.step()
    assert story.chunks(plan) == [("B", 48, 30)]
    assert [(copy.source, copy.target, copy.num_tokens) for copy in plan.copies] == [(2, 3, 16)]


def test_case_54_the_last_admitted_is_preempted_and_keeps_its_token() -> None:
    """Two 80-token requests fill ten pages; both need one more, and the second gives way."""
    story = SchedulerStory(BLOCK_16, caching=False)
    story.add("A", numbers(0, 80), greedy(4))
    second = story.add("B", numbers(500, 80), greedy(4))
    story.step()
    assert story.chunks(story.step()) == [("A", 80, 1)]
    assert second.status is RequestStatus.PREEMPTED
    assert len(story.outputs("B")) == 1
    assert [request.request_id for request in story.scheduler.requests()] == ["A", "B"]


@pytest.mark.parametrize(
    ("exact", "chunks", "recomputed"),
    [
        (False, [(48, 1, False)], 0),
        (True, [(32, 8, False), *[(at, 1, True) for at in range(40, 49)]], 16),
    ],
)
def test_case_60_a_resume_reuses_what_is_cached(
    *, exact: bool, chunks: list[tuple[int, int, bool]], recomputed: int
) -> None:
    """40 prompt tokens and 9 outputs: three blocks are hit, or under exact reuse two, and outputs are replayed."""
    log = ResumeLog()
    story = SchedulerStory(KVLayout(16, 16, 5), exact_reuse=exact, listener=log)
    story.add("A", numbers(0, 2), greedy(14))
    story.add("R", numbers(500, 40), greedy(11))
    request = story.requests["R"]
    while not request.num_preemptions:
        story.step()
    assert (len(request.token_ids), request.num_computed_tokens) == (49, 0)
    seen = []
    while story.scheduler.has_work:
        plan = story.step()
        seen += [(c.start, len(c.token_ids), c.is_decode) for c in plan.chunks if c.request_id == "R"]
    assert seen[: len(chunks)] == chunks
    assert (log.entries, log.num_recomputed) == ([("R", chunks[0][0])], recomputed)
    assert request.num_cached_tokens == 0


def test_preemption_never_changes_a_text_under_exact_reuse() -> None:
    """Eight requests in a pool for two and a half give the texts they give alone."""
    layout = KVLayout(4, 8, 14, min_prefill_tokens=2)
    prompts = {f"R{i}": numbers(i * 3, 9 + 5 * i) for i in range(8)}
    crowd = SchedulerStory(layout, exact_reuse=True, reserve_full=False, max_model_len=100)
    for name, prompt in prompts.items():
        crowd.add(name, prompt, greedy(24))
    crowd.run()
    assert sum(request.num_preemptions for request in crowd.requests.values()) > 0
    for name, prompt in prompts.items():
        alone = SchedulerStory(layout, exact_reuse=True, max_model_len=100)
        alone.add(name, prompt, greedy(24))
        alone.run()
        assert crowd.outputs(name) == alone.outputs(name), name


def test_a_step_with_a_preemption_admits_nobody() -> None:
    """C would fit into the pages B gave back, but waits for the next step."""
    story = SchedulerStory(BLOCK_16, caching=False)
    story.add("A", numbers(0, 80), greedy(4))
    story.add("B", numbers(500, 80), greedy(4))
    story.step()
    story.add("C", numbers(900, 16), greedy(4))
    assert story.chunks(story.step()) == [("A", 80, 1)]


@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "words"),
    [
        (161, 1, ["161", "160", "--max-model-len"]),
        (160, None, ["160"]),
        (100, 61, ["100", "61", "161", "160", "lower max_tokens to 60"]),
    ],
)
def test_what_can_never_fit_is_refused_at_arrival(
    num_prompt: int, max_tokens: int | None, words: list[str]
) -> None:
    """The message has both numbers, the limit and the remedy."""
    story = SchedulerStory(BLOCK_16)
    with pytest.raises(ContextLengthError) as caught:
        story.add("A", numbers(0, num_prompt), SamplingParams(max_tokens=max_tokens))
    for word in words:
        assert word in str(caught.value)
    assert not story.scheduler.has_work


def test_what_just_fits_runs_to_its_end() -> None:
    """100 + 60 tokens of 160: the last token needs no slot."""
    story = SchedulerStory(BLOCK_16)
    request = story.add("A", numbers(0, 100), SamplingParams(max_tokens=None, temperature=0.0))
    story.run()
    assert (request.num_output_tokens, request.finish_reason) == (60, FinishReason.LENGTH)


def test_case_53_a_context_that_the_pool_cannot_hold_is_refused_at_the_start() -> None:
    """512 tokens in 31 usable pages of 16."""
    with pytest.raises(
        NotEnoughMemoryError, match=r"needs 32 pages.*pool has 31.*lower --max-model-len to 496"
    ):
        SchedulerStory(KVLayout(16, 16, 32), max_model_len=512)


@pytest.mark.parametrize(("running", "headroom"), [(False, 0), (True, 10)])
def test_case_65_the_watermark_is_asked_of_waiting_requests_while_others_run(
    *, running: bool, headroom: int
) -> None:
    """With 100 pages and a watermark of 0.1, ten pages stay free."""
    story = SchedulerStory(KVLayout(16, 16, 101), watermark=0.1)
    if running:
        story.add("A", numbers(0, 16), greedy(50))
        story.step()
    free = story.manager.pool.num_free_pages
    story.add("B", numbers(5000, (free - headroom) * 16 + 1 - 16 * (not running)), greedy(1))
    assert ("B" in [name for name, _, _ in story.chunks(story.step())]) is not running


def test_the_full_prompt_gate_holds_a_prompt_whose_first_chunk_alone_would_fit() -> None:
    """Six pages are free; eight are needed in all."""
    for reserve, is_admitted in ((True, False), (False, True)):
        story = SchedulerStory(BLOCK_16, budget=64, reserve_full=reserve)
        story.add("A", numbers(0, 60), greedy(30))
        story.step()
        story.add("B", numbers(500, 128), greedy(1))
        assert ("B" in [name for name, _, _ in story.chunks(story.step())]) is is_admitted


def test_an_abort_frees_every_page_whatever_the_state() -> None:
    """A runs, B waits; both are aborted, and a third abort finds nothing."""
    story = SchedulerStory(BLOCK_16, max_num_seqs=1)
    story.add("A", numbers(0, 60), greedy(30))
    story.add("B", numbers(500, 60), greedy(30))
    story.step()
    assert story.scheduler.abort(RequestId("A"), 0.0)
    assert story.scheduler.abort(RequestId("B"), 0.0)
    assert not story.scheduler.abort(RequestId("A"), 0.0)
    story.scheduler.check_invariants()
    assert story.manager.pool.usage() == (0, 3, 7)
    assert story.requests["A"].finish_reason is FinishReason.ABORT


@pytest.mark.parametrize(
    ("params", "script", "outputs", "reason", "stop_reason"),
    [
        (greedy(5), [9, 2, 9], [9, 2], FinishReason.STOP, None),
        (greedy(3, ignore_eos=True), [2, 2, 2], [2, 2, 2], FinishReason.LENGTH, None),
        (greedy(5, stop_token_ids=(7,)), [9, 7], [9, 7], FinishReason.STOP, 7),
        (greedy(5, min_tokens=3, stop_token_ids=(7,)), [7, 2, 7], [7, 2, 7], FinishReason.STOP, 7),
        (greedy(2), [9, 2], [9, 2], FinishReason.STOP, None),
    ],
)
def test_endings(
    params: SamplingParams,
    script: list[int],
    outputs: list[int],
    reason: FinishReason,
    stop_reason: int | None,
) -> None:
    """End of text, stop tokens and length, with 2 as the end-of-text token."""
    story = SchedulerStory(BLOCK_16, script={"A": script})
    request = story.add("A", numbers(10, 5), params, eos_token_ids=frozenset({2}))
    story.run()
    assert (story.outputs("A"), request.finish_reason, request.stop_reason) == (outputs, reason, stop_reason)


def test_the_end_is_banned_until_min_tokens_are_there() -> None:
    """The sampler is told not to choose an end before that."""
    story = SchedulerStory(BLOCK_16)
    story.add("A", numbers(10, 5), greedy(3, min_tokens=2, stop_token_ids=(7,)), eos_token_ids=frozenset({2}))
    bans = [story.step().chunks[0].samples[0].banned_token_ids for _ in range(3)]
    assert bans == [(2, 7), (2, 7), ()]


def test_case_30_a_reset_can_preempt_who_runs() -> None:
    """Ten running requests: refused, then granted; they wait in their order."""
    story = SchedulerStory(KVLayout(16, 16, 41))
    for i in range(10):
        story.add(f"R{i}", numbers(i * 100, 20), greedy(5))
    story.step()
    assert not story.scheduler.reset_prefix_cache()
    assert story.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert (story.scheduler.num_running, story.scheduler.num_waiting) == (0, 10)
    assert [request.request_id for request in story.scheduler.requests()] == [f"R{i}" for i in range(10)]
    story.run()
    assert story.manager.pool.usage().used == 0


def test_recomputed_blocks_are_written_to_the_books_once() -> None:
    """Cached and written tokens never exceed the prompt, however often a request is preempted."""
    story = SchedulerStory(KVLayout(4, 4, 12), reserve_full=False, max_model_len=40)
    for i in range(6):
        story.add(f"R{i}", numbers(i, 14 + i), greedy(16))
    story.run()
    assert sum(request.num_preemptions for request in story.requests.values()) > 3
    for request in story.requests.values():
        assert request.num_cached_tokens is not None
        assert request.num_cached_tokens + request.num_cache_write_tokens <= request.num_prompt_tokens


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 2}, "--max-num-batched-tokens is 2, but must be at least 3"),
        ({"threshold": 2}, "--long-prefill-token-threshold is 2, but must be 0 or at least 3"),
    ],
)
def test_a_budget_that_could_starve_a_prefill_is_refused(options: dict[str, int], words: str) -> None:
    """With a minimum of two tokens, a prompt of three can neither be cut nor computed in two."""
    with pytest.raises(ConfigError, match=words):
        SchedulerStory(KVLayout(16, 16, 11, min_prefill_tokens=2), **options)  # type: ignore[arg-type]


def test_aborting_a_request_that_waits_behind_another_leaves_the_other() -> None:
    """B goes from the middle of the queue."""
    story = SchedulerStory(BLOCK_16, max_num_seqs=1)
    for name in "ABC":
        story.add(name, numbers(0, 5), greedy(2))
    story.step()
    story.scheduler.abort(RequestId("B"), 0.0)
    story.run()
    assert [story.requests[name].finish_reason for name in "ABC"] == [
        FinishReason.LENGTH,
        FinishReason.ABORT,
        FinishReason.LENGTH,
    ]


@pytest.mark.parametrize("salt", ["lora:abc", "salt:abc", "\udc00"])
def test_a_salt_that_the_hash_cannot_keep_apart_is_refused_and_leaves_nothing(salt: str) -> None:
    """In CBOR, where salts and adapters stand in the same list."""
    story = SchedulerStory(BLOCK_16, hash_algorithm=CborHashing("sha256_cbor", SHA256_FUNCTION))
    with pytest.raises(InvalidRequestError, match="cache_salt") as caught:
        story.add("A", numbers(0, 40), greedy(2), cache_salt=salt)
    assert caught.value.param == "cache_salt"
    assert not story.scheduler.has_work
    story.add("A", numbers(0, 40), greedy(2), cache_salt="fine")
    story.run()


def test_chains_are_made_with_the_hash_algorithm_of_the_cache() -> None:
    """The digests of a request are those of its algorithm under its namespace."""
    algorithm = CborHashing("sha256_cbor", SHA256_FUNCTION)
    story = SchedulerStory(BLOCK_16, hash_algorithm=algorithm)
    story.add("A", numbers(0, 40), greedy(2), cache_salt="s", tenant_salt=b"t" * 32)
    namespace = Namespace(model_fingerprint=bytes(32), cache_salt="s", tenant_salt=b"t" * 32)
    expected = BlockChain(namespace, 16, numbers(0, 40), algorithm=algorithm)
    assert story.manager.table(RequestId("A")).chain.digests == expected.digests
