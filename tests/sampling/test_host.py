"""The host sampler: one table of cases, and properties against a naive twin made of lists."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anaphora.ids import RequestId
from anaphora.request import SamplingParams
from anaphora.sampling import host
from anaphora.sampling.host import sample
from anaphora.scheduler.plan import SampleSpec

INF = math.inf
NAN = math.nan


def make_spec(
    *,
    prompt: Sequence[int] = (0,),
    outputs: Sequence[int] = (),
    banned: Sequence[int] = (),
    seed: int = 0,
    **params: Any,
) -> SampleSpec:
    return SampleSpec(
        request_id=RequestId("r"),
        params=SamplingParams(**{"temperature": 0.0, **params}),
        seed=seed,
        token_ids=[*prompt, *outputs],
        num_prompt_tokens=len(prompt),
        banned_token_ids=banned,
    )


def at_position(spec: SampleSpec, position: int) -> SampleSpec:
    """The same spec, without penalties, for another position of its sequence."""
    return SampleSpec(
        spec.request_id, spec.params, spec.seed, range(position), position, spec.banned_token_ids
    )


def rows(*values: Sequence[float]) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def sample_one(row: Sequence[float] | NDArray[np.float32], spec: SampleSpec) -> int:
    return sample(np.array([row], np.float32), [spec])[0]


def tokens_drawn(row: Sequence[float], spec: SampleSpec, num_draws: int = 300) -> set[int]:
    return {sample_one(row, at_position(spec, position)) for position in range(num_draws)}


# ---------------------------------------------------------------------------------------------------------
# The table


class Case(NamedTuple):
    """Logits and parameters, and every token that may be chosen; one token means: always that one."""

    name: str
    logits: Sequence[float]
    spec: SampleSpec
    allowed: set[int]


GREEDY = [
    Case("greedy takes the largest", [1, 3, 2], make_spec(), {1}),
    Case("of equal logits the lowest id wins", [1, 3, 3, 3], make_spec(), {1}),
    Case("all equal gives id 0", [0, 0, 0], make_spec(), {0}),
    Case("a temperature below 1e-5 is greedy", [1, 3, 3], make_spec(temperature=1e-6), {1}),
    Case("the smallest temperature of all is greedy", [1, 3, 2], make_spec(temperature=5e-324), {1}),
    Case(
        "top-k, top-p and min-p do not matter to greedy",
        [1, 3, 2],
        make_spec(top_k=3, top_p=0.1, min_p=1.0),
        {1},
    ),
    Case("a bias is added", [1, 3, 2], make_spec(logit_bias={0: 2.5}), {0}),
    Case("a bias of -100 rules a token out", [1, 3, 2], make_spec(logit_bias={1: -100.0}), {2}),
    Case("a banned token is not chosen", [1, 3, 2], make_spec(banned=[1]), {2}),
    Case("a ban beats a bias", [1, 3, 2], make_spec(banned=[1], logit_bias={1: 100.0}), {2}),
    Case("presence: an output loses its lead", [1, 3, 2], make_spec(outputs=[1], presence_penalty=1.5), {2}),
    Case("presence counts once", [1, 3, 2], make_spec(outputs=[1, 1, 1], presence_penalty=0.9), {1}),
    Case("presence looks at outputs only", [1, 3, 2], make_spec(prompt=[1], presence_penalty=2.0), {1}),
    Case(
        "a negative presence penalty invites", [1, 3, 2], make_spec(outputs=[2], presence_penalty=-1.5), {2}
    ),
    Case("frequency counts each time", [1, 3, 2], make_spec(outputs=[1, 1, 1], frequency_penalty=0.4), {2}),
    Case(
        "frequency 0.4 for one time is too little",
        [1, 3, 2],
        make_spec(outputs=[1], frequency_penalty=0.4),
        {1},
    ),
    Case("frequency looks at outputs only", [1, 3, 2], make_spec(prompt=[1] * 9, frequency_penalty=1.0), {1}),
    Case(
        "frequency and presence add up",
        [1, 3, 2],
        make_spec(outputs=[1], frequency_penalty=0.6, presence_penalty=0.6),
        {2},
    ),
    Case(
        "repetition divides a positive logit", [1, 3, 2], make_spec(prompt=[1], repetition_penalty=2.0), {2}
    ),
    Case(
        "repetition multiplies a negative logit",
        [-4, -1, -3],
        make_spec(prompt=[1], repetition_penalty=3.5),
        {2},
    ),
    Case("repetition looks at outputs too", [1, 3, 2], make_spec(outputs=[1], repetition_penalty=2.0), {2}),
    Case("repetition counts once", [1, 3, 2], make_spec(prompt=[1, 1, 1], repetition_penalty=1.4), {1}),
    Case(
        "repetition comes before presence: 3 / 2 + 0.6 is over 2, (3 + 0.6) / 2 is not",
        [1, 3, 2],
        make_spec(outputs=[1], repetition_penalty=2.0, presence_penalty=-0.6),
        {1},
    ),
    Case(
        "a bias comes before repetition: (3 + 0.9) / 2 is under 2, 3 / 2 + 0.9 is not",
        [1, 3, 2],
        make_spec(prompt=[1], repetition_penalty=2.0, logit_bias={1: 0.9}),
        {2},
    ),
]

BROKEN = [
    Case("NaN counts as minus infinity", [NAN, 1, 2], make_spec(), {2}),
    Case("NaN is never drawn", [NAN, 1, 1], make_spec(temperature=1.0), {1, 2}),
    Case("nothing but NaN gives the lowest id", [NAN, NAN], make_spec(), {0}),
    Case("nothing but minus infinity gives the lowest id", [-INF, -INF], make_spec(temperature=1.0), {0}),
    Case("… that is not banned", [-INF, -INF, -INF], make_spec(temperature=1.0, banned=[0, 1]), {2}),
    Case("the only possible token is banned", [-INF, 3, -INF], make_spec(banned=[1, 0]), {2}),
    Case("everything is banned", [1, 3, 2], make_spec(banned=[0, 1, 2]), {0}),
    Case("everything is banned, at random", [1, 3, 2], make_spec(temperature=1.0, banned=[0, 1, 2]), {0}),
    Case("plus infinity wins", [1, INF, INF], make_spec(temperature=1.0), {1}),
    Case("plus infinity loses when banned", [1, INF, 1], make_spec(temperature=1.0, banned=[1]), {0, 2}),
    Case("minus infinity is never drawn", [-INF, 0, 0, -INF], make_spec(temperature=2.0), {1, 2}),
    Case(
        "the largest finite logits do not overflow", [-3e38, 3e38, 3e38], make_spec(temperature=1.0), {1, 2}
    ),
    Case("logits far apart do not overflow", [-1e30, 1e30, 1e30], make_spec(temperature=1e-5), {1, 2}),
]

RANDOM = [
    Case("without filters every token comes", [0, 0, 0, 0], make_spec(temperature=1.0), {0, 1, 2, 3}),
    Case("top-k 2", [0, 1, 2, 3], make_spec(temperature=2.0, top_k=2), {2, 3}),
    Case("top-k 1", [0, 1, 2, 3], make_spec(temperature=2.0, top_k=1), {3}),
    Case("top-k -1 is off", [0, 0, 0], make_spec(temperature=1.0, top_k=-1), {0, 1, 2}),
    Case("top-k over the vocabulary is off", [0, 0, 0], make_spec(temperature=1.0, top_k=99), {0, 1, 2}),
    Case(
        "top-k keeps all that tie with the last",
        [0, 1, 1, 1, 2],
        make_spec(temperature=1.0, top_k=2),
        {1, 2, 3, 4},
    ),
    Case(
        "top-k larger than what is possible",
        [-INF, 0, 0, -INF],
        make_spec(temperature=1.0, top_k=3),
        {1, 2},
    ),
    Case(
        "top-p of half of ten equal tokens: the five lowest ids",
        [0] * 10,
        make_spec(temperature=1, top_p=0.5),
        set(range(5)),
    ),
    Case("top-p of a little more: six", [0] * 10, make_spec(temperature=1, top_p=0.51), set(range(6))),
    Case("top-p keeps at least one", [0, 0, 5], make_spec(temperature=1, top_p=1e-9), {2}),
    Case("top-p just below 1 drops the last", [0] * 10, make_spec(temperature=1, top_p=0.9), set(range(9))),
    Case("top-p counts from the most likely", [0, math.log(3), 0], make_spec(temperature=1, top_p=0.59), {1}),
    Case(
        "top-p crossed inside equal ones: the lower id",
        [0, math.log(2), 0],
        make_spec(temperature=1, top_p=0.7),
        {0, 1},
    ),
    Case(
        "min-p is relative to the most likely",
        [0, math.log(3), math.log(10)],
        make_spec(temperature=1, min_p=0.2),
        {1, 2},
    ),
    Case("min-p 1 keeps the most likely ones", [0, 1, 1], make_spec(temperature=1, min_p=1.0), {1, 2}),
    Case(
        "temperature comes before min-p: the ratio 10 becomes its root",
        [0, math.log(10)],
        make_spec(temperature=2.0, min_p=0.2),
        {0, 1},
    ),
    Case(
        "top-p shares out what top-k left",
        [math.log(4), math.log(3), math.log(3)] + [math.log(1)] * 20,
        # 4 of the whole 30 is under half; of the 10 that top-k leaves it takes two tokens to reach half.
        make_spec(temperature=1, top_k=3, top_p=0.5),
        {0, 1},
    ),
    Case(
        "top-p shares out what min-p left",
        [math.log(4), math.log(3), math.log(3)] + [math.log(1)] * 20,
        make_spec(temperature=1, min_p=0.5, top_p=0.5),
        {0, 1},
    ),
    Case("a banned token is never drawn", [0, 0, 9], make_spec(temperature=1.0, banned=[2]), {0, 1}),
    Case(
        "top-k chooses among what is not banned",
        [0, 0, 9, 9],
        make_spec(temperature=1.0, banned=[3, 2], top_k=2),
        {0, 1},
    ),
]


@pytest.mark.parametrize("case", [*GREEDY, *BROKEN], ids=lambda case: case.name)
def test_the_token_is_one_of_those_allowed(case: Case) -> None:
    assert sample_one(case.logits, case.spec) in case.allowed


@pytest.mark.parametrize("case", [*BROKEN, *RANDOM], ids=lambda case: case.name)
def test_exactly_the_allowed_tokens_are_drawn(case: Case) -> None:
    assert tokens_drawn(case.logits, case.spec) == case.allowed


# ---------------------------------------------------------------------------------------------------------
# Greedy


def test_greedy_is_the_argmax_of_logits_that_differ_in_the_last_bit() -> None:
    row = np.full(49_152, 7.0, np.float32)
    row[40_001] = np.nextafter(np.float32(7.0), np.float32(8.0))
    assert sample_one(row, make_spec()) == 40_001


def test_the_lowest_of_equal_ids_wins_anywhere_in_a_wide_row() -> None:
    row = np.zeros(49_152, np.float32)
    row[[33, 34, 47_000]] = 1.0
    assert sample_one(row, make_spec()) == 33


def test_one_broken_row_does_not_disturb_the_greedy_rows_beside_it() -> None:
    logits = rows([1, 3, 2], [NAN, 1, 2], [-INF, -INF, -INF], [5, 3, 2])
    assert sample(logits, [make_spec()] * 4) == [1, 2, 0, 0]


def test_no_rows_give_no_tokens() -> None:
    assert sample(np.empty((0, 5), np.float32), []) == []


def test_tokens_are_plain_ints() -> None:
    logits = rows([1, 3, 2], [1, 3, 2])
    for spec in (make_spec(), make_spec(temperature=1.0), make_spec(temperature=1.0, top_k=2)):
        assert [type(token) for token in sample(logits, [spec, spec])] == [int, int]


# ---------------------------------------------------------------------------------------------------------
# What the caller may rely on


def test_the_logits_are_not_modified() -> None:
    logits = rows([1, 3, 2], [NAN, 3, 2], [1, 3, 2])
    logits.flags.writeable = False
    specs = [
        make_spec(
            temperature=1.0, logit_bias={0: 5.0}, banned=[1], repetition_penalty=2.0, presence_penalty=1.0
        ),
        make_spec(temperature=1.0, outputs=[1], frequency_penalty=1.0, top_k=2, top_p=0.5, min_p=0.1),
        make_spec(),
    ]
    sample(logits, specs)
    np.testing.assert_array_equal(logits, rows([1, 3, 2], [NAN, 3, 2], [1, 3, 2]))


def test_rows_without_a_spec_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows of logits for 1 samples"):
        sample(rows([1, 2], [1, 2]), [make_spec()])


@pytest.mark.parametrize(
    "spec",
    [
        make_spec(logit_bias={3: 1.0}),
        make_spec(banned=[3]),
        make_spec(prompt=[3], repetition_penalty=1.1),
        make_spec(outputs=[3], presence_penalty=1.0),
    ],
)
def test_a_token_id_outside_the_vocabulary_is_an_error(spec: SampleSpec) -> None:
    with pytest.raises(IndexError):
        sample_one([1, 2, 3], spec)


# ---------------------------------------------------------------------------------------------------------
# Random draws


def test_the_numbers_of_a_seed_never_change() -> None:
    """Users keep seeds: a release that draws other numbers breaks their texts."""
    numbers = [
        host._uniform(seed, position)
        for seed, position in [(0, 1), (0, 2), (1, 1), (-1, 1), (2**63 - 1, 8192)]
    ]
    assert numbers == UNIFORM_GOLDEN


UNIFORM_GOLDEN = [
    0.5023796042735054,
    0.25382274039248487,
    0.9002684531124185,
    0.3501621337115973,
    0.21324603033913603,
]


def test_a_negative_seed_is_folded_into_64_bits() -> None:
    assert host._uniform(-5, 3) == host._uniform(2**64 - 5, 3)


def test_neighbouring_seeds_and_positions_draw_unrelated_numbers() -> None:
    numbers = [host._uniform(seed, position) for seed in range(-20, 20) for position in range(40)]
    assert len(set(numbers)) == len(numbers)
    grid = np.array(numbers).reshape(40, 40)
    neighbours = [
        np.corrcoef(grid[1:].ravel(), grid[:-1].ravel()),
        np.corrcoef(grid[:, 1:].ravel(), grid[:, :-1].ravel()),
    ]
    assert all(abs(matrix[0, 1]) < 0.1 for matrix in neighbours)


def chi_square(observed: Counter[int], expected: Sequence[float]) -> float:
    return sum((observed[index] - count) ** 2 / count for index, count in enumerate(expected))


def test_tokens_come_as_often_as_their_probability_says() -> None:
    probabilities = [0.4, 0.3, 0.15, 0.1, 0.04, 0.01]
    spec = make_spec(temperature=1.0, seed=7)
    logits = np.log(np.array([probabilities] * 5000, np.float32)) + 3
    drawn = Counter(sample(logits, [at_position(spec, position) for position in range(5000)]))
    assert (
        chi_square(drawn, [5000 * p for p in probabilities]) < 20.5
    )  # 5 degrees of freedom: 1 in 1,000 is over


def test_temperature_flattens_the_distribution_as_the_formula_says() -> None:
    weights = [p**0.5 for p in (0.64, 0.16, 0.16, 0.04)]
    spec = make_spec(temperature=2.0, seed=-3)
    logits = np.log(np.array([[0.64, 0.16, 0.16, 0.04]] * 4000, np.float32))
    drawn = Counter(sample(logits, [at_position(spec, position) for position in range(4000)]))
    assert chi_square(drawn, [4000 * w / sum(weights) for w in weights]) < 16.3  # 3 degrees of freedom


def test_all_parts_of_a_wide_vocabulary_come_alike() -> None:
    """The running sum is taken in blocks; neither their borders nor the short last one may be favoured."""
    vocab_size, num_draws = 1_001, 4_004
    spec = make_spec(temperature=1.0, seed=11)
    logits = np.zeros((1, vocab_size), np.float32)
    drawn = [sample(logits, [at_position(spec, position)])[0] for position in range(num_draws)]
    by_eighty = Counter(token // 91 for token in drawn)
    assert chi_square(by_eighty, [num_draws / 11] * 11) < 29.6  # 10 degrees of freedom
    assert {0, 255, 256, 511, 512, 1_000} <= set(drawn)


def test_seeds_give_different_texts_and_a_seed_gives_the_same_text() -> None:
    logits = np.zeros((30, 1_000), np.float32)

    def text(seed: int) -> list[int]:
        spec = make_spec(temperature=1.0, seed=seed)
        return sample(logits, [at_position(spec, position) for position in range(30)])

    assert text(1) == text(1)
    assert len({tuple(text(seed)) for seed in range(20)}) == 20


@pytest.mark.parametrize("share", [0.0, 0.5, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("size", [1, 255, 256, 257, 700])
def test_no_share_of_the_total_selects_a_weight_of_zero(size: int, share: float) -> None:
    """Rounding once made the last share point behind the last positive weight."""
    rng = np.random.default_rng(size)
    for num_positive in {1, size // 2 + 1, size}:
        weights = np.zeros(size, np.float32)
        weights[rng.choice(size, num_positive, replace=False)] = rng.random(num_positive) + 1e-3
        for side in ("left", "right"):
            index = host._locate(weights, share * float(weights.sum(dtype=np.float64)), side)
            assert weights[index] > 0 or (side == "left" and share == 0.0)


# ---------------------------------------------------------------------------------------------------------
# The naive twin


def naive_logits(row: Sequence[float], spec: SampleSpec) -> list[float]:
    """Bias, bans and penalties in plain Python, in double precision."""
    params, values = spec.params, [-INF if math.isnan(value) else value for value in row]
    outputs = Counter(spec.token_ids[spec.num_prompt_tokens :])
    for token, bias in params.logit_bias.items():
        values[token] += bias
    for token in spec.banned_token_ids:
        values[token] = -INF
    for token in set(spec.token_ids):
        factor = params.repetition_penalty
        values[token] = values[token] / factor if values[token] > 0 else values[token] * factor
    for token, count in outputs.items():
        values[token] -= params.frequency_penalty * count + params.presence_penalty
    return values


def naive_allowed(values: Sequence[float], params: SamplingParams) -> set[int]:
    """The tokens that filters leave, and those that rounding may leave too."""
    best, slack = max(values), 1e-4
    if params.is_greedy:
        return {token for token, value in enumerate(values) if value >= best - slack}
    weights = [math.exp((value - best) / params.temperature) for value in values]
    weights = [weight if weight >= params.min_p * (1 - slack) else 0.0 for weight in weights]
    if 0 < params.top_k < len(weights):
        kth = sorted(weights, reverse=True)[params.top_k - 1]
        weights = [weight if weight >= kth * (1 - slack) else 0.0 for weight in weights]
    allowed, total = set(), sum(weights)
    for token, weight in enumerate(weights):
        heavier = sum(other for other in weights if other > weight * (1 + slack))
        if weight > 0 and heavier < params.top_p * total * (1 + slack):
            allowed.add(token)
    return allowed


VOCAB = 12
token_ids = st.lists(st.integers(0, VOCAB - 1), max_size=8)
logit = st.one_of(st.floats(-20, 20, width=32), st.sampled_from([0.0, 1.0, -1.0, -INF, NAN]))
logit_rows = st.lists(logit, min_size=VOCAB, max_size=VOCAB).filter(lambda row: any(map(math.isfinite, row)))


@st.composite
def specs(draw: st.DrawFn) -> SampleSpec:
    return make_spec(
        prompt=draw(token_ids) or [0],
        outputs=draw(token_ids),
        banned=draw(st.lists(st.integers(0, VOCAB - 1), max_size=2)),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        temperature=draw(st.sampled_from([0.0, 0.01, 0.5, 1.0, 2.0])),
        top_k=draw(st.sampled_from([-1, 0, 1, 2, 5, 50])),
        top_p=draw(st.sampled_from([1.0, 0.95, 0.5, 0.1])),
        min_p=draw(st.sampled_from([0.0, 0.05, 0.5, 1.0])),
        presence_penalty=draw(st.sampled_from([0.0, 1.0, -2.0])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.5, -1.0])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.3, 0.5])),
        logit_bias=draw(
            st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-100, 100, width=32), max_size=3)
        ),
    )


@settings(max_examples=300)
@given(row=logit_rows, spec=specs())
def test_the_chosen_token_is_one_the_naive_twin_allows(row: list[float], spec: SampleSpec) -> None:
    values = naive_logits(row, spec)
    token = sample_one(row, spec)
    if max(values) == -INF:
        assert token not in spec.banned_token_ids
    else:
        assert token in naive_allowed(values, spec.params)


@settings(max_examples=200)
@given(row=logit_rows, spec=specs())
def test_bias_bans_and_penalties_give_the_logits_of_the_naive_twin(
    row: list[float], spec: SampleSpec
) -> None:
    adjusted = host._adjusted(np.array(row, np.float32), spec)
    assert adjusted.dtype == np.float32
    adjusted[np.isnan(adjusted)] = -INF
    np.testing.assert_allclose(adjusted, naive_logits(row, spec), rtol=1e-5, atol=1e-4)


@settings(max_examples=200)
@given(batch=st.lists(st.tuples(logit_rows, specs()), min_size=1, max_size=6))
def test_a_row_is_sampled_alike_alone_and_in_any_company(batch: list[tuple[list[float], SampleSpec]]) -> None:
    logits = np.array([row for row, _ in batch], np.float32)
    alone = [sample_one(row, spec) for row, spec in batch]
    assert sample(logits, [spec for _, spec in batch]) == alone
    assert sample(logits[::-1], [spec for _, spec in reversed(batch)]) == alone[::-1]
    assert sample(np.asfortranarray(logits), [spec for _, spec in batch]) == alone


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"top_p": 0.9},
        {"top_p": 0.999},
        {"top_k": 50},
        {"min_p": 0.01},
        {"top_k": 1000, "top_p": 0.8, "min_p": 1e-4},
    ],
    ids=str,
)
def test_a_wide_row_is_sampled_alike_alone_and_in_any_company(params: dict[str, Any]) -> None:
    """Where a row lies in memory must not show: this compares the weights, bit for bit, not only the token."""
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 4, (5, 49_157)).astype(np.float32)  # odd width: each row is aligned differently
    batch = [make_spec(temperature=0.9, seed=seed, prompt=range(10), **params) for seed in range(5)]
    assert sample(logits, batch) == [
        sample(row[np.newaxis].copy(), [spec])[0] for row, spec in zip(logits, batch, strict=True)
    ]
    for row in logits:
        weights, copy = host._weights(row, 0.9), host._weights(row.copy(), 0.9)
        assert weights.tobytes() == copy.tobytes()
        assert host._nucleus(weights, 0.9).tobytes() == host._nucleus(copy, 0.9).tobytes()


@pytest.mark.parametrize("top_p", [0.001, 0.1, 0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 4.0, 30.0])
def test_the_nucleus_of_a_wide_row_is_the_smallest_that_reaches_the_share(
    spread: float, top_p: float
) -> None:
    logits = np.random.default_rng(1).normal(0, 1, 5_000).astype(np.float32) * np.float32(spread)
    weights = host._weights(logits, 1.0)
    kept = host._nucleus(weights, top_p)
    mass, total = math.fsum(kept.tolist()), math.fsum(weights.tolist())
    lightest = min(kept[kept > 0].tolist())
    assert mass >= top_p * total * (1 - 1e-7)
    assert mass - lightest < top_p * total * (1 + 1e-7)
    assert weights[kept == 0].max(initial=0.0) <= lightest
