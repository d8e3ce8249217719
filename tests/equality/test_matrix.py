"""The equality law as a matrix: whatever the feature and whatever the way to run, the text computed cold and alone.

Once on a fake runner, whose every token depends on the K/V it really reads, and once on the real model.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest

from anaphora.assemble import Engine
from anaphora.config import KVLayout
from anaphora.llm import LLM
from anaphora.request import SamplingParams
from tests.e2e.test_whole import make_engine
from tests.equality.support import Bench

NUM_OUTPUTS = 8
PARAMS = SamplingParams(max_tokens=NUM_OUTPUTS, temperature=0.0, ignore_eos=True)

# Settings of the engine, then of the request.
FEATURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "caching off": ({"enable_prefix_caching": False}, {}),
    "exact reuse": ({"exact_reuse": True}, {}),
    "part of a block": ({"partial_block_reuse": 1}, {}),
    "cbor digests": ({"prefix_caching_hash_algo": "sha256_cbor"}, {}),
    "slru": ({"eviction_policy": "slru"}, {}),
    "lfu": ({"eviction_policy": "lfu"}, {}),
    "cost": ({"eviction_policy": "cost"}, {}),
    "no waiting": ({"coalesce_deadline_ms": 0}, {}),
    "logprobs": ({}, {"logprobs": 2}),
    "prompt logprobs": ({}, {"prompt_logprobs": 1}),
    "sampled": ({}, {"temperature": 1.0, "seed": 5}),
}

Maker = Callable[..., Engine]
Texts = list[tuple[int, ...]]


def make_prompts() -> list[list[int]]:
    """Return prompts that leave each other in the middle of blocks and pages."""
    rng = random.Random(5)
    shared = [rng.randrange(1, 250) for _ in range(90)]
    return [
        shared[:head] + [rng.randrange(1, 250) for _ in range(tail)]
        for head, tail in ((0, 21), (40, 9), (77, 30), (90, 2))
    ]


PROMPTS = make_prompts()


def run(engine: Engine, prompts: list[list[int]], params: SamplingParams) -> Texts:
    """Run prompts together and return their tokens; nothing is left behind."""
    completions = LLM(engine=engine).generate(prompts, params)
    engine.scheduler.check_invariants()
    assert engine.manager.pool.usage().used == 0
    return [completion.token_ids for completion in completions]


def one_by_one(engine: Engine, params: SamplingParams) -> Texts:
    """Run the prompts one after another."""
    return [run(engine, [prompt], params)[0] for prompt in PROMPTS]


def cold(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """Each on an engine of its own."""
    return [run(make(**settings), [prompt], params)[0] for prompt in PROMPTS]


def warm(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """A second time, one after another."""
    engine = make(**settings)
    one_by_one(engine, params)
    return one_by_one(engine, params)


def batched(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """All at once, twice."""
    engine = make(**settings)
    first = run(engine, PROMPTS, params)
    assert first == run(engine, PROMPTS, params)
    return first


def chunked(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """At most 24 tokens a step, cold and warm."""
    engine = make(**settings, max_num_batched_tokens=24, max_num_seqs=6)
    first = run(engine, PROMPTS, params)
    assert first == run(engine, PROMPTS, params)
    return first


def preempted(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """In pages for little more than the longest."""
    engine = make(**{**settings, "exact_reuse": True}, few_pages=True, scheduler_reserve_full_isl=False)
    longer = params.with_changes(max_tokens=40)
    texts = run(engine, PROMPTS, longer)
    assert engine.metrics.snapshot().num_preemptions > 0
    return [text[:NUM_OUTPUTS] for text in texts]


def forked(make: Maker, settings: dict[str, Any], params: SamplingParams) -> Texts:
    """The first of three sequences of each prompt."""
    engine = make(**settings)
    texts = run(engine, PROMPTS, params.with_changes(n=3))
    if params.is_greedy:
        assert texts[0::3] == texts[1::3] == texts[2::3]
    return texts[0::3]


WAYS = [warm, batched, chunked, preempted, forked]


def fake_maker(**settings: Any) -> Engine:
    """Return an engine over a fake runner whose two kernels differ."""
    num_pages = 8 if settings.pop("few_pages", False) else 64
    # Without exact reuse nothing is promised of outputs that come back; no prompt here holds any.
    return make_engine(KVLayout(16, 32, num_pages, 2), max_model_len=(num_pages - 1) * 32, **settings)


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("way", WAYS)
def test_on_a_fake_runner_every_way_gives_the_text_computed_cold_and_alone(
    feature: str, way: Callable[[Maker, dict[str, Any], SamplingParams], Texts]
) -> None:
    """A wrong page, a missed copy or a block of the wrong kernel would give another text."""
    settings, changes = FEATURES[feature]
    params = PARAMS.with_changes(**changes)
    assert way(fake_maker, settings, params) == cold(fake_maker, settings, params)


@pytest.mark.model
@pytest.mark.parametrize(
    "feature", ["plain", "exact reuse", "part of a block", "logprobs", "prompt logprobs", "sampled"]
)
@pytest.mark.parametrize("way", WAYS)
def test_on_the_real_model_every_way_gives_the_text_computed_cold_and_alone(
    bench: Bench, feature: str, way: Callable[[Maker, dict[str, Any], SamplingParams], Texts]
) -> None:
    """In both precisions."""

    def make(*, few_pages: bool = False, **settings: Any) -> Engine:
        return bench.engine(num_pages=8 if few_pages else None, **settings)

    settings, changes = FEATURES[feature]
    params = PARAMS.with_changes(**changes)
    if feature not in bench.cold_texts:
        bench.cold_texts[feature] = cold(make, settings, params)
    assert way(make, settings, params) == bench.cold_texts[feature]
