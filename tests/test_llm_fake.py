"""The engine for scripts, over a fake runner: what it takes, what it gives, what it refuses."""

from dataclasses import replace
from typing import Any

import pytest

from anaphora.config import EngineConfig
from anaphora.errors import AnaphoraError, ConfigError, ContextLengthError, InvalidRequestError
from anaphora.llm import LLM
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.request import SamplingParams
from tests.e2e.test_whole import make_engine
from tests.fakes import ByteTokenizer

GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def make_llm(**settings: Any) -> LLM:
    """Return an LLM over the fake runner, with a chat template."""
    engine = make_engine(**settings)
    renderer = ChatRenderer(ChatTemplate(TEMPLATE), ByteTokenizer())
    return LLM(engine=replace(engine, model=replace(engine.model, renderer=renderer)))


def test_the_second_of_two_calls_finds_the_first_ones_prompt() -> None:
    """100 tokens: all but the last four are reused."""
    llm = make_llm()
    first, second = (llm.generate("x" * 100, GREEDY)[0] for _ in range(2))
    assert (first.cached_tokens, second.cached_tokens, second.prompt_tokens) == (0, 96, 100)
    assert first.text == second.text
    assert llm.reset_prefix_cache()


def test_prompts_may_be_texts_ids_or_lists_of_either() -> None:
    """In the order given."""
    llm = make_llm()
    assert [len(llm.generate(p, GREEDY)) for p in ("ab", ["ab", "cd"], [97, 98], [[97], [98, 99]])] == [
        1,
        2,
        1,
        2,
    ]


def test_each_prompt_may_have_its_own_params() -> None:
    """As many of each."""
    llm = make_llm()
    outputs = llm.generate(["a", "b"], [GREEDY, GREEDY.with_changes(max_tokens=2, n=2)])
    assert [len(output.token_ids) for output in outputs] == [4, 2, 2]


def test_a_chat_is_rendered() -> None:
    """One conversation or several."""
    llm = make_llm()
    hello = [{"role": "user", "content": "hello"}]
    assert ByteTokenizer().decode(llm.chat(hello, GREEDY)[0].prompt_token_ids) == "<user>hello<assistant>"
    assert len(llm.chat([hello, hello], GREEDY)) == 2


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("", "empty"),
        ([], None),
        ([[]], "empty"),
        ([b"a"], "must be a text or a list of token ids"),
        (b"a", "prompts is b'a'"),
        ({"a": 1}, "must be a text, token ids, or a list"),
        ([1, 2**40], "prompts"),
        ([[1, True]], "prompts"),
        ([[1.5]], "prompts"),
        ("x" * 600, "600"),
    ],
)
def test_prompts_that_are_none_are_refused(prompts: Any, words: str | None) -> None:
    """And nothing is left behind."""
    llm = make_llm()
    if words is None:
        assert llm.generate(prompts, GREEDY) == []
        return
    with pytest.raises(InvalidRequestError, match=words):
        llm.generate(prompts, GREEDY)
    assert not llm.engine.core.has_work


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_tokens": 3}, "params is"),
        ([GREEDY], "1 params for 2 prompts"),
        (GREEDY.with_changes(logit_bias={10**6: 1.0}), "logit_bias"),
        (GREEDY.with_changes(stop_token_ids=(10**6,)), "stop_token_ids"),
    ],
)
def test_params_that_cannot_be_honoured_are_refused(params: Any, words: str) -> None:
    """Before anything runs."""
    llm = make_llm()
    with pytest.raises(InvalidRequestError, match=words):
        llm.generate(["a", "b"], params)
    assert not llm.engine.core.has_work


@pytest.mark.parametrize(
    "messages", ["hi", [], [{"role": "zz", "content": "x"}], [{"role": "user", "text": "x"}], [[5]]]
)
def test_messages_that_are_none_are_refused(messages: Any) -> None:
    """By the server's own checks."""
    with pytest.raises(InvalidRequestError):
        make_llm().chat(messages, GREEDY)


@pytest.mark.parametrize("salt", ["", "x" * 257])
def test_a_salt_is_checked_as_over_http(salt: str) -> None:
    """1 to 256 bytes."""
    with pytest.raises(InvalidRequestError, match="cache_salt"):
        make_llm().generate("a", GREEDY, cache_salt=salt)


def test_one_prompt_that_does_not_fit_lets_none_run() -> None:
    """The others of the call are taken back."""
    llm = make_llm()
    with pytest.raises(ContextLengthError):
        llm.generate(["fine", "x" * 600], GREEDY)
    assert not llm.engine.core.has_work
    assert llm.engine.manager.pool.usage().used == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_pages": "abc"}, "num_pages is 'abc', but must be a whole number"),
        ({"model": 5}, "model is 5, but must be a text"),
        ({"max_seqs": 5}, "unknown setting 'max_seqs'"),
        ({"seed": 2**70}, "--seed is"),
        ({"served_model_name": ("",)}, "--served-model-name is empty"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_mapping(settings)


def test_an_engine_that_is_handed_in_takes_no_settings() -> None:
    """They would be ignored."""
    with pytest.raises(AnaphoraError, match="has its model and its settings"):
        LLM(engine=make_engine(), max_num_seqs=3)
