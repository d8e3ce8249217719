"""Log probabilities on the real model: right values, and the same bits whatever the cache, the chunks and the batch."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from anaphora.assemble import Engine
from anaphora.llm import LLM, Completion
from anaphora.request import SamplingParams, TokenLogprobs
from tests.equality.support import Bench

pytestmark = pytest.mark.model

LENGTHS = (1, 2, 37, 100, 300, 700)
SCORED = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True, logprobs=4, prompt_logprobs=4)
PLAIN = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Random tokens that share a beginning."""
    rng = random.Random(11)
    shared = [rng.randrange(100, 40_000) for _ in range(50)]
    return [
        (shared + [rng.randrange(100, 40_000) for _ in range(length)])[:length]
        if length > 50
        else shared[:length]
        for length in LENGTHS
    ]


def score(engine: Engine, prompts: Sequence[list[int]], params: SamplingParams = SCORED) -> list[Completion]:
    """Run prompts together."""
    completions = LLM(engine=engine).generate(list(prompts), params)
    engine.scheduler.check_invariants()
    assert engine.manager.pool.usage().used == 0
    return completions


@pytest.fixture(scope="module")
def cold(bench: Bench, prompts: list[list[int]]) -> list[Completion]:
    """Every prompt alone, with nothing cached."""
    return [score(bench.engine(), [prompt])[0] for prompt in prompts]


def told(completions: Sequence[Completion]) -> list[object]:
    """All that is to be the same."""
    return [(one.token_ids, one.logprobs, one.prompt_logprobs) for one in completions]


def logarithms_of_softmax(row: NDArray[np.float32]) -> NDArray[np.float64]:
    """In double precision throughout."""
    exact = row.astype(np.float64)
    logarithms: NDArray[np.float64] = exact - np.logaddexp.reduce(exact)
    return logarithms


def test_every_token_but_the_first_of_a_prompt_has_one(
    cold: list[Completion], prompts: list[list[int]]
) -> None:
    for completion, prompt in zip(cold, prompts, strict=True):
        assert completion.prompt_logprobs is not None and completion.logprobs is not None
        first, *others = completion.prompt_logprobs
        assert first is None
        assert [entry.token_id for entry in others if entry] == prompt[1:]
        assert tuple(entry.token_id for entry in completion.logprobs) == completion.token_ids
        assert [entry.rank for entry in completion.logprobs] == [1] * 3
        assert completion.cumulative_logprob == sum(entry.logprob for entry in completion.logprobs)


def test_values_are_those_of_the_logits(bench: Bench, prompts: list[list[int]]) -> None:
    for prompt in prompts:
        bench.sampler.first_logits.clear()
        (completion,) = score(bench.engine(), [prompt])
        (row,) = bench.sampler.first_logits.values()
        exact = logarithms_of_softmax(row)
        assert completion.logprobs is not None
        first = completion.logprobs[0]
        assert first.logprob == pytest.approx(exact[first.token_id], abs=2e-6)
        assert [logprob for _, logprob in first.top] == pytest.approx(np.sort(exact)[::-1][:4], abs=2e-6)


def test_they_change_neither_logits_nor_tokens(
    bench: Bench, prompts: list[list[int]], cold: list[Completion]
) -> None:
    """The last row is the same bits, whether the rows before it are asked for or not."""
    for prompt, asked in zip(prompts, cold, strict=True):
        rows: list[NDArray[np.float32]] = []
        for params in (PLAIN, SCORED):
            bench.sampler.first_logits.clear()
            (completion,) = score(bench.engine(), [prompt], params)
            rows += bench.sampler.first_logits.values()
            assert completion.token_ids == asked.token_ids
        assert np.array_equal(rows[0], rows[1])


def test_chunks_neighbours_and_a_warm_cache_change_nothing(
    bench: Bench, prompts: list[list[int]], cold: list[Completion]
) -> None:
    engine = bench.engine(max_num_batched_tokens=64, max_num_seqs=8)
    assert told(score(engine, prompts)) == told(cold)
    plain = score(engine, prompts, PLAIN)
    assert [one.cached_tokens for one in plain] == [max(0, (length - 2) // 16 * 16) for length in LENGTHS]
    again = score(engine, prompts)
    assert (told(again), [one.cached_tokens for one in again]) == (told(cold), [0] * len(prompts))


def test_without_caching_they_are_the_same(
    bench: Bench, prompts: list[list[int]], cold: list[Completion]
) -> None:
    engine = bench.engine(enable_prefix_caching=False)
    assert told(score(engine, prompts)) == told(cold)
    assert engine.metrics.snapshot().missed_tokens["bypassed", ""] == sum(LENGTHS)


def test_a_preempted_prefill_tells_what_it_tells_undisturbed(bench: Bench, prompts: list[list[int]]) -> None:
    """So few pages that requests are preempted and resumed."""
    params = SCORED.with_changes(max_tokens=40)
    few = [prompt[:60] for prompt in prompts[2:]]
    expected = [score(bench.engine(exact_reuse=True), [prompt], params)[0] for prompt in few]
    engine = bench.engine(num_pages=9, exact_reuse=True, scheduler_reserve_full_isl=False)
    assert told(score(engine, few, params)) == told(expected)
    assert engine.metrics.snapshot().num_preemptions > 0


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_token_of_a_prompt_is_as_likely_as_when_it_is_generated_there(
    bench: Bench, prompts: list[list[int]], cold: list[Completion], *, is_warm: bool
) -> None:
    """Bit for bit; a bias forces the token, and raw log probabilities do not see it.

    A beginning of one token is left out: it takes the kernel for decodes.
    """
    engine = bench.engine()
    if is_warm:
        score(engine, prompts, PLAIN)
    prompt, scored = prompts[3], cold[3].prompt_logprobs
    assert scored is not None
    for end in range(2, len(prompt), 7):
        found = generated(engine, prompt, end)
        assert found == scored[end]


def generated(engine: Engine, prompt: list[int], end: int) -> TokenLogprobs:
    """Generate the token at a position of a prompt after those before it."""
    params = PLAIN.with_changes(max_tokens=1, logprobs=4, logit_bias={prompt[end]: 100.0})
    (completion,) = score(engine, [prompt[:end]], params)
    assert completion.token_ids == (prompt[end],) and completion.logprobs is not None
    return completion.logprobs[0]


def test_n_sequences_are_told_of_one_prompt(
    bench: Bench, prompts: list[list[int]], cold: list[Completion]
) -> None:
    """And each of its own tokens."""
    params = SCORED.with_changes(n=3, temperature=1.0, seed=5)
    completions = score(bench.engine(), [prompts[3]], params)
    assert [one.prompt_logprobs for one in completions] == [cold[3].prompt_logprobs] * 3
    assert len({one.token_ids for one in completions}) > 1
    for one in completions:
        assert one.logprobs and tuple(entry.token_id for entry in one.logprobs) == one.token_ids


def test_unasked_there_are_none(bench: Bench, prompts: list[list[int]]) -> None:
    (completion,) = score(bench.engine(), [prompts[2]], PLAIN)
    assert (completion.logprobs, completion.cumulative_logprob, completion.prompt_logprobs) == (
        None,
        None,
        None,
    )
