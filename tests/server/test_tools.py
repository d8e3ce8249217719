"""Tools, tool calls and results of tools on the wire: what is taken, what is refused, and by which words."""

from collections.abc import Sequence
from typing import Any

import openai.types.chat as chat_types
import pytest
from openai.types.shared_params import FunctionDefinition

from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.server import tools as tools_module
from tests.fakes import ByteTokenizer
from tests.models import templates
from tests.server.fakes import FakeEngine, call, chat, make_app

FUNCTION: dict[str, Any] = {
    "name": "get_weather",
    "description": "Knows the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOL = {"type": "function", "function": FUNCTION}
USER = {"role": "user", "content": "Weather?"}


class RecordingRenderer:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.tools: list[Any] = []
        self.messages: list[Any] = []

    def render(
        self, messages: Sequence[Any], *, tools: Any = None, add_generation_prompt: bool = True
    ) -> Any:
        self.messages.append(messages)
        self.tools.append(tools)
        return [1], None


def tools_seen(**body: Any) -> Any:
    """Send a chat; return the tools that the template was given."""
    renderer = RecordingRenderer()
    response = chat(make_app(renderer=renderer), **body)
    assert response.status_code == 200, response.text
    return renderer.tools[0]


def error_of(app: Any = None, path: str = "/v1/chat/completions", **body: Any) -> Any:
    response = call(app or make_app(), "POST", path, json={"messages": [USER]} | body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


def template_app(source: str, engine: FakeEngine | None = None) -> Any:
    """A server with a real template."""
    renderer = ChatRenderer(ChatTemplate(source), ByteTokenizer())
    return make_app(engine or FakeEngine(max_model_len=2000), renderer=renderer)


# ---------------------------------------------------------------------------------------------------------------------
# Tools


def test_tools_reach_the_template_in_the_order_of_their_fields() -> None:
    """Also the order inside the schema; it is the order of the prompt, and what is cached depends on it."""
    turned = {"function": {"parameters": {"b": 1, "a": 2}, "name": "f"}, "type": "function"}
    seen = tools_seen(tools=[TOOL, turned])
    assert str(seen) == str([TOOL, turned])


def test_null_fields_and_hints_do_not_reach_the_prompt() -> None:
    """But null inside a schema is the schema's own; `strict` is shown to the template, as vLLM does."""
    function = {**FUNCTION, "description": None, "strict": True, "cache_control": {"type": "ephemeral"}}
    function["parameters"] = {"default": None}
    tool = {"type": "function", "function": function, "cache_control": {"type": "ephemeral"}}
    assert tools_seen(tools=[tool]) == [
        {
            "type": "function",
            "function": {"name": "get_weather", "strict": True, "parameters": {"default": None}},
        }
    ]


def test_no_tools_are_none_however_it_is_said() -> None:
    """Templates ask `tools is not none`."""
    assert tools_seen() is None
    assert tools_seen(tools=None) is None
    assert tools_seen(tools=[]) is None


@pytest.mark.parametrize(
    "tools, param, words",
    [
        (5, "tools", ["5", "a list of tools"]),
        ({}, "tools", ["an object without entries", "a list"]),
        ([5], "tools[0]", ["5", "an object such as"]),
        ([TOOL, {}], "tools[1].type", ["null", '"function"']),
        ([{"type": "custom", "custom": {}}], "tools[0].type", ['"custom"', '"function"']),
        ([{"type": []}], "tools[0].type", ["a list", '"function"']),
        ([{"type": "function"}], "tools[0].function", ["null", "an object with name"]),
        ([{"type": "function", "function": "f"}], "tools[0].function", ['"f"']),
        ([{"type": "function", "function": {}}], "tools[0].function.name", ["null", "1 to 64"]),
        ([TOOL, TOOL, {"type": "function", "function": {"name": ""}}], "tools[2].function.name", ['""']),
        ([{"type": "function", "function": {"name": "a.b"}}], "tools[0].function.name", ['"a.b"', "dashes"]),
        ([{"type": "function", "function": {"name": "f\n"}}], "tools[0].function.name", ["1 to 64"]),
        ([{"type": "function", "function": {"name": "é"}}], "tools[0].function.name", ["1 to 64"]),
        ([{"type": "function", "function": {"name": "f" * 65}}], "tools[0].function.name", ["1 to 64"]),
        (
            [{"type": "function", "function": {"name": "f", "description": 5}}],
            "tools[0].function.description",
            ["5", "a string"],
        ),
        (
            [{"type": "function", "function": {"name": "f", "parameters": []}}],
            "tools[0].function.parameters",
            ["a list without entries", "an object"],
        ),
        (
            [{"type": "function", "function": {"name": "f", "strict": "yes"}}],
            "tools[0].function.strict",
            ['"yes"', "true or false"],
        ),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
def test_a_wrong_tool_is_named_by_its_path(path: str, tools: Any, param: str, words: list[str]) -> None:
    """With the value and what it must be."""
    error = error_of(path=path, tools=tools)
    assert error["param"] == param
    assert all(word in error["message"] for word in [param, *words])


def test_names_may_have_all_letters_that_the_api_allows() -> None:
    """Up to 64 of them."""
    name = "get-Weather_2" + "x" * 51
    assert tools_seen(tools=[{"type": "function", "function": {"name": name}}])[0]["function"]["name"] == name


def test_an_unknown_field_of_a_tool_is_counted_and_left_out() -> None:
    """As anywhere; what the log says, that it has no effect, is true."""
    counted: list[str] = []
    renderer = RecordingRenderer()
    tool = {"type": "function", "x": 1, "function": {"name": "f", "y": 1}}
    app = make_app(renderer=renderer, count_unknown_field=counted.append)
    assert chat(app, tools=[tool]).status_code == 200
    assert counted == ["tools[].x", "tools[].function.y"]
    assert renderer.tools == [[{"type": "function", "function": {"name": "f"}}]]
    assert error_of(make_app(strict_fields=True), tools=[tool])["param"] == "tools[].x"


def test_every_field_of_the_sdks_tools_is_known() -> None:
    """A new version of the SDK that brings a field fails here until somebody decides about it."""
    assert set(chat_types.ChatCompletionFunctionToolParam.__annotations__) == tools_module._TOOL_FIELDS
    assert set(FunctionDefinition.__annotations__) == tools_module._FUNCTION_FIELDS


# ---------------------------------------------------------------------------------------------------------------------
# Choice


@pytest.mark.parametrize("choice", [None, "auto", "none"])
def test_the_prompt_is_the_same_whether_the_model_may_call_or_not(choice: str | None) -> None:
    """As vLLM does: with "none" the tools stay in the prompt, so what was cached with them is still found."""
    assert tools_seen(tools=[TOOL], tool_choice=choice) == [TOOL]
    assert tools_seen(tool_choice=choice) is None


@pytest.mark.parametrize(
    "choice, words",
    [
        ("required", ["tool_choice required is not supported", '"auto" or "none"']),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            ["a named function is not supported", '"auto" or "none"'],
        ),
        ("sometimes", ['"sometimes"', '"auto" or "none"']),
        (True, ["true", '"auto" or "none"']),
        (["auto"], ["a list of 1", '"auto" or "none"']),
    ],
)
def test_a_call_cannot_be_forced(choice: Any, words: list[str]) -> None:
    """Replies are not parsed, so nothing could be promised."""
    error = error_of(tools=[TOOL], tool_choice=choice)
    assert error["param"] == "tool_choice"
    assert all(word in error["message"] for word in words)


def test_parallel_calls_may_be_asked_for_or_not() -> None:
    """A reply is text, whatever is in it."""
    for parallel in (True, False):
        assert tools_seen(tools=[TOOL], parallel_tool_calls=parallel) == [TOOL]


def test_the_deprecated_names_are_refused_with_the_new_ones() -> None:
    """`functions` and `function_call`."""
    assert "send tools" in error_of(functions=[FUNCTION])["message"]
    assert "tool_choice" in error_of(function_call={"name": "f"})["message"]


# ---------------------------------------------------------------------------------------------------------------------
# Calls and results


def calling(**changes: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": '{"city":"Bonn"}'}
    return {
        "role": "assistant",
        "tool_calls": [{"id": "1", "type": "function", "function": function} | changes],
    }


@pytest.mark.parametrize(
    "message, param, words",
    [
        (calling(id=5), "messages[0].tool_calls[0].id", ["5", "a string"]),
        (calling(type="custom"), "messages[0].tool_calls[0].type", ['"custom"', '"function"']),
        (calling(type=[]), "messages[0].tool_calls[0].type", ["a list", '"function"']),
        (calling(function=None), "messages[0].tool_calls[0]", ["an object such as"]),
        (
            calling(function={"name": "f", "arguments": {"city": "Bonn"}}),
            "messages[0].tool_calls[0].function.arguments",
            ["an object of 1", "a string"],
        ),
        ({"role": "tool", "content": "rain"}, "messages[0].tool_call_id", ["null", "a string"]),
        ({"role": "tool", "content": "rain", "tool_call_id": 5}, "messages[0].tool_call_id", ["5"]),
        ({"role": "tool", "tool_call_id": "1"}, "messages[0].content", ["null", "a string or a list"]),
        (
            {"role": "tool", "tool_call_id": "1", "content": {"rain": True}},
            "messages[0].content",
            ["an object", "a string or a list"],
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "image_url"}]},
            "messages[0].content[0].type",
            ["text only"],
        ),
    ],
)
def test_a_wrong_call_or_result_is_named_by_its_path(message: Any, param: str, words: list[str]) -> None:
    """With the value and what it must be."""
    error = error_of(messages=[message])
    assert error["param"] == param
    assert all(word in error["message"] for word in words)


def test_arguments_that_are_no_json_are_named_by_their_path() -> None:
    """Found by the template's side, which needs the object."""
    broken = calling(function={"name": "f", "arguments": '{"city":'})
    error = error_of(template_app(templates.QWEN25), messages=[USER, broken])
    assert error["param"] == "messages[1].tool_calls[0].function.arguments"
    assert "is not JSON" in error["message"]


def test_an_empty_list_of_calls_is_none() -> None:
    """Templates ask whether a message has the field, not what is in it."""
    renderer = RecordingRenderer()
    messages = [{"role": "assistant", "content": "Hi", "tool_calls": []}]
    assert chat(make_app(renderer=renderer), messages=messages).status_code == 200
    assert renderer.messages == [[{"role": "assistant", "content": "Hi"}]]


def test_unknown_fields_of_calls_are_counted() -> None:
    """The index that streams carry is known."""
    counted: list[str] = []
    message = calling(index=0, x=1, function={"name": "f", "arguments": "{}", "y": 1})
    assert chat(make_app(count_unknown_field=counted.append), messages=[message]).status_code == 200
    assert counted == ["messages[].tool_calls[].x", "messages[].tool_calls[].function.y"]


# ---------------------------------------------------------------------------------------------------------------------
# With a template

CONVERSATION = [
    USER,
    calling(),
    {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "rain"}]},
]


def test_a_conversation_with_tools_becomes_the_prompt_of_the_template() -> None:
    """The same ids for a chat and for /tokenize; the answer is text."""
    engine = FakeEngine(max_model_len=2000)
    app = template_app(templates.QWEN25, engine)
    response = chat(app, messages=CONVERSATION, tools=[TOOL])
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "Hello, world"
    rendered = ChatTemplate(templates.QWEN25).render(CONVERSATION, tools=[TOOL]).text
    assert '"arguments": {"city": "Bonn"}' in rendered
    token_ids = list(engine.requests[0].prompt_token_ids)
    assert token_ids == ByteTokenizer().encode(rendered, add_special_tokens=False)
    tokens = call(app, "POST", "/tokenize", json={"messages": CONVERSATION, "tools": [TOOL]}).json()
    assert tokens["tokens"] == token_ids


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/tokenize"])
@pytest.mark.parametrize(
    "body, param", [({"tools": [TOOL]}, "tools"), ({"messages": CONVERSATION}, "messages[1].tool_calls")]
)
def test_the_template_of_the_demo_model_shows_no_tools_and_that_is_said(
    path: str, body: Any, param: str
) -> None:
    """Instead of an answer that ignores them."""
    error = error_of(template_app(templates.SMOLLM2), path, **body)
    assert error["param"] == param
    assert "--chat-template" in error["message"]


def test_tools_of_a_prompt_are_refused() -> None:
    """/tokenize renders no template for it."""
    response = call(make_app(), "POST", "/tokenize", json={"prompt": "a", "tools": [TOOL]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"


def test_tools_with_long_schemas_are_rendered_in_another_thread_like_long_texts() -> None:
    """With the same result."""
    long = {"type": "function", "function": {**FUNCTION, "description": "x" * 100_000}}
    app = template_app(templates.QWEN25, FakeEngine(max_model_len=200_000))
    body = call(app, "POST", "/tokenize", json={"messages": [USER], "tools": [long]}).json()
    assert body["count"] > 100_000
