"""What is changed in the body of a chat, and what is said of it."""

import asyncio
from typing import Any

import pytest

from anaphora.config import HelperConfig
from anaphora.errors import InvalidRequestError
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.helpers import Chat, Messages, Tools, render_helped, with_help
from anaphora.server.prompts import Prompt, TextLimit, render_chat
from tests.fakes import ByteTokenizer
from tests.models import templates
from tests.server.fakes import FakeEngine, call, make_app

STRIP = HelperConfig(strip_client_stamp=True)
SORT = HelperConfig(sort_tools=True)
ALL = HelperConfig(strip_client_stamp=True, sort_tools=True)
STAMP = "x-client: cch=1f00a;\n"
USER = {"role": "user", "content": "Hi"}


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description}}


def system(text: Any, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def prompt_of(config: HelperConfig, chat: Chat, template: str = templates.CHATML) -> Prompt:
    """Render a chat by a real template, a token for each byte."""
    renderer = ChatRenderer(ChatTemplate(template), ByteTokenizer())

    async def render(messages: Messages, tools: Tools) -> Prompt:
        return await render_chat(messages, tools, renderer, TextLimit(10_000, 10), add_generation_prompt=True)

    return asyncio.run(render_helped(config, chat, render))


def text_of(prompt: Prompt) -> str:
    return ByteTokenizer().decode(prompt.token_ids, skip_special_tokens=False)


@pytest.mark.parametrize("config", [STRIP, ALL])
@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_stamp_is_taken_out_of_the_first_system_text(config: HelperConfig, role: str) -> None:
    """The sentence names the header, and nothing of its value."""
    helped, (change,) = with_help(config, Chat([system(f"{STAMP}Be kind.", role), USER], None))
    assert helped == Chat([system("Be kind.", role), USER], None)
    assert (
        change.sentence == "--strip-client-stamp left out the line x-client at the beginning of messages[0]."
    )


def test_several_stamps_are_named_once_each() -> None:
    _, (change,) = with_help(STRIP, Chat([system(STAMP * 2 + "y: req=1\nBe kind."), USER], None))
    assert "left out the 3 lines x-client, y at" in change.sentence


def test_a_stamp_in_a_part_leaves_the_part_behind_so_that_the_others_keep_their_paths() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": STAMP},
        {"type": "text", "text": "Be kind.", "cache_control": {}},
    ]
    helped, _ = with_help(STRIP, Chat([system(parts), USER], None))
    assert helped.messages[0]["content"] == [{"type": "text", "text": ""}, parts[1]]
    assert parts[0]["text"] == STAMP, "what was sent is not touched"
    assert not helped.has_empty_first


@pytest.mark.parametrize(
    "messages",
    [
        [system("Be kind.\n" + STAMP), USER],
        [{"role": "user", "content": STAMP + "Hi"}],
        [USER, system(STAMP)],
        [system("Note: be kind."), USER],
        [system([{"type": "text", "text": "Be kind."}, {"type": "text", "text": STAMP}])],
    ],
    ids=["behind", "user", "second", "no stamp", "second part"],
)
def test_what_is_no_stamp_at_the_beginning_of_the_system_text_stays(messages: list[dict[str, Any]]) -> None:
    chat = Chat(messages, [tool("a"), tool("b")])
    assert with_help(ALL, chat) == (chat, ())


def test_a_message_that_was_nothing_but_a_stamp_is_rendered_as_if_it_had_not_been_sent() -> None:
    """The template then writes its own system text; the paths still count the message that was sent."""
    chat = Chat([system(STAMP), USER, {"role": "assistant", "content": "Hello"}], None)
    prompt = prompt_of(STRIP, chat, templates.SMOLLM2)
    plain = prompt_of(HelperConfig(), Chat(chat.messages[1:], None), templates.SMOLLM2)
    assert prompt.token_ids == plain.token_ids
    assert prompt.spans is not None and plain.spans is not None
    spans = {span.path: span for span in prompt.spans.spans}
    by_text = {span.path: span.token_start for span in plain.spans.spans}
    assert spans["messages[1].content"].token_start == by_text["messages[0].content"]
    assert spans["messages[2]"].token_start == by_text["messages[1]"]
    assert prompt.changes == {"messages": [system(""), *chat.messages[1:]]}


def test_a_lone_message_that_was_nothing_but_a_stamp_is_rendered_empty() -> None:
    assert "cch" not in text_of(prompt_of(STRIP, Chat([system(STAMP)], None)))


def test_tools_are_sorted_by_name_and_those_of_one_name_keep_their_order() -> None:
    tools = [tool("b", "1"), tool("a"), tool("b", "0"), tool("B")]
    helped, (change,) = with_help(SORT, Chat([USER], tools))
    assert helped == Chat([USER], [tools[3], tools[1], tools[0], tools[2]])
    assert change.sentence == "--sort-tools put the 4 tools in the order of their names."
    assert [t["function"]["name"] for t in tools] == ["b", "a", "b", "B"], "what was sent is not touched"


@pytest.mark.parametrize("tools", [None, [], [tool("a")], [tool("a"), tool("b")]])
def test_tools_in_order_are_left_alone(tools: Tools) -> None:
    chat = Chat([USER], tools)
    assert with_help(SORT, chat) == (chat, ())


def test_each_change_is_compared_with_the_prompt_without_it_alone() -> None:
    """Both are made: without the first, all from the stamp on is lost; without the second, all from the first tool."""
    chat = Chat([system(STAMP + "Be kind."), USER], [tool("b"), tool("a")])
    prompt = prompt_of(ALL, chat, templates.QWEN25)
    text = text_of(prompt)
    stripped, ordered = prompt.helped
    assert stripped == (
        "--strip-client-stamp left out the line x-client at the beginning of messages[0].",
        len("s" + "system\n"),  # the markup is one token
    )
    place = text.index('"name": "') + len('"name": "')
    assert ordered[1] == len(text[:place].replace("<|im_start|>", "s").replace("<|im_end|>", "e"))


def test_with_nothing_to_change_the_prompt_says_nothing() -> None:
    prompt = prompt_of(ALL, Chat([USER], None))
    assert (prompt.helped, prompt.changes) == ((), {})


def test_a_chat_that_cannot_be_rendered_is_refused_as_it_was_sent() -> None:
    """The path counts the message whose stamp was all it had."""
    bad = {"role": "user", "content": [{"type": "image"}]}
    with pytest.raises(InvalidRequestError) as caught:
        prompt_of(STRIP, Chat([system(STAMP), bad], None))
    assert caught.value.param == "messages[1].content[0]"


def test_a_chat_that_could_only_be_rendered_without_the_change_stays_as_it_was() -> None:
    """The template asks for a system message, and the stamp was all of it."""
    template = (
        "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + templates.CHATML
    )
    prompt = prompt_of(STRIP, Chat([system(STAMP), USER], None), template)
    assert "cch=1f00a" in text_of(prompt)
    assert prompt.helped == ()


def test_a_change_without_which_nothing_could_be_rendered_counts_as_all() -> None:
    """The template refuses system messages; nothing is in common with a prompt that there is not."""
    prompt = prompt_of(STRIP, Chat([system(STAMP), USER], None), templates.GEMMA)
    assert [num_common for _, num_common in prompt.helped] == [0]


def test_the_endpoints_hand_the_settings_on() -> None:
    """Off, the body is rendered as it is; on, tools are sorted and the stamp is gone."""
    body = {"messages": [system(STAMP + "Be kind."), USER], "tools": [tool("b"), tool("a")]}
    seen = []
    for helpers in (None, ALL):
        engine = FakeEngine()
        response = call(make_app(engine, helpers=helpers), "POST", "/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        seen.append(bytes(engine.requests[0].prompt_token_ids).decode())
    assert seen == [
        f"<tool>b<tool>a<system>{STAMP}Be kind.<user>Hi<assistant>",
        "<tool>a<tool>b<system>Be kind.<user>Hi<assistant>",
    ]
