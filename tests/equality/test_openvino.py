"""The equality law on the real model: whatever the cache, the batch, the chunks and the memory, the same bits.

A short list here; `benchmarks/equality.py` runs the long one.
"""

import random
from dataclasses import replace

import pytest

from anaphora.assemble import build_engine
from anaphora.config import EngineConfig
from anaphora.llm import LLM
from anaphora.request import SamplingParams
from tests.equality.support import Bench, Text, assert_same

pytestmark = pytest.mark.model

LENGTHS = (20, 37, 64, 100, 257, 700)
NUM_OUTPUTS = 12


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Random tokens that share beginnings of 0, 15, 33 and 60 tokens."""
    rng = random.Random(7)
    shared = [rng.randrange(100, 40_000) for _ in range(60)]
    found = []
    for number, length in enumerate(LENGTHS):
        head = shared[: (0, 15, 33, 60)[number % 4]][:length]
        found.append(head + [rng.randrange(100, 40_000) for _ in range(length - len(head))])
    return found


@pytest.fixture(scope="module")
def cold(bench: Bench, prompts: list[list[int]]) -> list[Text]:
    """Every prompt alone, with nothing cached."""
    texts = [bench.run(bench.engine(), [prompt], NUM_OUTPUTS)[0] for prompt in prompts]
    assert all(text.cached_tokens == 0 for text in texts)
    return texts


def test_warm_alone_and_warm_among_neighbours_equal_cold_alone(
    bench: Bench, prompts: list[list[int]], cold: list[Text]
) -> None:
    """The second and third time everything but the last tokens is cached."""
    engine = bench.engine()
    bench.run_each(engine, prompts, NUM_OUTPUTS)
    warm = bench.run_each(engine, prompts, NUM_OUTPUTS)
    assert [text.cached_tokens for text in warm] == [(length - 2) // 16 * 16 for length in LENGTHS]
    assert_same(warm, cold, "warm alone")
    assert_same(bench.run(engine, prompts, NUM_OUTPUTS), cold, "warm among neighbours")


def test_a_prompt_that_was_computed_for_the_cache_only_gives_the_same_text(
    bench: Bench, prompts: list[list[int]], cold: list[Text]
) -> None:
    """Its last block came from a warm-up without logits, in steps where nobody samples."""
    engine = bench.engine()
    warmed = LLM(engine=engine).generate(list(prompts), SamplingParams(max_tokens=0))
    assert [(text.token_ids, text.text, text.finish_reason) for text in warmed] == [((), "", "length")] * 6
    texts = bench.run(engine, prompts, NUM_OUTPUTS)
    assert [text.cached_tokens for text in texts] == [(length - 2) // 16 * 16 for length in LENGTHS]
    assert_same(texts, cold, "warmed up")


def test_a_small_token_budget_changes_nothing(
    bench: Bench, prompts: list[list[int]], cold: list[Text]
) -> None:
    """Chunks of at most 64 tokens, all prompts at once, cold and then warm."""
    engine = bench.engine(max_num_batched_tokens=64, max_num_seqs=8)
    assert_same(bench.run(engine, prompts, NUM_OUTPUTS), cold, "chunked")
    assert_same(bench.run(engine, prompts, NUM_OUTPUTS), cold, "chunked and warm")


def test_preemption_under_exact_reuse_changes_nothing(bench: Bench, prompts: list[list[int]]) -> None:
    """So few pages that requests are preempted and resumed."""
    few = [prompt[:60] for prompt in prompts]
    expected = [bench.run(bench.engine(), [prompt], 40)[0] for prompt in few]
    engine = bench.engine(num_pages=9, exact_reuse=True, scheduler_reserve_full_isl=False)
    texts = bench.run(engine, few, 40)
    assert engine.metrics.snapshot().num_preemptions > 0
    assert_same(texts, expected, "preempted")


def test_without_caching_the_texts_are_the_same(
    bench: Bench, prompts: list[list[int]], cold: list[Text]
) -> None:
    """And nothing is ever cached."""
    engine = bench.engine(enable_prefix_caching=False)
    for _ in range(2):
        texts = bench.run(engine, prompts, NUM_OUTPUTS)
        assert [text.cached_tokens for text in texts] == [0] * len(prompts)
        assert_same(texts, cold, "caching off")


def test_pages_of_one_block_give_the_same_texts(
    bench: Bench, prompts: list[list[int]], cold: list[Text]
) -> None:
    """Blocks of 32 tokens on pages of 32: no copies, the same bits."""
    runner = bench.model.runner

    class OneBlock:
        layout = replace(runner.layout, block_size=32)
        run, read_page, write_page = runner.run, runner.read_page, runner.write_page

    model = replace(bench.model, runner=OneBlock())
    engine = build_engine(EngineConfig.from_mapping({"block_size": 32}), model=model)
    bench.run_each(engine, prompts, NUM_OUTPUTS)
    warm = bench.run_each(engine, prompts, NUM_OUTPUTS)
    assert [text.cached_tokens for text in warm] == [(length - 2) // 32 * 32 for length in LENGTHS]
    assert_same(warm, cold, "blocks of a page")


def test_forks_give_what_each_would_give_alone(bench: Bench, prompts: list[list[int]]) -> None:
    """Three sequences of one prompt share its pages; the greedy ones are all the text computed alone."""
    prompt = prompts[3]
    alone = bench.run(bench.engine(), [prompt], NUM_OUTPUTS)[0]
    engine = bench.engine()
    params = SamplingParams(n=3, max_tokens=NUM_OUTPUTS, temperature=0.0, ignore_eos=True)
    completions = LLM(engine=engine).generate([prompt], params)
    assert [completion.token_ids for completion in completions] == [alone.token_ids] * 3
    assert engine.metrics.snapshot().prompt_tokens_computed == len(prompt)
    sampled = params.with_changes(temperature=1.0, seed=3)
    together = LLM(engine=bench.engine()).generate([prompt], sampled)
    apart = [
        LLM(engine=bench.engine()).generate([prompt], sampled.with_changes(n=1, seed=3 + index))[0]
        for index in range(3)
    ]
    assert [one.token_ids for one in together] == [one.token_ids for one in apart]


def test_part_of_a_block_can_be_reused_without_a_trace(bench: Bench, prompts: list[list[int]]) -> None:
    """Every prompt meets another one that leaves it in the middle of a block."""
    others = [[*prompt[: len(prompt) * 2 // 3], *prompt[:20]] for prompt in prompts]
    expected = [bench.run(bench.engine(), [other], NUM_OUTPUTS)[0] for other in others]
    engine = bench.engine(partial_block_reuse=1)
    bench.run_each(engine, prompts, NUM_OUTPUTS)
    texts = bench.run_each(engine, others, NUM_OUTPUTS)
    assert any(text.cached_tokens % 16 for text in texts)
    assert_same(texts, expected, "part of a block")


def test_identical_prompts_at_once_compute_one_of_them(bench: Bench, prompts: list[list[int]]) -> None:
    """The others wait, and give the same bits."""
    prompt = prompts[5]
    alone = bench.run(bench.engine(), [prompt], NUM_OUTPUTS)[0]
    engine = bench.engine(long_prefill_token_threshold=128)
    texts = bench.run(engine, [prompt] * 5, NUM_OUTPUTS)
    assert_same(texts, [alone] * 5, "coalesced")
    assert engine.metrics.snapshot().prompt_tokens_computed <= len(prompt) + 4 * 17
