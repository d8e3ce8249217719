"""When a prompt goes on from an earlier one, and what it is then."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from anaphora.config import HelperConfig
from anaphora.errors import ContextLengthError
from anaphora.explain.history import EarlierTurn, Scope
from anaphora.explain.records import PartSpan
from anaphora.ids import TokenId
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.continuation import MAX_EARLIER, Continuation, turn_digests
from anaphora.server.explainer import Explainer
from anaphora.server.prompts import Prompt
from tests.models import templates
from tests.talk import PairTokenizer, user

MINE = Scope(b"mine", None)
SPLICE = HelperConfig(splice_generated_tokens=True)
STABLE = HelperConfig(stable_history=True)
BOTH = HelperConfig(stable_history=True, splice_generated_tokens=True)
FIRST, SECOND = user("What is it?"), user("Sure?")
THOUGHT = "<think>\nHm.\n</think>\n\nIt is a cab."
TOKENIZER = PairTokenizer()
EOS = TOKENIZER.special_id("<|eos|>")


def letters(text: str) -> list[TokenId]:
    """Return a reply as the model wrote it: a token for each byte."""
    return list(text.encode())


def assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


class Memory:
    """What an explainer remembers of one template's requests."""

    def __init__(self, template: str = templates.CHATML) -> None:
        self.renderer = ChatRenderer(ChatTemplate(template), TOKENIZER)
        self.turns: list[tuple[Scope, bytes, EarlierTurn]] = []
        self.asked: list[tuple[Sequence[bytes], int]] = []

    async def earlier_turns(
        self, scope: Scope, turns: Sequence[bytes], limit: int
    ) -> list[tuple[bytes, EarlierTurn]]:
        self.asked.append((turns, limit))
        found = [(of, turn) for of, turn in ((t[1], t[2]) for t in self.turns[::-1] if t[0] == scope)]
        return [(turn, earlier) for turn in turns for of, earlier in found if of == turn][:limit]

    def rendered(self, messages: Sequence[dict[str, Any]], tools: Any = None, **options: Any) -> Prompt:
        token_ids, spans = self.renderer.render(messages, tools=tools, **options)
        return Prompt("messages", token_ids, spans=spans)

    def add(
        self,
        messages: Sequence[dict[str, Any]],
        reply: Sequence[TokenId],
        scope: Scope = MINE,
        prompt: Prompt | None = None,
        tools: Any = None,
    ) -> Prompt:
        """Remember a request and its reply; return its prompt."""
        prompt = prompt or self.rendered(messages, tools)
        turn = EarlierTurn((*prompt.token_ids, *reply), len(prompt.token_ids), prompt.part_spans)
        self.turns.append((scope, turn_digests(messages, tools)[-1], turn))
        return prompt

    def next(
        self,
        config: HelperConfig,
        messages: Sequence[dict[str, Any]],
        scope: Scope = MINE,
        max_model_len: int = 10_000,
        tools: Any = None,
        **options: bool,
    ) -> Prompt:
        """Return the prompt of a later request."""
        continuation = Continuation(config, TOKENIZER, cast("Explainer", self), max_model_len)
        return asyncio.run(
            continuation.continued(
                self.rendered(messages, tools, **options),
                messages,
                tools,
                scope,
                add_generation_prompt=options.get("add_generation_prompt", True),
                num_output_tokens=1,
            )
        )


def text_of(prompt: Prompt) -> str:
    return TOKENIZER.decode(prompt.token_ids, skip_special_tokens=False)


def texts_of(spans: Sequence[PartSpan], text: str) -> dict[str, str]:
    return {span.path: text[span.char_start : span.char_end] for span in spans}


def tokens_of(prompt: Prompt) -> dict[str, str]:
    """Return the text of each part's tokens."""
    return {
        span.path: TOKENIZER.decode(
            prompt.token_ids[span.token_start : span.token_end], skip_special_tokens=False
        )
        for span in prompt.part_spans
    }


@pytest.mark.parametrize(
    "end", [[], [EOS], [TOKENIZER.special_id("<|im_end|>")], [10]], ids=["cut", "eos", "im", "n"]
)
def test_a_reply_keeps_its_tokens_however_it_ended(end: list[TokenId]) -> None:
    """By its length, by the model's end token, or by a token that the caller named: that one is no part of it."""
    memory = Memory()
    first = memory.add([FIRST], [*letters("abab"), *end])
    messages = [FIRST, assistant("abab"), SECOND]
    prompt, plain = memory.next(SPLICE, messages), memory.rendered(messages)
    assert prompt.token_ids[: len(first.token_ids) + 4] == [*first.token_ids, *b"abab"]
    assert len(prompt.token_ids) == len(plain.token_ids) + 2
    assert text_of(prompt) == text_of(plain)
    assert tokens_of(prompt) == tokens_of(plain), "each part has the tokens that spell it"


@pytest.mark.parametrize(
    "message",
    [
        assistant("abab."),
        assistant("aba"),
        assistant(""),
        assistant("abab", name="someone"),
        assistant("abab", reasoning_content="I thought of it."),
        assistant([{"type": "text", "text": "ab"}, {"type": "text", "text": "ab"}]),
        assistant(
            "abab", tool_calls=[{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
        ),
        {"role": "user", "content": "abab"},
    ],
    ids=["longer", "shorter", "empty", "name", "reasoning", "parts", "calls", "user"],
)
@pytest.mark.parametrize("config", [SPLICE, BOTH])
def test_what_is_not_the_reply_as_it_was_is_not_gone_on_from(
    config: HelperConfig, message: dict[str, Any]
) -> None:
    memory = Memory(templates.QWEN25)
    memory.add([FIRST], [*letters("abab"), EOS])
    messages = [FIRST, message, SECOND]
    assert memory.next(config, messages).token_ids == memory.rendered(messages).token_ids


def test_a_text_in_one_part_is_the_reply_too_and_hints_make_no_difference() -> None:
    memory = Memory()
    memory.add([FIRST], letters("abab"))
    parts = [{"type": "text", "text": "abab", "cache_control": {"type": "ephemeral"}}]
    messages = [{**FIRST, "cache_control": {"type": "ephemeral"}}, assistant(parts), SECOND]
    assert memory.next(SPLICE, messages).helped


@pytest.mark.parametrize(
    "messages",
    [
        [user("What is that?"), assistant("abab"), SECOND],
        [{"role": "system", "content": "x"}, FIRST, assistant("abab"), SECOND],
        [assistant("abab"), SECOND],
    ],
)
def test_another_conversation_is_not_gone_on_from(messages: list[dict[str, Any]]) -> None:
    memory = Memory()
    memory.add([FIRST], letters("abab"))
    assert memory.next(BOTH, messages).helped == ()


def test_other_tools_make_another_conversation() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    memory = Memory(templates.QWEN25)
    memory.add([FIRST], letters("abab"), tools=tools)
    messages = [FIRST, assistant("abab"), SECOND]
    assert memory.next(SPLICE, messages, tools=tools).helped
    assert memory.next(SPLICE, messages, tools=tools[:1]).helped == ()
    assert memory.next(SPLICE, messages).helped == ()


@pytest.mark.parametrize("scope", [Scope(b"theirs", None), Scope(b"mine", "salt")])
def test_another_scope_is_asked_for_as_such(scope: Scope) -> None:
    memory = Memory()
    memory.add([FIRST], letters("abab"), scope)
    messages = [FIRST, assistant("abab"), SECOND]
    assert memory.next(SPLICE, messages).helped == ()
    assert memory.next(SPLICE, messages, scope).helped


def test_the_latest_turn_that_fits_is_gone_on_from() -> None:
    """The last reply was edited, so it is the one before; of two requests for that one, the later."""
    memory = Memory()
    memory.add([FIRST], letters("abab"))
    memory.add([FIRST], [97, 98, TOKENIZER.PAIR])
    longer = [FIRST, assistant("abab"), SECOND]
    memory.add(longer, letters("cab"))
    prompt = memory.next(SPLICE, [*longer, assistant("cabs"), user("Oh.")])
    assert "messages[1] was generated with" in prompt.helped[0][0]
    start = len(memory.rendered([FIRST]).token_ids)
    assert prompt.token_ids[start : start + 3] == [97, 98, TOKENIZER.PAIR]
    turns, limit = memory.asked[-1]
    assert (len(turns), limit) == (2, MAX_EARLIER)


def test_a_prompt_without_replies_asks_for_nothing() -> None:
    memory = Memory()
    assert memory.next(BOTH, [FIRST]).turn == turn_digests([FIRST], None)[-1]
    assert memory.asked == []


def test_a_prompt_that_ends_without_an_invitation_is_no_turn_to_go_on_from() -> None:
    """The reply to it would not stand where the template puts one; itself, it may go on from another."""
    memory = Memory()
    memory.add([FIRST], letters("abab"))
    prompt = memory.next(SPLICE, [FIRST, assistant("abab"), SECOND], add_generation_prompt=False)
    assert prompt.turn is None
    assert prompt.helped


def test_half_a_character_is_not_spliced() -> None:
    """A reply that was cut in the middle of one comes back with U+FFFD, which other tokens spell."""
    memory = Memory()
    memory.add([FIRST], letters("abé")[:-1])
    messages = [FIRST, assistant("ab\ufffd"), SECOND]
    assert memory.next(BOTH, messages).token_ids == memory.rendered(messages).token_ids


def test_a_reply_that_the_template_trims_is_not_spliced_but_can_be_kept() -> None:
    memory = Memory(templates.GEMMA)
    first = memory.add([FIRST], letters("abab \n"))
    messages = [FIRST, assistant("abab \n"), SECOND]
    assert memory.next(SPLICE, messages).token_ids == memory.rendered(messages).token_ids
    kept = memory.next(STABLE, messages)
    assert text_of(kept).startswith(f"{text_of(first)}abab \n<end_of_turn>\n<start_of_turn>user\nSure?")


@pytest.mark.parametrize("sent", [THOUGHT, "It is a cab.", "\n\nIt is a cab."])
def test_a_thought_that_is_dropped_from_history_can_be_kept(sent: str) -> None:
    """By the template or by the client; the parts of the prompt are where they belong."""
    memory = Memory(templates.QWEN3)
    first = memory.add([FIRST], [*letters(THOUGHT), EOS])
    prompt = memory.next(STABLE, [FIRST, assistant(sent), SECOND])
    text = text_of(prompt)
    assert text == (
        f"{text_of(first)}{THOUGHT}<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.token_ids == TOKENIZER.encode(text)
    assert texts_of(prompt.part_spans, text) == {
        "messages[0]": "<|im_start|>user\nWhat is it?<|im_end|>\n",
        "messages[0].content": "What is it?",
        "messages[1]": f"<|im_start|>assistant\n{THOUGHT}<|im_end|>\n",
        "messages[1].content": THOUGHT,
        "messages[2]": "<|im_start|>user\nSure?<|im_end|>\n",
        "messages[2].content": "Sure?",
        "generation-prompt": "<|im_start|>assistant\n",
    }
    assert tokens_of(prompt) == texts_of(prompt.part_spans, text)
    ((sentence, num_common),) = prompt.helped
    assert f"from character {len(text_of(first))} of the prompt on" in sentence
    assert num_common == len(first.token_ids)


def test_a_thought_may_come_back_in_a_field_of_its_own_if_it_is_the_one_that_was_generated() -> None:
    memory = Memory(templates.QWEN3)
    memory.add([FIRST], [*letters(THOUGHT), EOS])
    for thought, is_helped in (("Hm.\n", True), ("Ho.", False)):
        message = assistant("It is a cab.", reasoning_content=thought)
        assert bool(memory.next(STABLE, [FIRST, message, SECOND]).helped) is is_helped


def test_kept_and_spliced_history_is_the_earlier_prompt_token_for_token() -> None:
    memory = Memory(templates.QWEN3)
    first = memory.add([FIRST], [*letters(THOUGHT), EOS])
    prompt = memory.next(BOTH, [FIRST, assistant(THOUGHT), SECOND])
    assert prompt.token_ids[: len(first.token_ids) + len(THOUGHT)] == [*first.token_ids, *THOUGHT.encode()]
    assert text_of(prompt) == text_of(memory.next(STABLE, [FIRST, assistant(THOUGHT), SECOND]))
    assert [sentence.split()[0] for sentence, _ in prompt.helped] == [
        "--stable-history",
        "--splice-generated-tokens",
    ]
    # "cab" is where the kept text, encoded anew, would part from what was generated.
    assert prompt.helped[1][1] == len(first.token_ids) + THOUGHT.index("ab.")


def test_kept_history_is_gone_on_from_in_the_next_turn() -> None:
    """The thoughts of both replies are in the third prompt."""
    memory = Memory(templates.QWEN3)
    memory.add([FIRST], [*letters(THOUGHT), EOS])
    messages = [FIRST, assistant(THOUGHT), SECOND]
    second = memory.next(STABLE, messages)
    memory.add(messages, [*letters(THOUGHT), EOS], prompt=second)
    third = memory.next(STABLE, [*messages, assistant(THOUGHT), user("Oh.")])
    assert text_of(third).startswith(text_of(second) + THOUGHT)
    assert text_of(third).count("<think>") == 2
    paths = [span.path for span in third.part_spans]
    assert paths == sorted(set(paths), key=paths.index)
    assert tokens_of(third)["messages[3].content"] == THOUGHT


def test_where_the_template_is_stable_nothing_is_kept_by_force() -> None:
    memory = Memory()
    memory.add([FIRST], letters("abab"))
    messages = [FIRST, assistant("abab"), SECOND]
    prompt = memory.next(STABLE, messages)
    assert prompt.token_ids == memory.rendered(messages).token_ids
    assert prompt.helped == ()


@pytest.mark.parametrize("config", [SPLICE, BOTH])
def test_tokens_that_come_out_the_same_are_no_help(config: HelperConfig) -> None:
    memory = Memory()
    memory.add([FIRST], letters("xyz"))
    assert memory.next(config, [FIRST, assistant("xyz"), SECOND]).helped == ()


@pytest.mark.parametrize("config, reply", [(SPLICE, "abab" * 9), (STABLE, THOUGHT)])
def test_help_that_leaves_no_room_for_an_answer_is_not_given(config: HelperConfig, reply: str) -> None:
    """To the token: with room for one more it is given."""
    memory = Memory(templates.QWEN3)
    memory.add([FIRST], letters(reply))
    messages = [FIRST, assistant(reply), SECOND]
    helped = memory.next(config, messages)
    length = len(helped.token_ids) + 1
    assert memory.next(config, messages, max_model_len=length).token_ids == helped.token_ids
    plain = memory.rendered(messages)
    assert memory.next(config, messages, max_model_len=length - 1).token_ids == plain.token_ids


class ShortTokenizer(PairTokenizer):
    """Takes texts of up to a hundred characters."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        if len(text) > 100:
            raise ContextLengthError("too long; shorten it")
        return super().encode(text, add_special_tokens=add_special_tokens)


def test_a_text_that_the_tokenizer_does_not_take_is_not_kept() -> None:
    """The request itself is short enough, so it is served."""
    memory = Memory(templates.QWEN3)
    memory.add([FIRST], letters(THOUGHT))
    messages = [FIRST, assistant(THOUGHT), SECOND]
    plain = memory.rendered(messages)
    continuation = Continuation(STABLE, ShortTokenizer(), cast("Explainer", memory), 10_000)
    prompt = asyncio.run(
        continuation.continued(plain, messages, None, MINE, add_generation_prompt=True, num_output_tokens=1)
    )
    assert prompt.token_ids == plain.token_ids


def test_digests_tell_messages_apart_however_they_are_cut() -> None:
    """Two messages are not one with both texts, and a digest of the first k is that of a shorter conversation."""
    one, two = [user("ab")], [user("a"), user("b")]
    assert len({*turn_digests(one, None), *turn_digests(two, None)}) == 4
    assert turn_digests([FIRST, SECOND], None)[1] == turn_digests([FIRST], None)[-1]
