"""Choose the next token of every sequence from logits in host memory, and tell how likely tokens were.

The order of the steps is that of vLLM V1: logit bias and banned tokens, penalties (repetition, frequency,
presence), temperature, min-p, top-k, top-p, one random draw. Nothing is remembered between calls.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from anaphora.ids import TokenId
from anaphora.request import SamplingParams, TokenLogprob, TokenLogprobs
from anaphora.scheduler.plan import SampleSpec

GREEDY_BELOW = 1e-5
"""A lower temperature takes the most likely token, as in vLLM."""

_SEED_MASK = 2**64 - 1
_BLOCK = 256


def sample(logits: NDArray[np.float32], specs: Sequence[SampleSpec]) -> list[TokenId]:
    """Return one token per row of `logits` ([samples, vocabulary]); the logits are not modified.

    A row's token depends on that row and its spec alone, bit for bit, never on the other rows. Equal
    logits: the lowest id wins. NaN counts as minus infinity; a row with nothing but minus infinity gives
    the lowest id that is not banned, a row with plus infinity the first of these.
    Raises ValueError when rows and specs do not pair up, IndexError for a token id outside the vocabulary.
    """
    if len(logits) != len(specs):
        raise ValueError(f"{len(logits)} rows of logits for {len(specs)} samples")
    if all(_takes_argmax(spec) for spec in specs):
        picks = logits.argmax(axis=1)
        if np.isfinite(logits[np.arange(len(specs)), picks]).all():
            return [int(pick) for pick in picks]
    # One row after the other, each in vector operations over the vocabulary: a row and its temporaries stay
    # in the CPU's cache, and no reduction can see how many rows there are.
    return [_sample_row(row, spec) for row, spec in zip(logits, specs, strict=True)]


def _takes_argmax(spec: SampleSpec) -> bool:
    return spec.params.temperature < GREEDY_BELOW and not _changes_logits(spec)


def _changes_logits(spec: SampleSpec) -> bool:
    return bool(spec.params.logit_bias or spec.banned_token_ids) or _has_penalty(spec.params)


def _has_penalty(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    )


def _sample_row(row: NDArray[np.float32], spec: SampleSpec) -> TokenId:
    """Return the token chosen from one row, [vocabulary]."""
    if _changes_logits(spec):
        row = _adjusted(row, spec)
    best = int(row.argmax())
    if np.isnan(row[best]):  # argmax stops at the first NaN
        row = np.where(np.isnan(row), np.float32(-np.inf), row)
        best = int(row.argmax())
    if row[best] == -np.inf:
        return _lowest_id_not_in(spec.banned_token_ids, row.size)
    if row[best] == np.inf or spec.params.temperature < GREEDY_BELOW:
        return best
    return _draw(row, spec)


def _lowest_id_not_in(banned: Iterable[TokenId], vocab_size: int) -> TokenId:
    """Return the lowest allowed id, or 0 when every id is banned."""
    refused = frozenset(banned)
    return next((token_id for token_id in range(vocab_size) if token_id not in refused), 0)


# ---------------------------------------------------------------------------------------------------------
# What changes the logits


def _adjusted(row: NDArray[np.float32], spec: SampleSpec) -> NDArray[np.float32]:
    """Return a copy of a row with bias, bans and penalties applied, in single precision as vLLM does."""
    row = row.copy()
    params = spec.params
    if params.logit_bias:
        row[_id_array(params.logit_bias)] += np.array(list(params.logit_bias.values()), np.float32)
    if spec.banned_token_ids:
        row[_id_array(spec.banned_token_ids)] = -np.inf
    if params.repetition_penalty != 1.0:
        _penalize_repetition(row, _id_array(spec.token_ids), params.repetition_penalty)
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        outputs = _id_array(spec.token_ids[spec.num_prompt_tokens :])
        _penalize_outputs(row, outputs, params.frequency_penalty, params.presence_penalty)
    return row


def _id_array(token_ids: Iterable[TokenId]) -> NDArray[np.int64]:
    return np.fromiter(token_ids, np.int64)


def _penalize_repetition(row: NDArray[np.float32], seen: NDArray[np.int64], penalty: float) -> None:
    """Move the logits of all tokens seen so far towards "no"; Keskar et al. 2019, section 4.1."""
    # An id that stands in `seen` twice is read twice before it is written twice: one penalty.
    values = row[seen]
    row[seen] = np.where(values > 0, values / penalty, values * penalty)


def _penalize_outputs(
    row: NDArray[np.float32], outputs: NDArray[np.int64], frequency: float, presence: float
) -> None:
    """Lower the logits of generated tokens: by `frequency` for each time, by `presence` once; OpenAI API."""
    counts = np.bincount(outputs)
    generated = np.flatnonzero(counts)
    row[generated] -= frequency * counts[generated].astype(np.float32)
    row[generated] -= presence


# ---------------------------------------------------------------------------------------------------------
# The draw


def _draw(row: NDArray[np.float32], spec: SampleSpec) -> TokenId:
    """Return a random token of a row whose largest value is finite."""
    params = spec.params
    ids = _top_k_ids(row, params.top_k)
    weights = _weights(row if ids is None else row[ids], params.temperature)
    if params.min_p > 0.0:
        weights = weights * (weights >= np.float32(params.min_p))
    if params.top_p < 1.0:
        weights = _nucleus(weights, params.top_p)
    share = _uniform(spec.seed, len(spec.token_ids))
    index = _locate(weights, share * weights.sum(dtype=np.float64), side="right")
    return index if ids is None else int(ids[index])


def _top_k_ids(row: NDArray[np.float32], top_k: int) -> NDArray[np.intp] | None:
    """Return the ids of the `top_k` largest logits, ascending, or None for all of them.

    All ids that tie with the last of them are kept too, as in vLLM.
    """
    if not 0 < top_k < row.size:
        return None
    kth_largest = np.partition(row, row.size - top_k)[row.size - top_k]
    return np.flatnonzero(row >= kth_largest)


def _weights(values: NDArray[np.float32], temperature: float) -> NDArray[np.float32]:
    """Return the probabilities of logits relative to the largest one, whose weight is exactly 1."""
    # Single precision has a vector exponential on every CPU, and its error, 1e-6, is far below that of the
    # logits. Sums over many weights are taken in double precision.
    with np.errstate(over="ignore"):  # minus infinity is the right answer
        scaled = (values - values.max()) / np.float32(temperature)
    weights: NDArray[np.float32] = np.exp(scaled)
    return weights


def _nucleus(weights: NDArray[np.float32], top_p: float) -> NDArray[np.float32]:
    """Return the weights with all but the smallest set that holds the share `top_p` set to 0.

    The set has at least one token; of equal weights the lower ids enter first.
    """
    total = weights.sum(dtype=np.float64)
    # Those below this floor hold less than 1 - top_p even together: the others suffice, and few are left to sort.
    floor = np.float32((1.0 - top_p) * total / weights.size)
    descending = np.sort(weights.compress(weights >= floor))[::-1]
    last = _locate(descending, top_p * total, side="left")
    kept = weights > descending[last]
    ties = np.flatnonzero(weights == descending[last])
    kept[ties[: last + 1 - np.count_nonzero(kept)]] = True
    nucleus: NDArray[np.float32] = weights * kept
    return nucleus


def _locate(weights: NDArray[np.float32], target: float, side: Literal["left", "right"]) -> int:
    """Return the first index at which the running sum of weights reaches (left) or passes (right) a target.

    When rounding puts the target out of reach: the last index whose weight is not 0. At least one must not be.
    So passing a target, and reaching one above 0, never give an index whose weight is 0.
    """
    # A running sum over the whole vocabulary is one long chain of additions, and slow. Sums of blocks are not.
    starts = np.arange(0, weights.size, _BLOCK)
    sums = np.cumsum(np.add.reduceat(weights, starts, dtype=np.float64))
    block = _search(sums, target, side)
    before = sums[block - 1] if block > 0 else 0.0
    start = block * _BLOCK
    inside = np.cumsum(weights[start : start + _BLOCK], dtype=np.float64)
    return start + _search(inside, target - before, side)


def _search(sums: NDArray[np.float64], target: float, side: Literal["left", "right"]) -> int:
    """Return the first index whose running sum reaches or passes the target, at most where they end to grow."""
    return int(min(np.searchsorted(sums, target, side=side), np.searchsorted(sums, sums[-1])))


def _uniform(seed: int, position: int) -> float:
    """Return the number in [0, 1) that belongs to a position of a seed's sequence; Philox 4x64-10.

    Negative seeds are folded into 64 bits.
    """
    return float(np.random.Generator(np.random.Philox(key=seed & _SEED_MASK, counter=position)).random())


# ---------------------------------------------------------------------------------------------------------
# Log probabilities


def token_logprobs(row: NDArray[np.float32], token_id: TokenId, num_top: int) -> TokenLogprobs:
    """Return how likely a token was by a row of the model's own logits, [vocabulary], and the most likely ones.

    No bias, ban, penalty or temperature counts. A value depends on its row alone, bit for bit. NaN counts as
    minus infinity; tokens of plus infinity, or all if there is nothing but minus infinity, share the probability.
    """
    row = _with_finite_best(row)
    best = row.max()
    # As for weights: single precision for each of them, double for their sum.
    log_total = float(best) + float(np.log(np.exp(row - best).sum(dtype=np.float64)))
    value = row[token_id]
    num_before = np.count_nonzero(row > value) + np.count_nonzero(row[:token_id] == value)
    return TokenLogprobs(
        token_id,
        float(value) - log_total,
        1 + int(num_before),
        tuple(TokenLogprob(int(i), float(row[i]) - log_total) for i in _most_likely_ids(row, num_top)),
    )


def _with_finite_best(row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a row whose largest value is finite, and that has no NaN."""
    if np.isfinite(row.max()):  # NaN is larger than all
        return row
    row = np.where(np.isnan(row), np.float32(-np.inf), row)
    best = row.max()
    return row if np.isfinite(best) else np.where(row == best, np.float32(0), np.float32(-np.inf))


def _most_likely_ids(row: NDArray[np.float32], num: int) -> NDArray[np.intp]:
    """Return the ids of the `num` largest values, the largest first, of equal ones the lower id."""
    if num == 0:
        return np.arange(0)
    ids = _top_k_ids(row, num)
    if ids is None:
        ids = np.arange(row.size)
    return ids[np.argsort(-row[ids], kind="stable")[:num]]
