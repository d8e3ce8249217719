"""The engine step: what comes out of each, and how texts end."""

import pytest

from anaphora.errors import ContextLengthError
from anaphora.ids import RequestId
from anaphora.request import FinishReason, RequestOutput, Usage
from tests.engine.support import SmallEngine, prompt, small_engine


def run(engine: SmallEngine) -> list[RequestOutput]:
    """Step to the end and return every output."""
    outputs = []
    while engine.core.has_work:
        outputs += engine.core.step().outputs
    engine.scheduler.check_invariants()
    assert engine.manager.pool.usage().used == 0
    return outputs


def text(outputs: list[RequestOutput], name: str = "A") -> str:
    """Return the whole text of a request."""
    return "".join(output.text for output in outputs if output.request_id == name)


def test_a_text_comes_token_by_token_and_ends_at_the_end_token() -> None:
    """The end-of-text token is counted but not shown."""
    engine = small_engine({"A": "hi!"})
    engine.core.add(prompt("A"), 0.0)
    outputs = run(engine)
    assert [output.text for output in outputs] == ["h", "i", "!", ""]
    assert [output.finish_reason for output in outputs] == [None, None, None, FinishReason.STOP]
    assert outputs[-1].usage == Usage(
        prompt_tokens=11, cached_tokens=0, cache_write_tokens=8, completion_tokens=4
    )


def test_the_second_time_the_prompt_is_cached() -> None:
    """11 tokens are two full blocks of four, and at least two tokens are left to compute."""
    engine = small_engine({"A": "x", "B": "x"})
    engine.core.add(prompt("A"), 0.0)
    run(engine)
    engine.core.add(prompt("B"), 0.0)
    assert run(engine)[-1].usage == Usage(11, 8, 0, 2)


def test_a_warm_up_gives_one_output_without_tokens() -> None:
    """Twelve tokens are three blocks, and all of them are cached afterwards."""
    engine = small_engine()
    engine.core.add(prompt("A", "hello there!", max_tokens=0), 0.0)
    assert run(engine) == [
        RequestOutput(
            request_id=RequestId("A"),
            token_ids=(),
            text="",
            usage=Usage(12, 0, 12, 0),
            finish_reason=FinishReason.LENGTH,
        )
    ]


def test_half_a_character_is_held_back() -> None:
    """The two bytes of é come as one piece of text."""
    engine = small_engine({"A": "é!"})
    engine.core.add(prompt("A"), 0.0)
    assert [output.text for output in run(engine)] == ["", "é", "!", ""]


def test_a_stop_string_ends_a_request_and_frees_its_pages() -> None:
    """The stop string spans several tokens and is not shown."""
    engine = small_engine({"A": "one. END two"})
    engine.core.add(prompt("A", stop=("END",)), 0.0)
    outputs = run(engine)
    assert text(outputs) == "one. "
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == (FinishReason.STOP, "END")
    assert outputs[-1].usage.completion_tokens == len("one. END")


def test_a_stop_string_completed_by_the_last_allowed_token_counts_as_a_stop() -> None:
    """max_tokens and the stop string are reached in one step."""
    engine = small_engine({"A": "abEND"})
    engine.core.add(prompt("A", stop=("END",), max_tokens=5), 0.0)
    outputs = run(engine)
    assert (text(outputs), outputs[-1].finish_reason, outputs[-1].stop_reason) == (
        "ab",
        FinishReason.STOP,
        "END",
    )


def test_what_looked_like_a_stop_string_is_shown_at_the_end() -> None:
    """ "EN" is held back until it is clear that no D follows."""
    engine = small_engine({"A": "abEN"})
    engine.core.add(prompt("A", stop=("END",)), 0.0)
    outputs = run(engine)
    assert text(outputs) == "abEN"


def test_a_stop_token_is_hidden_unless_asked_for() -> None:
    """The token of "!" stops."""
    for include, expected in ((False, "hi"), (True, "hi!")):
        engine = small_engine({"A": "hi!more"})
        engine.core.add(prompt("A", stop_token_ids=(ord("!"),), include_stop_str_in_output=include), 0.0)
        outputs = run(engine)
        assert (text(outputs), outputs[-1].stop_reason) == (expected, ord("!"))


def test_an_abort_between_steps_frees_the_pages_at_once() -> None:
    """And says whether there was anything to abort."""
    engine = small_engine()
    engine.core.add(prompt("A"), 0.0)
    engine.core.step()
    assert engine.core.abort(RequestId("A"))
    assert not engine.core.abort(RequestId("A"))
    assert (engine.manager.pool.usage().used, engine.core.has_work) == (0, False)


def test_a_prompt_that_can_never_fit_is_refused_and_leaves_nothing() -> None:
    """120 + 20 of 128 tokens."""
    engine = small_engine()
    with pytest.raises(
        ContextLengthError, match="120 tokens and max_tokens is 20, together 140, but the context is 128"
    ):
        engine.core.add(prompt("A", "x" * 120), 0.0)
    assert not engine.core.has_work


def test_requests_without_a_seed_get_different_ones_that_repeat_with_the_engines_seed() -> None:
    """Two engines with one seed draw the same seeds."""
    seeds = []
    for _ in range(2):
        engine = small_engine()
        for name in ("A", "B"):
            engine.core.add(prompt(name, f"{name} asks"), 0.0)
        plan = engine.scheduler.plan(0.0)
        seeds.append([chunk.samples[0].seed for chunk in plan.chunks])
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


def test_a_step_with_nothing_to_run_says_so() -> None:
    """No request, no outputs."""
    outcome = small_engine().core.step()
    assert (outcome.outputs, outcome.has_run) == ([], False)
