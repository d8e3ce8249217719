"""Exact arrays for small steps on pages of four tokens."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.ids import PageId, RequestId
from anaphora.request import SamplingParams
from anaphora.runner.batch import PackedBatch, pack
from anaphora.scheduler.plan import PromptLogprobSpec, SampleSpec, ScheduledChunk, StepPlan

PAGE_SIZE = 4


def chunk(
    token_ids: Sequence[int],
    start: int,
    pages: Sequence[int],
    *,
    num_samples: int = 1,
    name: str = "a",
    asked: PromptLogprobSpec | None = None,
) -> ScheduledChunk:
    samples = tuple(
        SampleSpec(RequestId(f"{name}{i}"), SamplingParams(), 0, token_ids, len(token_ids))
        for i in range(num_samples)
    )
    table = [PageId(page) for page in pages]
    return ScheduledChunk(RequestId(name), token_ids, start, table, len(token_ids) == 1, samples, asked)


def packed(*chunks: ScheduledChunk, min_decodes: int = 2) -> PackedBatch:
    return pack(StepPlan(1, chunks), page_size=PAGE_SIZE, min_decodes=min_decodes)


def test_a_prefill_chunk_becomes_rows_with_their_positions_and_pages() -> None:
    batch = packed(chunk([50, 51, 52], 5, [7, 9]))
    assert batch.input_ids.tolist() == [50, 51, 52]
    assert batch.position_ids.tolist() == [5, 6, 7]
    assert batch.past_lens.tolist() == [5]
    assert batch.sequence_begins.tolist() == [0, 3]
    assert batch.page_ids.tolist() == [7, 9]
    assert batch.page_begins.tolist() == [0, 2]
    assert batch.max_context_len.tolist() == 8
    assert batch.logit_rows.tolist() == [2]
    assert batch.sample_rows.tolist() == [0]


def test_chunks_are_packed_one_after_another() -> None:
    #  rows      0    1    2    3    4
    #  chunk     a    b    b    c    c
    #  position  8    0    1    3    4
    batch = packed(chunk([10], 8, [1, 2, 3]), chunk([20, 21], 0, [4]), chunk([30, 31], 3, [5, 6]))
    assert batch.input_ids.tolist() == [10, 20, 21, 30, 31]
    assert batch.position_ids.tolist() == [8, 0, 1, 3, 4]
    assert batch.past_lens.tolist() == [8, 0, 3]
    assert batch.sequence_begins.tolist() == [0, 1, 3, 5]
    assert batch.page_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.page_begins.tolist() == [0, 3, 4, 6]
    assert batch.max_context_len.tolist() == 9
    assert batch.logit_rows.tolist() == [0, 2, 4]


def test_arrays_have_the_types_the_kernel_wants() -> None:
    batch = packed(chunk([1, 2], 0, [1]))
    assert {batch.input_ids.dtype, batch.position_ids.dtype, batch.logit_rows.dtype} == {np.dtype(np.int64)}
    int32 = (
        batch.past_lens,
        batch.sequence_begins,
        batch.page_ids,
        batch.page_begins,
        batch.max_context_len,
    )
    assert {array.dtype for array in int32} == {np.dtype(np.int32)}
    assert batch.max_context_len.shape == ()


def test_a_page_table_that_reaches_further_is_cut_to_the_pages_needed() -> None:
    assert packed(chunk([1, 2], 2, [7, 8, 9])).page_ids.tolist() == [7]
    assert packed(chunk([1, 2], 3, [7, 8, 9])).page_ids.tolist() == [7, 8]


def test_a_chunk_without_samples_has_no_logits() -> None:
    batch = packed(chunk([1, 2], 0, [1], num_samples=0), chunk([3, 4], 0, [2]))
    assert batch.logit_rows.tolist() == [3]
    assert batch.sample_rows.tolist() == [0]
    assert [spec.request_id for spec in batch.samples] == ["a0"]


def test_a_step_may_have_no_logits_at_all() -> None:
    batch = packed(chunk([1, 2], 0, [1], num_samples=0))
    assert batch.logit_rows.tolist() == []
    assert batch.logit_rows.dtype == np.int64
    assert batch.sample_rows.tolist() == []
    assert batch.samples == ()


def test_several_samples_of_one_chunk_share_its_logits() -> None:
    batch = packed(chunk([1, 2], 0, [1], num_samples=3), chunk([3, 4], 0, [2], name="b"))
    assert batch.logit_rows.tolist() == [1, 3]
    assert batch.sample_rows.tolist() == [0, 0, 0, 1]
    assert [spec.request_id for spec in batch.samples] == ["a0", "a1", "a2", "b0"]


def test_a_prompt_that_asks_for_log_probabilities_has_logits_for_all_rows_that_predict_its_tokens() -> None:
    #  rows          0    1    2    3    4    5
    #  chunk         a    b    b    b    c    c
    #  logit rows    0    1    2    3         4
    #  predicts      out  21   22   23        out
    asked = PromptLogprobSpec(5, 0, [21, 22, 23])
    batch = packed(
        chunk([10], 8, [1, 2, 3]),
        chunk([20, 21, 22], 0, [4], num_samples=0, name="b", asked=asked),
        chunk([30, 31], 3, [5, 6], name="c"),
    )
    assert batch.logit_rows.tolist() == [0, 1, 2, 3, 5]
    assert batch.prompt_rows == (1,)
    assert batch.prompt_logprobs == (("b", asked),)
    assert batch.sample_rows.tolist() == [0, 4]


def test_the_last_chunk_of_such_a_prompt_has_logits_to_choose_from_too() -> None:
    batch = packed(
        chunk([20, 21, 22], 4, [4, 5], num_samples=2, asked=PromptLogprobSpec(0, 0, [21, 22])),
        chunk([30, 31], 3, [5, 6], name="c"),
    )
    assert batch.logit_rows.tolist() == [0, 1, 2, 4]
    assert (batch.prompt_rows, batch.sample_rows.tolist()) == ((0,), [2, 2, 3])


def test_rows_whose_tokens_are_known_need_no_logits() -> None:
    batch = packed(chunk([20, 21, 22, 23], 4, [4, 5], num_samples=0, asked=PromptLogprobSpec(0, 2, [23, 24])))
    assert (batch.logit_rows.tolist(), batch.prompt_rows) == ([2, 3], (0,))


def test_a_lone_decode_gets_one_token_beside_it_where_two_are_enough() -> None:
    batch = packed(chunk([10], 6, [1, 2]))
    assert batch.input_ids.tolist() == [10, 0]
    assert batch.position_ids.tolist() == [6, 0]
    assert batch.past_lens.tolist() == [6, 0]
    assert batch.sequence_begins.tolist() == [0, 1, 2]
    assert batch.page_ids.tolist() == [1, 2, 0]
    assert batch.page_begins.tolist() == [0, 2, 3]
    assert batch.max_context_len.tolist() == 7
    assert batch.logit_rows.tolist() == [0]


def test_a_lone_decode_gets_a_prefill_of_two_beside_it_where_two_decodes_are_not_enough() -> None:
    batch = packed(chunk([10], 6, [1, 2]), min_decodes=8)
    assert batch.input_ids.tolist() == [10, 0, 0]
    assert batch.position_ids.tolist() == [6, 0, 1]
    assert batch.sequence_begins.tolist() == [0, 1, 3]
    assert batch.page_ids.tolist() == [1, 2, 0]
    assert batch.logit_rows.tolist() == [0]


@pytest.mark.parametrize("num_decodes, num_padding", [(1, 2), (2, 2), (6, 2), (7, 1), (8, 0), (9, 0)])
def test_padding_makes_up_for_missing_decodes(num_decodes: int, num_padding: int) -> None:
    decodes = [chunk([10 + i], 4, [1 + 2 * i, 2 + 2 * i], name=f"{i}") for i in range(num_decodes)]
    assert len(packed(*decodes, min_decodes=8).input_ids) == num_decodes + num_padding


def test_a_step_with_a_chunk_of_two_tokens_is_not_padded() -> None:
    assert packed(chunk([10, 11], 0, [1]), min_decodes=8).input_ids.tolist() == [10, 11]
    beside = packed(chunk([10], 4, [1, 2]), chunk([20, 21], 0, [3]), min_decodes=8)
    assert beside.input_ids.tolist() == [10, 20, 21]


def test_a_prompt_of_one_token_is_padded_like_a_decode() -> None:
    assert packed(chunk([10], 0, [1])).input_ids.tolist() == [10, 0]


def test_too_short_a_page_table_is_refused() -> None:
    with pytest.raises(ValueError, match="2 tokens up to position 5 need 2 pages, but 1 are named"):
        packed(chunk([1, 2], 3, [7]))


def test_a_chunk_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="0 tokens"):
        packed(chunk([], 3, [7]))


@st.composite
def chunks(draw: st.DrawFn) -> ScheduledChunk:
    token_ids = draw(st.lists(st.integers(0, 99), min_size=1, max_size=9))
    start = draw(st.integers(0, 20))
    num_pages = -(-(start + len(token_ids)) // PAGE_SIZE) + draw(st.integers(0, 2))
    pages = draw(st.lists(st.integers(1, 50), min_size=num_pages, max_size=num_pages))
    return chunk(token_ids, start, pages, num_samples=draw(st.integers(0, 2)))


@given(st.lists(chunks(), min_size=1, max_size=6), st.integers(2, 8))
def test_every_chunk_can_be_read_back_from_the_arrays(plan: list[ScheduledChunk], min_decodes: int) -> None:
    batch = packed(*plan, min_decodes=min_decodes)
    rows, pages = batch.sequence_begins.tolist(), batch.page_begins.tolist()
    for i, one in enumerate(plan):
        assert batch.input_ids[rows[i] : rows[i + 1]].tolist() == one.token_ids
        assert batch.position_ids[rows[i] : rows[i + 1]].tolist() == list(range(one.start, one.end))
        assert batch.past_lens[i] == one.start
        needed = -(-one.end // PAGE_SIZE)
        assert batch.page_ids[pages[i] : pages[i + 1]].tolist() == list(one.page_table[:needed])
    logit_rows = batch.logit_rows[batch.sample_rows].tolist()
    assert logit_rows == [rows[i + 1] - 1 for i, one in enumerate(plan) for _ in one.samples]
    lengths = np.diff(batch.sequence_begins)
    assert lengths.max() > 1 or len(lengths) >= min_decodes
    assert len(lengths) - len(plan) in (0, 1)
