"""What a step does, on a tiny model; that its logits are exact is `test_exactness.py`'s."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from anaphora.config import KVLayout
from anaphora.errors import ConfigError
from anaphora.ids import PageId, RequestId, TokenId
from anaphora.runner.openvino.kv_store import KVStore
from anaphora.runner.openvino.model import PagedModel
from anaphora.runner.openvino.runner import OpenVINORunner
from anaphora.sampling.host import token_logprobs
from anaphora.scheduler.plan import PageCopy, SampleSpec, StepPlan, StepResult
from tests.runner.openvino.stepping import Chunk, Logits, Stepper

pytestmark = pytest.mark.model

TOKENS = [(7 * i) % 256 for i in range(100)]


@pytest.fixture
def tiny(tiny_paged_model: PagedModel) -> Stepper:
    """The tiny model on nine pages."""
    store = KVStore(tiny_paged_model.kv_ports, 9)
    return Stepper(lambda sampler: OpenVINORunner(tiny_paged_model, store, sampler, block_size=16))


def test_the_layout_says_what_the_kernel_wants(tiny: Stepper) -> None:
    assert tiny.runner.layout == KVLayout(
        block_size=16, page_size=32, num_pages=9, min_prefill_tokens=2, can_copy_part=True
    )


def test_a_block_that_does_not_divide_the_page_is_refused(tiny_paged_model: PagedModel) -> None:
    store = KVStore(tiny_paged_model.kv_ports, 2)
    with pytest.raises(
        ConfigError, match="--block-size is 24, but must divide the runner's page of 32 tokens"
    ):
        OpenVINORunner(tiny_paged_model, store, lambda logits, specs: [], block_size=24)


def test_the_sampler_gets_one_row_of_float32_per_sample(tiny: Stepper) -> None:
    logits = tiny.step(Chunk(TOKENS, 0, 40, [1, 2]), Chunk(TOKENS, 0, 20, [3]))
    assert logits.shape == (2, 258)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    assert not np.array_equal(logits[0], logits[1])


def test_the_result_names_the_token_of_every_sample(tiny: Stepper) -> None:
    result = tiny.result(Chunk(TOKENS, 0, 40, [1, 2]), Chunk(TOKENS, 0, 20, [3]))
    picks = tiny.seen.argmax(1)
    assert result == StepResult(0, {RequestId("0.0"): int(picks[0]), RequestId("1.0"): int(picks[1])})


def test_chunks_without_samples_give_no_tokens(tiny: Stepper) -> None:
    chunks = Chunk(TOKENS, 0, 40, [1, 2], num_samples=0), Chunk(TOKENS, 0, 20, [3])
    assert list(tiny.result(*chunks).token_ids) == [RequestId("1.0")]
    assert_array_equal(tiny.seen, tiny.step(Chunk(TOKENS, 0, 20, [3])))


def test_a_step_without_any_sample_writes_kv_and_asks_no_sampler(tiny: Stepper) -> None:
    cold = tiny.step(Chunk(TOKENS, 0, 50, [1, 2]))
    tiny.seen = tiny.seen[:0]
    assert tiny.result(Chunk(TOKENS, 0, 40, [3, 4], num_samples=0)) == StepResult(0, {})
    assert len(tiny.seen) == 0
    assert_array_equal(tiny.step(Chunk(TOKENS, 40, 50, [3, 4])), cold)


def test_several_samples_of_one_chunk_see_the_same_logits(tiny: Stepper) -> None:
    one = tiny.step(Chunk(TOKENS, 0, 40, [1, 2]))
    logits = tiny.step(Chunk(TOKENS, 0, 40, [1, 2], num_samples=3), Chunk(TOKENS, 0, 20, [3]))
    assert_array_equal(logits[:3], np.repeat(one, 3, axis=0))
    assert len(logits) == 4


def test_only_those_who_ask_get_log_probabilities_and_the_tokens_are_the_same(tiny: Stepper) -> None:
    plain = Chunk(TOKENS, 0, 40, [1, 2]), Chunk(TOKENS, 0, 20, [3], num_samples=2)
    asking = plain[0], replace(plain[1], num_logprobs=3)
    expected = tiny.result(*plain)
    assert (expected.logprobs, expected.prompt_logprobs) == ({}, {})
    result = tiny.result(*asking)
    assert result.token_ids == expected.token_ids
    assert set(result.logprobs) == {"1.0", "1.1"}
    for request_id, found in result.logprobs.items():
        assert found == token_logprobs(tiny.seen[1], result.token_ids[request_id], 3)
        assert (found.rank, found.top[0]) == (1, (found.token_id, found.logprob))


def test_the_tokens_of_a_prompt_get_theirs_from_the_rows_before_them(tiny: Stepper) -> None:
    rows = [tiny.step(Chunk(TOKENS, 0, end, [1, 2]))[0] for end in range(2, 50)]
    expected = [token_logprobs(row, TOKENS[end], 4) for end, row in enumerate(rows, 2)]
    result = tiny.result(
        Chunk(TOKENS[:50], 0, 20, [3]), Chunk(TOKENS[:50], 0, 50, [4, 5], num_prompt_logprobs=4)
    )
    assert list(result.prompt_logprobs) == ["1"]
    assert list(result.prompt_logprobs[RequestId("1")])[1:] == expected
    assert set(result.token_ids) == {"0.0", "1.0"}


def test_a_prompt_in_chunks_gets_what_it_gets_in_one(tiny: Stepper) -> None:
    whole = tiny.result(Chunk(TOKENS, 0, 100, [1, 2, 3, 4], num_prompt_logprobs=2))
    pieces = [
        tiny.result(Chunk(TOKENS, start, end, [5, 6, 7, 8], num_samples=0, num_prompt_logprobs=2))
        for start, end in ((0, 31), (31, 33), (33, 100))
    ]
    found = [entry for piece in pieces for entry in piece.prompt_logprobs[RequestId("0")]]
    assert found == list(whole.prompt_logprobs[RequestId("0")])


def test_an_empty_plan_does_its_copies_and_runs_nothing(tiny: Stepper) -> None:
    tiny.step(Chunk(TOKENS, 0, 32, [1]))
    plan = StepPlan(7, (), (PageCopy(PageId(1), PageId(2), 32), PageCopy(PageId(2), PageId(3), 32)))
    assert tiny.runner.run(plan) == StepResult(7, {})
    assert tiny.runner.read_page(PageId(3)) == tiny.runner.read_page(PageId(1))


def test_copies_are_done_before_the_forward_pass(tiny: Stepper) -> None:
    cold = tiny.step(Chunk(TOKENS, 0, 50, [1, 2]))
    tiny.step(Chunk(TOKENS, 0, 32, [3]))
    copies = [PageCopy(PageId(3), PageId(4), 32)]
    warm = tiny.step(Chunk(TOKENS, 32, 50, [4, 5]), copies=copies)
    assert_array_equal(warm, cold)


def test_a_step_writes_to_its_own_pages_and_to_the_null_page_only(tiny: Stepper) -> None:
    tiny.step(Chunk(TOKENS, 0, 33, [1, 2]))
    before = [tiny.runner.read_page(PageId(page)) for page in range(9)]
    tiny.step(Chunk(TOKENS, 33, 34, [1, 2]))  # a lone decode, so one with padding
    after = [tiny.runner.read_page(PageId(page)) for page in range(9)]
    assert [page for page in range(9) if before[page] != after[page]] == [0, 2]


def test_what_lies_on_the_null_page_changes_nothing(tiny: Stepper) -> None:
    tiny.step(Chunk(TOKENS, 0, 33, [1, 2]))
    decode = Chunk(TOKENS, 33, 34, [1, 2])
    before = tiny.step(decode)
    tiny.runner.write_page(PageId(0), tiny.runner.read_page(PageId(1)))
    assert_array_equal(tiny.step(decode), before)


def test_warming_up_writes_to_the_null_page_only_and_asks_no_sampler(tiny: Stepper) -> None:
    tiny.runner.warm_up()
    written = [page for page in range(9) if any(tiny.runner.read_page(PageId(page)))]
    assert written == [0]
    assert len(tiny.seen) == 0


def test_a_plan_with_too_few_pages_is_refused_before_anything_runs(tiny: Stepper) -> None:
    """The kernel would read past the page table, wherever that leads."""
    with pytest.raises(ValueError, match="need 2 pages, but 1 are named"):
        tiny.step(Chunk(TOKENS, 0, 40, [1]))


def test_a_sampler_that_forgets_a_row_is_an_error(tiny_paged_model: PagedModel) -> None:
    def forgetful(logits: Logits, specs: Sequence[SampleSpec]) -> Sequence[TokenId]:
        return []

    store = KVStore(tiny_paged_model.kv_ports, 9)
    stepper = Stepper(lambda _: OpenVINORunner(tiny_paged_model, store, forgetful, block_size=16))
    with pytest.raises(ValueError, match="zip"):
        stepper.step(Chunk(TOKENS, 0, 20, [1]))


def test_two_runners_of_one_model_do_not_share_pages(tiny: Stepper, tiny_paged_model: PagedModel) -> None:
    other_store = KVStore(tiny_paged_model.kv_ports, 9)
    other = Stepper(lambda sampler: OpenVINORunner(tiny_paged_model, other_store, sampler, block_size=16))
    cold = tiny.step(Chunk(TOKENS, 0, 50, [1, 2]))
    tiny.step(Chunk(TOKENS, 0, 40, [1, 2], num_samples=0))
    other.step(Chunk(list(reversed(TOKENS)), 0, 50, [1, 2]))
    assert_array_equal(tiny.step(Chunk(TOKENS, 40, 50, [1, 2])), cold)
