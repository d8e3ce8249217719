from dataclasses import replace

from anaphora.config import KVLayout
from anaphora.sim.trace import TraceRequest, ceiling, digests_of
from tests.sim.traces import engine_trace, public_trace


def test_a_coarser_trace_keeps_the_last_number_of_each_group() -> None:
    trace = public_trace([[0, 1, 2, 3, 4]], tails=[2]).coarser(2)
    assert trace.requests[0].block_ids == (1, 3, 4)
    assert (trace.block_size, trace.page_size) == (8, 8)


def test_by_the_engines_law_a_coarser_trace_has_no_tail() -> None:
    trace = engine_trace([(19, [0, 1, 2, 3])], block_size=4, page_size=16)
    assert trace.coarser(2).requests[0].block_ids == (1, 3)
    assert trace.coarser(4).requests[0].block_ids == (3,)
    assert trace.coarser(4).page_size == 16


def test_blocks_that_an_output_completed_stay_outputs() -> None:
    """Tokens 0 to 9 are the prompt: with blocks of eight only the first is whole in it."""
    request = TraceRequest(10, 9, (0, 1), 0.0, (2, 3))
    trace = engine_trace([], block_size=4, page_size=8)
    coarser = replace(trace, requests=(request,)).coarser(2)
    assert (coarser.requests[0].block_ids, coarser.requests[0].output_block_ids) == ((1,), (3,))


def test_the_engine_sees_whole_blocks_only() -> None:
    trace = public_trace([[0, 1, 2]], tails=[3]).by_engine_law(2)
    assert trace.requests[0].block_ids == (0, 1)
    assert (trace.counts_tail, trace.min_prefill_tokens) == (False, 2)


def test_the_ceiling_of_the_public_form_counts_the_tail() -> None:
    trace = public_trace([[0, 1], [0, 1], [0, 2]], tails=[4, 1, 4])
    assert ceiling(trace) == [0, 5, 4]
    assert ceiling(trace.by_engine_law(1)) == [0, 4, 4]


def test_equal_blocks_share_one_digest() -> None:
    (one, other) = digests_of(public_trace([[0, 1], [0, 2]]).requests)
    assert one[0] is other[0]
    assert one[1] != other[1]


def test_a_pool_has_its_null_page_besides() -> None:
    assert public_trace([[0]]).layout(7) == KVLayout(4, 4, 8, 1, can_copy_part=False)


def test_the_largest_request_decides_how_few_pages_may_be() -> None:
    assert public_trace([[0], [1, 2, 3]]).num_pages_of_largest == 3
    assert engine_trace([(33, [0] * 8)], block_size=4, page_size=16).num_pages_of_largest == 3
