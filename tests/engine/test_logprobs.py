"""Log probabilities through the engine: of every output token, and of a prompt, whatever happens on the way."""

import pytest

from anaphora.config import KVLayout
from anaphora.engine.core import EngineCore
from anaphora.engine.protocols import GenerateInput
from anaphora.errors import EngineError
from anaphora.ids import RequestId
from anaphora.request import RequestOutput, SamplingParams, TokenLogprobs
from anaphora.scheduler.plan import StepPlan, StepResult
from tests.engine.support import SmallEngine, prompt, small_engine
from tests.fake_runner import FakeRunner
from tests.fakes import ByteTokenizer


def run(engine: SmallEngine) -> list[RequestOutput]:
    """Step to the end and return every output."""
    outputs = []
    while engine.core.has_work:
        outputs += engine.core.step().outputs
        engine.scheduler.check_invariants()
    assert engine.manager.pool.usage().used == 0
    return outputs


def of_prompt(outputs: list[RequestOutput], name: str, index: int = 0) -> tuple[TokenLogprobs, ...] | None:
    """What the first output of a sequence says of its prompt; the others say nothing."""
    first, *others = [output for output in outputs if (output.request_id, output.index) == (name, index)]
    assert [output.prompt_logprobs for output in others] == [None] * len(others)
    return first.prompt_logprobs


def alone(engine: SmallEngine, text: str, num_top: int) -> tuple[TokenLogprobs, ...]:
    """What the tokens of a prompt have with nothing cached and nobody beside it."""
    return engine.runner.prompt_logprobs_alone(ByteTokenizer().encode(text), num_top)


def test_every_output_token_has_one_and_the_tokens_are_those_without() -> None:
    """The runner is asked about the token that was chosen."""
    plain, asking = small_engine(), small_engine()
    plain.core.add(prompt("A", max_tokens=5), 0.0)
    asking.core.add(prompt("A", max_tokens=5, logprobs=2), 0.0)
    expected, outputs = run(plain), run(asking)
    assert [output.token_ids for output in outputs] == [output.token_ids for output in expected]
    assert [output.logprobs for output in expected] == [()] * 5
    for output in outputs:
        (found,) = output.logprobs
        assert (found.token_id, found.rank, len(found.top)) == (output.token_ids[0], 1, 2)


def test_tokens_whose_text_is_held_back_or_never_shown_have_theirs_at_once() -> None:
    """Half of é, a beginning of the stop string, and the stop string itself."""
    engine = small_engine({"A": "é END"})
    engine.core.add(prompt("A", stop=("END",), logprobs=0), 0.0)
    outputs = run(engine)
    assert [output.text for output in outputs] == ["", "é", " ", "", "", ""]
    assert [output.logprobs[0].token_id for output in outputs] == list("é END".encode())


def test_they_change_nothing_in_the_cache() -> None:
    """The second prompt is cached as ever."""
    engine = small_engine()
    engine.core.add(prompt("A", max_tokens=2, logprobs=5), 0.0)
    run(engine)
    engine.core.add(prompt("B", max_tokens=2, logprobs=5), 0.0)
    assert run(engine)[-1].usage.cached_tokens == 8


def test_every_one_of_n_sequences_has_its_own() -> None:
    """Each is asked about its own tokens."""
    engine = small_engine({"A": [1, 2], "A#1": [3, 4]})
    engine.core.add(prompt("A", n=2, max_tokens=2, logprobs=0), 0.0)
    outputs = run(engine)
    assert all(output.logprobs[0].token_id == output.token_ids[0] for output in outputs)
    assert len(outputs) == 4


@pytest.mark.parametrize("length", [1, 2, 11, 60, 63, 64, 65, 100])
def test_a_prompt_has_one_for_each_token_but_the_first_however_it_is_cut(length: int) -> None:
    """The budget is 64 tokens a step."""
    engine = small_engine()
    text = ("once upon a time " * 10)[:length]
    engine.core.add(prompt("A", text, max_tokens=3, prompt_logprobs=2), 0.0)
    assert of_prompt(run(engine), "A") == alone(engine, text, 2)


def test_a_cached_prompt_is_computed_again_for_them_and_no_hit_is_reported() -> None:
    """Cached positions have no logits; the next prompt that asks for none is a hit again."""
    engine = small_engine()
    for name, hit in (("A", None), ("B", 1), ("C", None)):
        engine.core.add(prompt(name, max_tokens=2, prompt_logprobs=hit), 0.0)
        outputs = run(engine)
        assert outputs[-1].usage.cached_tokens == (8 if name == "C" else 0)
        assert of_prompt(outputs, name) == (alone(engine, "hello there", 1) if hit else None)


def test_neighbours_and_preemption_change_nothing() -> None:
    """Ten pages of four tokens for three requests that need eight each."""
    engine = small_engine(layout=KVLayout(4, 4, 11, 2), max_model_len=40)
    texts = {"A": "abcdefghijkl", "B": "abcdefghXYZ", "C": "something else"}
    for name, text in texts.items():
        engine.core.add(prompt(name, text, max_tokens=20, prompt_logprobs=3, logprobs=1), 0.0)
    outputs = run(engine)
    assert engine.runner.num_computed_tokens > sum(len(text) + 19 for text in texts.values())
    for name, text in texts.items():
        assert of_prompt(outputs, name) == alone(engine, text, 3)


@pytest.mark.parametrize("max_num_seqs", [1, 2, 4])
def test_the_prompt_of_n_sequences_is_computed_once_and_told_to_each(max_num_seqs: int) -> None:
    """Also to those that found no seat beside the first, and read the cache when their turn comes."""
    engine = small_engine(max_num_seqs=max_num_seqs)
    text = "hello there, all of you"
    engine.core.add(prompt("A", text, n=3, max_tokens=2, prompt_logprobs=1), 0.0)
    outputs = run(engine)
    for index in range(3):
        assert of_prompt(outputs, "A", index) == alone(engine, text, 1)
    told = [chunk for plan in engine.runner.plans for chunk in plan.chunks if chunk.prompt_logprobs]
    assert [str(chunk.request_id) for chunk in told] == ["A"]


def test_a_request_that_is_aborted_while_they_are_collected_leaves_nothing() -> None:
    """100 tokens take two steps."""
    engine = small_engine()
    engine.core.add(prompt("A", "x" * 100, max_tokens=2, prompt_logprobs=1), 0.0)
    engine.core.step()
    assert engine.core.abort(RequestId("A"))
    assert run(engine) == []


def test_a_runner_that_tells_of_who_did_not_ask_is_at_fault() -> None:
    """It may have mixed up two requests."""

    class Confused(FakeRunner):
        def run(self, plan: StepPlan) -> StepResult:
            result = super().run(plan)
            return StepResult(plan.step, result.token_ids, {}, {RequestId("A"): []})

    engine = small_engine()
    core = EngineCore(engine.scheduler, Confused(engine.runner.layout), ByteTokenizer(), engine.clock, seed=0)
    core.add(
        GenerateInput(
            request_id=RequestId("A"), prompt_token_ids=[1, 2], params=SamplingParams(temperature=0.0)
        ),
        0.0,
    )
    with pytest.raises(EngineError, match="which did not ask for any"):
        core.step()
