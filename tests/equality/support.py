"""Engines over one loaded model, whose logits are kept for each first token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.assemble import Engine, LoadedModel, build_engine, load_model
from anaphora.config import EngineConfig, KVLayout
from anaphora.ids import PageId, RequestId, TokenId
from anaphora.llm import LLM
from anaphora.request import SamplingParams
from anaphora.sampling.host import sample
from anaphora.scheduler.plan import SampleSpec, StepPlan, StepResult


class RecordingSampler:
    """The usual sampler, which remembers the logits of each request's first token."""

    def __init__(self) -> None:
        self.first_logits: dict[RequestId, NDArray[np.float32]] = {}

    def __call__(self, logits: NDArray[np.float32], specs: Sequence[SampleSpec]) -> Sequence[TokenId]:
        """Sample, and remember."""
        for row, spec in zip(logits, specs, strict=True):
            if len(spec.token_ids) == spec.num_prompt_tokens:
                self.first_logits[spec.request_id] = row.copy()
        return sample(logits, specs)


class NarrowRunner:
    """A runner that shows fewer of its pages, so that a test can run out of them."""

    def __init__(self, runner: Any, num_pages: int) -> None:
        self._runner = runner
        layout: KVLayout = runner.layout
        self._layout = replace(layout, num_pages=num_pages)

    @property
    def layout(self) -> KVLayout:
        """The narrow layout."""
        return self._layout

    def run(self, plan: StepPlan) -> StepResult:
        """Run it."""
        result: StepResult = self._runner.run(plan)
        return result

    def read_page(self, page: PageId) -> bytes:
        """Read it."""
        data: bytes = self._runner.read_page(page)
        return data

    def write_page(self, page: PageId, data: bytes) -> None:
        """Write it."""
        self._runner.write_page(page, data)


@dataclass(frozen=True)
class Text:
    """What a prompt gave: its tokens, its first logits, how many of its tokens were cached."""

    token_ids: tuple[int, ...]
    logits: NDArray[np.float32]
    cached_tokens: int


class Bench:
    """One model, and as many engines over it as a test needs, one after another."""

    def __init__(self, dtype: str, num_pages: int = 700) -> None:
        self.sampler = RecordingSampler()
        self.cold_texts: dict[str, list[tuple[int, ...]]] = {}
        settings = {"dtype": dtype, "num_pages": num_pages, "max_model_len": 4096}
        self.model: LoadedModel = load_model(EngineConfig.from_mapping(settings), sampler=self.sampler)

    def engine(self, *, num_pages: int | None = None, **settings: Any) -> Engine:
        """Return an engine with an empty cache."""
        model = self.model
        if num_pages is not None:
            model = replace(
                model, runner=NarrowRunner(model.runner, num_pages), max_model_len=(num_pages - 1) * 32
            )
        return build_engine(EngineConfig.from_mapping(settings), model=model)

    def run(self, engine: Engine, prompts: Iterable[list[int]], num_outputs: int) -> list[Text]:
        """Run prompts together."""
        llm = LLM(engine=engine)
        self.sampler.first_logits.clear()
        params = SamplingParams(max_tokens=num_outputs, temperature=0.0, ignore_eos=True)
        completions = llm.generate(list(prompts), params)
        logits = [self.sampler.first_logits[key] for key in sorted(self.sampler.first_logits, key=_number)]
        engine.scheduler.check_invariants()
        assert engine.manager.pool.usage().used == 0
        return [
            Text(completion.token_ids, row, completion.cached_tokens)
            for completion, row in zip(completions, logits, strict=True)
        ]

    def run_each(self, engine: Engine, prompts: Iterable[list[int]], num_outputs: int) -> list[Text]:
        """Run prompts one after another."""
        return [self.run(engine, [prompt], num_outputs)[0] for prompt in prompts]


def _number(request_id: RequestId) -> int:
    return int(request_id.removeprefix("llm-"))


def assert_same(ours: Sequence[Text], theirs: Sequence[Text], what: str) -> None:
    """Assert that tokens and first logits are bit for bit the same."""
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert one.token_ids == other.token_ids, f"{what}: prompt {number} gives other tokens"
        assert np.array_equal(one.logits, other.logits), f"{what}: prompt {number} gives other logits"
