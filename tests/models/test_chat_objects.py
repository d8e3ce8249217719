"""Which characters of a prompt are a tool or a tool call: exact, or left out."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_objects import marked_to_json
from anaphora.models.chat_template import ChatTemplate, RenderedChat
from tests.models import templates

MARKUP = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = {
    name: ChatTemplate(source, special_tokens=MARKUP)
    for name, source in {**templates.WITH_TOOLS, "deepseek": templates.DEEPSEEK}.items()
}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
PREAMBLE = "<|im_start|>system\nYou are a helpful assistant.\n\n# Tools\n\n<tools>"
USER = {"role": "user", "content": "Weather?"}


def tool(
    name: str, description: str = "Knows.", parameters: Mapping[str, Any] = PARAMETERS
) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {
        "id": "call00000",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, separators=(",", ":"))},
    }


def calling(*calls: dict[str, Any], content: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call00000", "content": content}


def render(name: str, *messages: Mapping[str, Any], tools: Any = None) -> RenderedChat:
    return TEMPLATES[name].render(messages, tools=tools)


def parts_of(chat: RenderedChat) -> dict[str, str]:
    """The text of each part, in their order."""
    assert len({part.path for part in chat.parts}) == len(chat.parts)
    return {part.path: chat.text[part.start : part.end] for part in chat.parts}


def inner_parts_of(chat: RenderedChat) -> dict[str, str]:
    """The parts without the frames of messages and what is before and behind them."""
    return {path: part for path, part in parts_of(chat).items() if path.startswith("tools") or "." in path}


# ---------------------------------------------------------------------------------------------------------------------
# Family by family


def test_tools_that_are_json_are_exact() -> None:
    """Each is one object; name, description and parameters lie inside, and all of them inside the preamble."""
    chat = render("qwen25", USER, tools=[tool("get_weather"), tool("get_time", 'Say "when"')])
    parts = parts_of(chat)
    first, second = (json.dumps(t) for t in (tool("get_weather"), tool("get_time", 'Say "when"')))
    assert list(parts.items())[:9] == [
        (
            "template-preamble",
            f"{PREAMBLE}\n{first}\n{second}\n</tools><|im_end|>\n",
        ),
        ("tools[0]", first),
        ("tools[0].function.name", "get_weather"),
        ("tools[0].function.description", "Knows."),
        ("tools[0].function.parameters", json.dumps(PARAMETERS)),
        ("tools[1]", second),
        ("tools[1].function.name", "get_time"),
        ("tools[1].function.description", 'Say \\"when\\"'),
        ("tools[1].function.parameters", json.dumps(PARAMETERS)),
    ]
    assert parts["messages[0]"] == "<|im_start|>user\nWeather?<|im_end|>\n"


def test_tools_in_the_system_message_are_part_of_it() -> None:
    """The message reaches to its ending behind them."""
    parts = parts_of(render("qwen25", {"role": "system", "content": "Be brief."}, USER, tools=[tool("f")]))
    assert parts["messages[0]"] == (
        f"<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n{json.dumps(tool('f'))}\n</tools><|im_end|>\n"
    )
    assert parts["messages[0].content"] == "Be brief."
    assert parts["messages[1]"] == "<|im_start|>user\nWeather?<|im_end|>\n"
    assert "template-preamble" not in parts


def test_indented_tools_are_exact_too() -> None:
    """Llama writes them before the first content of the user, whose message they are part of."""
    parts = parts_of(
        render("llama31", {"role": "system", "content": "Be brief."}, USER, tools=[tool("f"), tool("g")])
    )
    assert parts["tools[0]"] == json.dumps(tool("f"), indent=4)
    assert parts["tools[1]"] == json.dumps(tool("g"), indent=4)
    assert parts["tools[1].function.name"] == "g"
    assert parts["messages[1]"].startswith("<|start_header_id|>user")
    assert parts["messages[1]"].endswith("}\n\nWeather?<|eot_id|>")
    assert parts["messages[1].content"] == "Weather?"


def test_tools_in_one_list_are_told_apart() -> None:
    """Mistral writes the list as a whole, before the last message of the user."""
    chat = render(
        "mistral_tools", USER, {"role": "assistant", "content": "Wet."}, USER, tools=[tool("f"), tool("g")]
    )
    parts = parts_of(chat)
    assert (parts["tools[0]"], parts["tools[1]"]) == (json.dumps(tool("f")), json.dumps(tool("g")))
    assert list(parts).index("tools[0]") > list(parts).index("messages[1]")


def test_tools_that_are_written_field_by_field_reach_from_the_first_to_the_last() -> None:
    """Also through a macro, also if there is one tool only, and also if its name is written twice."""
    text = 'f", "description": "f(city: str, days: integer) - Knows.", "parameters": ' + json.dumps(
        PARAMETERS
    )
    for tools in ([tool("f")], [tool("f"), tool("f")], [tool("g"), tool("f"), tool("g", "Other.")]):
        parts = parts_of(render("hermes", USER, tools=tools))
        assert [parts[f"tools[{i}]"].replace("g(", "f(") for i in range(len(tools))] == [
            text.replace("f", t["function"]["name"], 1).replace("Knows.", t["function"]["description"])
            for t in tools
        ]
    parts = parts_of(render("qwen3_coder", USER, tools=[tool("f"), tool("g", " Knows. ")]))
    assert parts["tools[0]"] == "f</name>\n<description>Knows."
    assert parts["tools[1]"] == "g</name>\n<description>Knows."
    assert parts["tools[1].function.description"] == "Knows."


def test_calls_and_results_have_their_places() -> None:
    """Arguments as JSON written anew, two calls in a message, and results that share one."""
    chat = render(
        "qwen25",
        USER,
        calling(call("f", city="Köln"), call("f", city="Bonn"), content="I look."),
        result("rain"),
        result("sun"),
        {"role": "assistant", "content": "Both."},
    )
    parts = parts_of(chat)
    assert parts["messages[1].content"] == "I look."
    assert parts["messages[1].tool_calls[0]"] == 'f", "arguments": {"city": "Köln"}'
    assert parts["messages[1].tool_calls[1]"] == 'f", "arguments": {"city": "Bonn"}'
    assert parts["messages[1].tool_calls[1].function.name"] == "f"
    assert parts["messages[1].tool_calls[1].function.arguments"] == '{"city": "Bonn"}'
    assert parts["messages[1]"].startswith("<|im_start|>assistant\nI look.\n<tool_call>")
    assert parts["messages[1]"].endswith('{"city": "Bonn"}')
    assert (parts["messages[2].content"], parts["messages[3].content"]) == ("rain", "sun")
    assert parts["messages[4]"] == "<|im_start|>assistant\nBoth.<|im_end|>\n"


def test_a_message_with_nothing_but_calls_is_framed_by_its_markup() -> None:
    """Between two messages whose markup is known, everything is its own."""
    parts = parts_of(render("hermes", USER, calling(call("f", city="Bonn")), USER))
    assert parts["messages[1]"] == (
        '<|im_start|>assistant\n\n<tool_call>\n{"name": "f", "arguments": {"city": "Bonn"}}\n</tool_call><|im_end|>\n'
    )
    assert parts["messages[1].tool_calls[0]"] == 'f", "arguments": {"city": "Bonn"}'


def test_a_call_between_tags_reaches_to_its_last_text() -> None:
    """No object is written there, only names and values."""
    parts = parts_of(render("qwen3_coder", USER, calling(call("f", days=2, city="Bonn")), USER))
    assert parts["messages[1].tool_calls[0]"] == (
        "f>\n<parameter=days>\n2\n</parameter>\n<parameter=city>\nBonn"
    )


def test_the_markup_of_a_call_is_not_given_to_the_next_message() -> None:
    """Messages have no ending here, so only the header of the next one says where the call's markup stops."""
    parts = parts_of(render("deepseek", USER, calling(call("f", city="Bonn"), content="See."), USER))
    assert parts["messages[1]"] == ('<assistant>See.<call>function<sep>f\n```json\n{"city":"Bonn"}\n```<end>')
    assert parts["messages[2]"] == "<user>Weather?"


# ---------------------------------------------------------------------------------------------------------------------
# What may go wrong


def make(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens=MARKUP)


def test_a_tool_that_is_written_twice_has_no_place() -> None:
    """Which of the two would it be?"""
    source = "{% for t in tools * 2 %}{{ t | tojson }}{% endfor %}{{ messages[0].content }}"
    assert inner_parts_of(make(source).render([USER], tools=[tool("f")])) == {
        "messages[0].content": "Weather?"
    }


def test_a_tool_that_is_mentioned_elsewhere_is_not_stretched_to_there() -> None:
    """Between its place and the mention stand words of the template; other tools around it bring that to light."""
    fields = "{% for t in tools %}{{ t.function.name }}: {{ t.function.description }}{% endfor %}"
    for mention in ("{{ tools[0].function.name }}", "{{ tools[-1].function.name }}"):
        source = f"{fields} If in doubt, use {mention}.{{{{ messages[0].content }}}}"
        parts = inner_parts_of(make(source).render([USER], tools=[tool("f", "Eff.")]))
        assert parts == {"tools[0].function.description": "Eff.", "messages[0].content": "Weather?"}


def test_a_template_that_does_something_to_the_text_of_tools_leaves_them_out() -> None:
    """The marks do not survive it; that the tools are in the prompt is found out otherwise."""
    source = "{{ tools | tojson | upper }}{{ messages[0].content }}"
    chat = make(source).render([USER], tools=[tool("f")])
    assert inner_parts_of(chat) == {"messages[0].content": "Weather?"}
    source = "{{ (tools | tojson)[:60] }}{{ messages[0].content }}"
    assert inner_parts_of(make(source).render([USER], tools=[tool("f")])) == {
        "messages[0].content": "Weather?"
    }


def test_a_template_decides_by_tools_as_if_they_had_no_marks() -> None:
    """Comparing, counting, searching and stripping see the texts themselves."""
    source = (
        "{% set f = tools[0].function %}"
        "{% if f.name == 'f' and f.name in ['f'] and f.name | length == 1 and f.description.startswith('K') %}"
        "{{ f.parameters.properties.city.type ~ '|' ~ f.name + '|' + f.description | trim }}|{{ f.parameters }}"
        "{% endif %}{{ messages[0].content }}"
    )
    chat = make(source).render([USER], tools=[tool("f", "Knows. ")])
    assert chat.text == f"string|f|Knows.|{PARAMETERS}Weather?"
    assert parts_of(chat)["tools[0].function.parameters"] == str(PARAMETERS)


def test_a_content_that_stands_in_a_call_only_is_not_taken_for_the_content() -> None:
    """Here the template writes contents in capitals, and one of them would be found among the arguments."""
    source = (
        "{% for m in messages %}{{ m.content | upper }};"
        "{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    said = {"role": "user", "content": "the weather in Bonn"}
    parts = parts_of(make(source).render([said, calling(call("f", q="the weather in Bonn"))]))
    assert parts["messages[1].tool_calls[0]"] == '{"q": "the weather in Bonn"}'
    assert "messages[0].content" not in parts


def test_tools_without_end_do_not_stop_the_server() -> None:
    """A schema nested more deeply than Python can follow is the caller's error, or is left without a place."""
    parameters: dict[str, Any] = {}
    for _ in range(900):
        parameters = {"a": parameters}
    try:
        render("qwen25", USER, tools=[tool("f", parameters=parameters)])
    except InvalidRequestError:
        pass
    for _ in range(100_000):
        parameters = {"a": parameters}
    with pytest.raises(InvalidRequestError, match="recursion"):
        render("qwen25", USER, tools=[tool("f", parameters=parameters)])
    while parameters:  # taken apart level by level, since Python frees nested objects by recursion
        parameters = parameters["a"]


# ---------------------------------------------------------------------------------------------------------------------
# Any conversation

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(
    JSON,
    st.booleans(),
    st.sampled_from([None, 0, 1, 4, "\t"]),
    st.sampled_from([None, (",", ":"), (", ", ": ")]),
    st.booleans(),
)
def test_json_without_marks_is_written_as_python_writes_it(
    value: Any, ensure_ascii: bool, indent: Any, separators: Any, sort_keys: bool
) -> None:
    """In every style that templates can ask for; otherwise no tool would have a place."""
    options = {
        "ensure_ascii": ensure_ascii,
        "indent": indent,
        "separators": separators,
        "sort_keys": sort_keys,
    }
    assert marked_to_json(value, **options) == json.dumps(value, **options)


WORDS = ["f", "g", "Weather?", "rain", '"', "\\", "é😀", "\n", "</tools>", "<|im_end|>\n", "x0z", "}", "a b"]
names = st.sampled_from(["f", "g", "get_weather"])
texts = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
tools_of_any_kind = st.lists(st.builds(tool, names, texts), min_size=1, max_size=4)
calls_of_any_kind = st.builds(lambda name, city: call(name, city=city, days=1), names, texts)
turns_of_any_kind = st.lists(
    st.builds(lambda content: {"role": "user", "content": content}, texts)
    | st.builds(lambda content: {"role": "assistant", "content": content}, texts)
    | st.builds(
        lambda calls, content: calling(*calls, content=content),
        st.lists(calls_of_any_kind, min_size=1, max_size=2),
        texts,
    )
    | st.builds(result, texts),
    max_size=5,
)


@given(tools_of_any_kind, turns_of_any_kind)
def test_every_tool_is_where_it_was_written(
    tools: Sequence[dict[str, Any]], turns: Sequence[dict[str, Any]]
) -> None:
    """Against positions computed by hand, whatever contents, names and descriptions look like."""
    start = len(PREAMBLE)
    chat = render("qwen25", USER, *turns, tools=tools)
    found = {part.path: (part.start, part.end) for part in chat.parts}
    for i, one in enumerate(tools):
        written = json.dumps(one, ensure_ascii=False)
        start += 1
        assert found[f"tools[{i}]"] == (start, start + len(written))
        name_start = start + written.index('"name": "') + len('"name": "')
        assert found[f"tools[{i}].function.name"] == (
            name_start,
            name_start + len(one["function"]["name"]),
        )
        start += len(written)


@pytest.mark.parametrize("family", list(templates.WITH_TOOLS))
@given(tools=tools_of_any_kind, turns=turns_of_any_kind)
def test_no_tool_and_no_call_is_ever_wrong(
    family: str, tools: Sequence[dict[str, Any]], turns: Sequence[dict[str, Any]]
) -> None:
    """In every family: what is said to be a tool or a call spells it, and parts lie inside one another or apart."""
    messages = [USER, *turns]
    try:
        chat = render(family, *messages, tools=tools)
    except InvalidRequestError:
        return
    parts = parts_of(chat)
    for path, written in parts.items():
        owner, _, place = path.partition(".function")
        if not (owner.startswith("tools[") or "tool_calls[" in owner):
            continue
        wanted: Any = tools if owner.startswith("tools[") else messages
        for step in (
            owner.replace("tools[", "")
            .replace("messages[", "")
            .replace("].tool_calls[", " ")
            .strip("]")
            .split()
        ):
            wanted = wanted[int(step)] if isinstance(wanted, list) else wanted["tool_calls"][int(step)]
        function = wanted["function"]
        if not place:
            assert function["name"] in written
        elif place in {".name", ".description"}:
            spelled = function[place[1:]]
            assert written in {spelled, spelled.strip(), json.dumps(spelled, ensure_ascii=False)[1:-1]}
        else:
            value = function[place[1:]]
            assert json.loads(written) == (json.loads(value) if isinstance(value, str) else value)
    opened: list[int] = []
    for part in chat.parts:
        while opened and opened[-1] <= part.start:
            opened.pop()
        assert not opened or part.end <= opened[-1]
        opened.append(part.end)
    assert {f"tools[{i}]" for i in range(len(tools))} <= set(parts)
