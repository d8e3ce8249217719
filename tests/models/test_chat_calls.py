"""The arguments of tool calls: what they must be, and what templates are given."""

import json
from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_calls import wire_arguments, with_arguments
from anaphora.models.chat_template import ChatTemplate
from tests.models import templates

PATH = "messages[1].tool_calls[0]"


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def arguments_of(arguments: Any, *, as_text: bool = False) -> Any:
    return with_arguments(call(arguments), PATH, as_text=as_text)["function"]["arguments"]


def test_arguments_become_the_object_they_spell() -> None:
    """In the order they have; nothing at all is no arguments."""
    assert list(arguments_of('{"b":1, "a": "é"}').items()) == [("b", 1), ("a", "é")]
    assert arguments_of("") == arguments_of(" \n") == {}
    assert arguments_of({"a": 1}) == {"a": 1}


def test_as_text_arguments_are_what_they_were() -> None:
    """Letter by letter; an object, which scripts may give, is written as JSON."""
    assert arguments_of('{"b":1, "a":"é"}', as_text=True) == '{"b":1, "a":"é"}'
    assert arguments_of({"a": "é"}, as_text=True) == '{"a": "é"}'


def test_the_call_itself_is_not_changed() -> None:
    """The caller keeps it; a call without a function is none of our business."""
    one = call("{}")
    with_arguments(one, PATH, as_text=False)
    assert one == call("{}")
    assert with_arguments({"name": "f"}, PATH, as_text=False) == {"name": "f"}


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    "arguments, complaint",
    [
        ("{", "is not JSON: Expecting property name"),
        ("{'a': 1}", "is not JSON: Expecting property name"),
        ('{"a": NaN}', "is not JSON: numbers must be finite, and NaN is not"),
        ("[1]", "holds JSON of type list, but must hold an object"),
        ("null", "holds JSON of type NoneType, but must hold an object"),
        ('"a"', "holds JSON of type str, but must hold an object"),
        (f'{{"a": {"9" * 5000}}}', "is not JSON: Exceeds the limit"),
        ("[" * 200_000, "is nested deeper than 200 levels; use fewer"),
        (f'{{"a": {"[" * 200}{"]" * 200}}}', "is nested deeper than 200 levels; use fewer"),
        ('{"a": "\\ud800"}', r"holds the lone surrogate U\+D800"),
    ],
)
def test_arguments_that_are_no_object_are_refused_by_their_path(
    arguments: str, complaint: str, as_text: bool
) -> None:
    """Whatever the template wants."""
    with pytest.raises(InvalidRequestError, match=complaint) as caught:
        arguments_of(arguments, as_text=as_text)
    assert caught.value.param == f"{PATH}.function.arguments"


def test_the_wire_text_of_arguments_stays_within_reach() -> None:
    """The template wrote them anew, with other white space."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call('{"city":"Bonn"}'), call({"city": "Köln"})]},
    ]
    chat = ChatTemplate(templates.QWEN25).render(messages)
    assert '{"city": "Bonn"}' in chat.text
    assert chat.arguments == {"messages[1].tool_calls[0].function.arguments": '{"city":"Bonn"}'}
    assert dict(wire_arguments(messages)) == chat.arguments


@pytest.mark.parametrize("name", ["qwen25", "llama31", "hermes", "mistral_tools", "qwen3_coder"])
def test_most_templates_get_objects(name: str) -> None:
    """They write them with `tojson`, which would quote a string once more, or item by item."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [call('{"city":"Bonn"}')]},
    ]
    text = ChatTemplate(templates.WITH_TOOLS[name]).render(messages).text
    assert json.dumps({"city": "Bonn"}) in text or "<parameter=city>\nBonn\n" in text


def test_a_template_that_takes_strings_only_gets_the_string() -> None:
    """Found out when it is made: it fails with an object, or prints one as Python does."""
    messages = [{"role": "assistant", "tool_calls": [call('{"city":"Bonn"}')]}]
    assert '```json\n{"city":"Bonn"}\n```' in ChatTemplate(templates.DEEPSEEK).render(messages).text
    source = "{% for c in messages[-1].tool_calls %}{{ c.function.arguments }}{% endfor %}"
    assert ChatTemplate(source).render(messages).text == '{"city":"Bonn"}'
