"""Each helper in the chat it is for, through the whole server: what is reused without it and with it."""

from typing import Any

import pytest

from anaphora.assemble import build_app
from anaphora.config import ExplainConfig, HelperConfig, ServerConfig
from anaphora.errors import ConfigError
from tests.models import templates
from tests.talk import Answer, Talk, make_engine, talk, user

SYSTEM = "You are a careful assistant who answers in one short sentence and never guesses."
STAMPED = [
    [
        {"role": "system", "content": f"x-anthropic-billing-header: cch={stamp};\n{SYSTEM}"},
        user("What is the capital of France?"),
    ]
    for stamp in ("1f00a", "77c3b")
]
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"Does {name}.", "parameters": {"type": "object"}},
    }
    for name in ("write", "read", "ask")
]
STRIP = HelperConfig(strip_client_stamp=True)
SORT = HelperConfig(sort_tools=True)
SPLICE = HelperConfig(splice_generated_tokens=True)
STABLE = HelperConfig(stable_history=True)
BOTH = HelperConfig(stable_history=True, splice_generated_tokens=True)
QUESTION = user("Say something that has the letters a and b in it, many times over, please.")
GENERATED = "abababab cab dab fab gab jab lab nab tab"
THOUGHT = (
    "<think>\nThe user wants the capital of France, which is Paris.\n</think>\n\nIt is Paris, of course."
)
KEYED = ServerConfig(api_keys=("alpha", "beta"))


def turns(chat: Talk, key: str | None = None, second_key: str | None = None) -> tuple[Answer, Answer]:
    """Hold two turns, the second with another key if one is given."""
    first = chat.say([QUESTION], key)
    second = chat.say([QUESTION, first.message, user("Again!")], second_key or key)
    return first, second


def test_with_nothing_asked_for_prompts_are_what_the_template_makes_of_them() -> None:
    """Stamps, order of tools, thoughts that the template drops, and tokens: nothing is touched."""
    with talk(None, [THOUGHT, "ok"], templates.QWEN25) as chat:
        render = chat.engine.model.renderer.render  # type: ignore[union-attr]
        assert chat.tokens(STAMPED[0], tools=TOOLS) == render(STAMPED[0], tools=TOOLS)[0]
        first = chat.say(STAMPED[0], tools=TOOLS)
        again = [*STAMPED[0], first.message, user("Sure?")]
        assert chat.tokens(again, tools=TOOLS) == render(again, tools=TOOLS)[0]
        assert chat.say(again, tools=TOOLS).num_prompt == len(render(again, tools=TOOLS)[0])


@pytest.mark.parametrize("helpers, num_cached", [(None, 32), (STRIP, 128)])
def test_a_stripped_stamp_no_longer_ends_the_reuse(helpers: HelperConfig | None, num_cached: int) -> None:
    """The stamp starts at token 8 and its value at token 40; without it all of the 139 tokens are shared."""
    with talk(helpers, ["a", "b"], templates.CHATML) as chat:
        assert chat.say(STAMPED[0]).num_cached == 0
        second = chat.say(STAMPED[1])
    assert second.num_cached == num_cached
    if helpers is None:
        assert second.verdict["cause"] == "client_stamp"
        assert "left out" not in second.verdict["advice"]
    else:
        assert second.verdict["cause"] == "ok_partial"
        assert second.verdict["advice"].endswith(
            "--strip-client-stamp left out the line x-anthropic-billing-header at the beginning of messages[0]. "
            "Without that at most 8 of the 128 reused tokens would have been found."
        )


def test_a_stamp_in_a_part_of_its_own_is_stripped_and_the_other_parts_keep_their_names() -> None:
    """As clients of other APIs send it; `cache_control` on the part behind it still keeps that part."""
    with talk(STRIP, ["a", "b", "c"], templates.CHATML) as chat:
        for stamp in ("1f00a", "77c3b"):
            parts = [
                {"type": "text", "text": f"x-anthropic-billing-header: cch={stamp};"},
                {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}},
            ]
            answer = chat.say([{"role": "system", "content": parts}, user("What is the capital of France?")])
        assert answer.num_cached == 128
        assert chat.engine.manager.pool.num_pinned_pages == 3  # five blocks
        plain = [{"role": "system", "content": SYSTEM}, user("What is the capital of France?")]
        assert chat.say(plain).num_cached == 128


def test_what_was_changed_is_said_even_where_no_text_is_remembered() -> None:
    """With `--explain-memory 0` there are counts alone."""
    with talk(STRIP, ["a", "b"], templates.CHATML, explain=ExplainConfig(explain_memory=0)) as chat:
        first = chat.say(STAMPED[0]).verdict["advice"]
        advice = chat.say(STAMPED[1]).verdict["advice"]
    assert first.endswith("at the beginning of messages[0]."), "nothing was reused, so nothing was saved"
    assert "--strip-client-stamp left out" in advice
    assert advice.endswith("at most 8 of the 128 reused tokens would have been found.")


@pytest.mark.parametrize("helpers, is_helped", [(None, False), (SORT, True)])
def test_sorted_tools_are_found_again_in_any_order(helpers: HelperConfig | None, is_helped: bool) -> None:
    """Three tools, backwards and forwards."""
    with talk(helpers, ["a", "b"], templates.QWEN25) as chat:
        assert chat.say([user("Hi")], tools=TOOLS).num_cached == 0
        second = chat.say([user("Hi")], tools=TOOLS[::-1])
    if not is_helped:
        assert (second.num_cached, second.verdict["cause"]) == (96, "tool_order")
        return
    assert second.num_cached == second.num_prompt // 16 * 16
    assert second.verdict["cause"] == "ok_partial"
    # Its own order was that of the names.
    assert "--sort-tools" not in second.verdict["advice"]


def test_sorting_says_how_much_it_saved() -> None:
    """The request whose tools were out of order would have shared no more than what is before the first tool."""
    with talk(SORT, ["a", "b"], templates.QWEN25) as chat:
        chat.say([user("Hi")], tools=TOOLS[::-1])
        second = chat.say([user("Hi")], tools=TOOLS)
    assert second.verdict["advice"].endswith(
        "--sort-tools put the 3 tools in the order of their names. Without that at most 98 of the "
        f"{second.num_cached} reused tokens would have been found."
    )
    assert second.num_cached == second.num_prompt // 16 * 16


def test_spliced_tokens_make_the_blocks_that_decoding_wrote_reusable() -> None:
    """The reply was written letter by letter, and comes back as pairs: 0 of its tokens are found, or all of them."""
    seen = {}
    for helpers in (None, SPLICE):
        with talk(helpers, [GENERATED, "ok"], templates.CHATML) as chat:
            first, second = turns(chat)
            seen[helpers] = (first, second)
    first, plain = seen[None]
    _, spliced = seen[SPLICE]
    assert plain.num_prompt < spliced.num_prompt, "pairs are fewer tokens"
    assert plain.num_cached == first.num_prompt // 16 * 16
    assert plain.verdict["cause"] == "retokenised"
    assert spliced.num_cached == (first.num_prompt + len(GENERATED)) // 16 * 16
    assert spliced.verdict["cause"] == "ok_partial"
    assert spliced.verdict["advice"].endswith(
        f"--splice-generated-tokens kept the {len(GENERATED)} tokens that messages[1] was generated with, and those "
        f"of the prompt before it. Without that at most {first.num_prompt} of the {spliced.num_cached} reused tokens "
        "would have been found."
    )


def test_spliced_tokens_spell_the_same_text() -> None:
    """The model reads what the template made, cut in another way; probes and token counts see the same prompt."""
    with talk(SPLICE, [GENERATED, "ok"], templates.CHATML) as chat:
        first = chat.say([QUESTION])
        messages = [QUESTION, first.message, user("Again!")]
        token_ids = chat.tokens(messages)
        tokenizer = chat.engine.model.tokenizer
        plain = chat.engine.model.renderer.render(messages)[0]  # type: ignore[union-attr]
        assert token_ids != plain
        assert tokenizer.decode(token_ids, skip_special_tokens=False) == tokenizer.decode(
            plain, skip_special_tokens=False
        )
        probed = chat.post("/v1/cache/probe", messages=messages)
        second = chat.say(messages)
    assert (probed["prompt_tokens"], probed["cached_tokens"]) == (len(token_ids), second.num_cached)


def test_a_third_turn_goes_on_from_the_tokens_of_the_second() -> None:
    """Which was spliced itself; the reply to it was cut by its length."""
    with talk(SPLICE, [GENERATED, "abab" * 20, "ok"], templates.CHATML) as chat:
        first = chat.say([QUESTION])
        messages = [QUESTION, first.message, user("Again!")]
        second = chat.say(messages, max_tokens=40)
        assert second.text == "abab" * 10
        third = chat.say([*messages, second.message, user("And again!")])
    # The K/V of the last token of a reply were never computed.
    assert third.num_cached == (second.num_prompt + 39) // 16 * 16
    assert "the 40 tokens that messages[3] was generated with" in third.verdict["advice"]


def test_under_exact_reuse_splicing_claims_nothing() -> None:
    """What decoding wrote may not be reused, so the hit is that of the first prompt, with splicing and without."""
    with talk(SPLICE, [GENERATED, "ok"], templates.CHATML, exact_reuse=True) as chat:
        first, second = turns(chat)
    assert second.num_cached == first.num_prompt // 16 * 16
    assert second.verdict["advice"].endswith(
        f"Without that at most {second.num_cached} of the {second.num_cached} reused tokens would have been found."
    )


@pytest.mark.parametrize("sent", [THOUGHT, "It is Paris, of course."], ids=["whole", "answer"])
@pytest.mark.parametrize("helpers", [STABLE, BOTH], ids=["stable", "both"])
def test_stable_history_keeps_what_the_template_would_drop(helpers: HelperConfig, sent: str) -> None:
    """The template drops the thought once the user has answered; whether the client does too makes no difference."""
    question = user("What is the capital of France? Think before you answer.")
    messages = [question, {"role": "assistant", "content": sent}, user("Sure?")]
    with talk(None, [THOUGHT, "ok"], templates.QWEN3) as chat:
        first = chat.say([question])
        plain = chat.say(messages)
    with talk(helpers, [THOUGHT, "ok"], templates.QWEN3) as chat:
        chat.say([question])
        text = chat.engine.model.tokenizer.decode(chat.tokens(messages), skip_special_tokens=False)
        helped = chat.say(messages)
    assert plain.num_cached == first.num_prompt // 16 * 16
    assert text.count("<think>") == 1
    assert text.endswith("course.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n")
    assert helped.num_cached == (first.num_prompt + len(THOUGHT)) // 16 * 16
    assert helped.verdict["cause"] == "ok_partial"
    assert helped.verdict["advice"].endswith(
        "--stable-history kept what was rendered before, up to the end of messages[1]; the chat template would write "
        f"it anew from character {text.index('<think>')} of the prompt on. Without that at most "
        f"{first.num_prompt} of the {helped.num_cached} reused tokens would have been found."
    )


def test_stable_and_spliced_history_say_so_each() -> None:
    """The thought is kept, and so are the letters it was written in."""
    reply = "<think>\nabab\n</think>\n\nabab, I would say, or cab."
    with talk(BOTH, [reply, "ok"], templates.QWEN3) as chat:
        first, second = turns(chat)
    assert second.num_cached == (first.num_prompt + len(reply)) // 16 * 16
    advice = second.verdict["advice"]
    assert advice.index("--stable-history") < advice.index("--splice-generated-tokens")


def test_another_tenant_or_salt_goes_on_from_nothing_of_ours() -> None:
    """The same words, word for word, with another key or another `cache_salt`: the template's own prompt."""
    with talk(BOTH, [THOUGHT, "ok", "ok", "ok"], templates.QWEN3, KEYED) as chat:
        first = chat.say([QUESTION], "alpha", cache_salt="one")
        messages = [QUESTION, first.message, user("Again!")]
        plain = chat.engine.model.renderer.render(messages)[0]  # type: ignore[union-attr]
        probe: dict[str, Any] = {"path": "/v1/cache/probe", "messages": messages}
        assert chat.post(**probe, key="beta", cache_salt="one")["prompt_tokens"] == len(plain)
        assert chat.post(**probe, key="alpha", cache_salt="two")["prompt_tokens"] == len(plain)
        assert chat.post(**probe, key="alpha", cache_salt="one")["prompt_tokens"] > len(plain)
        assert chat.say(messages, "beta", cache_salt="one").num_prompt == len(plain)
        assert "--stable" not in chat.say(messages, "beta", cache_salt="one").verdict["advice"]


def test_no_prompt_grows_beyond_the_context() -> None:
    """With the thought there would be no room for the outputs that were asked for, so it is left out again."""
    question = user("Think!")
    with talk(STABLE, [THOUGHT, "ok", "ok"], templates.QWEN3, max_model_len=256) as chat:
        first = chat.say([question])
        messages = [question, first.message, user("Sure?")]
        long, short = (chat.say(messages, max_tokens=room) for room in (10, 150))
    assert long.num_prompt > short.num_prompt
    assert "--stable-history kept" in long.verdict["advice"]
    assert "--stable-history kept" not in short.verdict["advice"]


@pytest.mark.parametrize("helpers", [SPLICE, STABLE])
@pytest.mark.parametrize(
    "explain, limit",
    [(ExplainConfig(explain_requests=0), "--explain-requests"), (ExplainConfig(explain_memory=0), None)],
)
def test_what_goes_on_from_earlier_requests_is_refused_where_none_is_remembered(
    helpers: HelperConfig, explain: ExplainConfig, limit: str | None
) -> None:
    """At the start, with the flag and its remedy."""
    engine = make_engine([], templates.CHATML, explain=explain)
    with pytest.raises(
        ConfigError, match=f"^{helpers.flags[0]} continues .*{limit or '--explain-memory'} .*drop"
    ):
        build_app(engine, ServerConfig(), helpers=helpers)
    build_app(engine, ServerConfig(), helpers=HelperConfig(strip_client_stamp=True, sort_tools=True))


def test_forgotten_requests_are_not_gone_on_from() -> None:
    """One request is remembered: after another one, the first is forgotten."""
    with talk(
        SPLICE, [GENERATED, "ok", "ok"], templates.CHATML, explain=ExplainConfig(explain_requests=1)
    ) as chat:
        first = chat.say([QUESTION])
        messages = [QUESTION, first.message, user("Again!")]
        plain = chat.engine.model.renderer.render(messages)[0]  # type: ignore[union-attr]
        assert len(chat.tokens(messages)) > len(plain)
        chat.say([user("Something else")])
        assert chat.tokens(messages) == plain
