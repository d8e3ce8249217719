"""How long a step takes, by what it computes: a model of five terms, and its fit to measured times."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations

from anaphora.scheduler.plan import StepPlan

_NUM_TERMS = 5
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Work:
    """What some steps compute. Pairs count, for each token, the tokens it attends to, itself included.

    Those of decodes stand apart: a decode reads all that K/V for one token, a prefill once for many.
    """

    num_steps: int = 0
    num_prefill_tokens: int = 0
    num_prefill_pairs: int = 0
    num_decodes: int = 0
    num_decode_pairs: int = 0

    def __add__(self, other: "Work") -> "Work":
        """Return the work of both, one after the other."""
        return Work(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    @classmethod
    def of_plan(cls, plan: StepPlan) -> "Work":
        """Return the work of one step."""
        decodes = [chunk for chunk in plan.chunks if chunk.is_decode]
        prefills = [chunk for chunk in plan.chunks if not chunk.is_decode]
        return cls(
            num_steps=1,
            num_prefill_tokens=sum(len(chunk.token_ids) for chunk in prefills),
            num_prefill_pairs=sum(num_pairs(chunk.start, chunk.end) for chunk in prefills),
            num_decodes=sum(len(chunk.token_ids) for chunk in decodes),
            num_decode_pairs=sum(num_pairs(chunk.start, chunk.end) for chunk in decodes),
        )

    @classmethod
    def of_prefill(cls, start: int, end: int, most_tokens_per_step: int) -> "Work":
        """Return the work of computing a prompt alone, from token `start` on."""
        num_tokens = end - start
        return cls(-(-num_tokens // most_tokens_per_step), num_tokens, num_pairs(start, end))

    @classmethod
    def of_decodes(cls, start: int, num_steps: int, num_sequences: int) -> "Work":
        """Return the work of `num_steps` decode steps of some sequences that have `start` tokens each."""
        pairs = num_pairs(start, start + num_steps) * num_sequences
        return cls(num_steps, num_decodes=num_steps * num_sequences, num_decode_pairs=pairs)


def num_pairs(start: int, end: int) -> int:
    """Return how many tokens the tokens from `start` to `end` attend to, all together."""
    return (end * (end + 1) - start * (start + 1)) // 2


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds for a step at all, for each prefilled or decoded token, and for each token that it attends to."""

    step_s: float = 0.0
    prefill_token_s: float = 0.0
    prefill_pair_s: float = 0.0
    decode_s: float = 0.0
    decode_pair_s: float = 0.0

    def time(self, work: Work) -> float:
        """Return how long some work takes."""
        return (
            self.step_s * work.num_steps
            + self.prefill_token_s * work.num_prefill_tokens
            + self.prefill_pair_s * work.num_prefill_pairs
            + self.decode_s * work.num_decodes
            + self.decode_pair_s * work.num_decode_pairs
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """Some work, and how long it took."""

    work: Work
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A model and how far it is from the times it was made from, as a share of each: on average and at worst."""

    model: CostModel
    num_samples: int
    mean_residual: float
    worst_residual: float


def fit(samples: Sequence[Sample]) -> Fit | None:
    """Return the model whose relative errors are least in the square, no term of it negative.

    None when the samples say nothing, as when there are none.
    """
    best: tuple[float, CostModel] | None = None
    for size in range(1, _NUM_TERMS + 1):
        for terms in combinations(range(_NUM_TERMS), size):
            model = _solve(samples, terms)
            if model is not None:
                error = sum(value**2 for value in _residuals(model, samples))
                if best is None or error < best[0] - _TINY:
                    best = error, model
    if best is None:
        return None
    residuals = [abs(value) for value in _residuals(best[1], samples)]
    return Fit(best[1], len(samples), sum(residuals) / len(residuals), max(residuals))


def _residuals(model: CostModel, samples: Iterable[Sample]) -> list[float]:
    return [model.time(sample.work) / sample.seconds - 1 for sample in samples]


def _solve(samples: Sequence[Sample], terms: Sequence[int]) -> CostModel | None:
    """Return the least squares over some of the terms, or None when they are not determined or one is negative."""
    rows = [[astuple(sample.work)[term] / sample.seconds for term in terms] for sample in samples]
    scale = [max((row[column] for row in rows), default=0.0) for column in range(len(terms))]
    if not all(scale):
        return None
    rows = [[value / most for value, most in zip(row, scale, strict=True)] for row in rows]
    matrix = [
        [sum(row[i] * row[j] for row in rows) for j in range(len(terms))] + [sum(row[i] for row in rows)]
        for i in range(len(terms))
    ]
    solved = _eliminate(matrix)
    if solved is None or min(solved) < 0:
        return None
    costs = [0.0] * _NUM_TERMS
    for term, value, most in zip(terms, solved, scale, strict=True):
        costs[term] = value / most
    return CostModel(*costs)


def _eliminate(matrix: list[list[float]]) -> list[float] | None:
    """Solve linear equations, the right side in the last column, by Gauss and Jordan; None when they are singular."""
    size = len(matrix)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) < _TINY:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        top = [value / matrix[column][column] for value in matrix[column]]
        matrix[column] = top
        for row in range(size):
            if row != column:
                factor = matrix[row][column]
                matrix[row] = [value - factor * above for value, above in zip(matrix[row], top, strict=True)]
    return [row[-1] for row in matrix]
