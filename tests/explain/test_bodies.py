"""Bodies of three APIs in one form."""

from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.explain.bodies import bypass_of, canonical, difference_path, message_key, read_body


def test_an_anthropic_body_becomes_a_chat_and_keeps_its_paths() -> None:
    """System first; tool uses are calls, tool results are messages."""
    body = read_body(
        {
            "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [
                {"role": "user", "content": "Look."},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "A cat."}],
                },
            ],
        }
    )
    assert [message["role"] for message in body.messages] == ["system", "user", "assistant", "tool"]
    assert body.messages[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a": 1}'}
    assert body.tools[0]["function"] == {"name": "look", "parameters": {"type": "object"}}
    assert body.parts(0)[0].path == "system[0]"
    assert body.translated("messages[1].content") == "messages[0].content"
    assert body.translated("messages[0].content[0]") == "system[0]"


def test_hints_for_caches_do_not_tell_messages_apart() -> None:
    """They never reach the prompt."""
    one: dict[str, Any] = {"role": "user", "content": "Hi", "cache_control": {"type": "ephemeral"}}
    two: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "Hi"}]}
    assert message_key(one) == message_key(two)


def test_one_value_has_one_canonical_text() -> None:
    """Whatever the order of keys, and whether 1 is written 1.0."""
    assert canonical({"b": 1.0, "a": "ü"}) == canonical({"a": "\u00fc", "b": 1})
    assert canonical(True) != canonical(1)


def test_the_first_difference_has_a_path() -> None:
    """Another order of keys is one, if asked for."""
    a = [{"f": {"x": 1, "y": [1, 2]}}]
    assert difference_path(a, [{"f": {"y": [1, 2], "x": 1}}], "tools") == "tools[0].f"
    assert difference_path(a, [{"f": {"y": [1, 2], "x": 1}}], "tools", ordered=False) is None
    assert difference_path(a, [{"f": {"x": 1, "y": [1, 3]}}], "tools") == "tools[0].f.y[1]"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"echo": True}, None),
        ({"cache_prompt": False}, "cache_prompt"),
        ({"skip_reading_prefix_cache": True}, "skip_reading_prefix_cache"),
        ({}, None),
    ],
)
def test_fields_that_forbid_reading_are_known(body: dict[str, Any], name: str | None) -> None:
    """The first of them is named."""
    assert bypass_of(body) == name


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"messages": []},
        {"messages": "hi"},
        {"prompt": []},
        {"prompt": ["a", "b"]},
        {"messages": ["hi"]},
    ],
)
def test_what_is_no_request_is_refused(body: Any) -> None:
    """With a message, not a traceback."""
    with pytest.raises(InvalidRequestError):
        read_body(body)


def test_a_body_of_the_responses_api_becomes_a_chat_and_keeps_its_paths() -> None:
    """Calls join the turn that made them, outputs are tool messages, reasoning is left out."""
    body = read_body(
        {
            "instructions": "Be kind.",
            "tools": [{"type": "function", "name": "look", "parameters": {"type": "object"}}],
            "text": {"format": {"type": "json_schema", "name": "x", "schema": {}}, "verbosity": "low"},
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Look."}]},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
                {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "A cat."},
            ],
        }
    )
    assert [message["role"] for message in body.messages] == ["system", "user", "assistant", "tool"]
    assert [call["id"] for call in body.messages[2]["tool_calls"]] == ["a", "b"]
    assert body.tools[0] == {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object"}},
    }
    assert [body.parts(i)[0].path for i in range(4)] == [
        "instructions",
        "input[0].content[0]",
        "input[2].content[0]",
        "input[5].output",
    ]
    assert body.translated("messages[2].tool_calls[1].function.arguments") == "input[4].arguments"
    assert body.translated("tools[0].function.parameters.type") == "tools[0].parameters.type"
    assert body.template_names["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {}},
    }
    assert body.template_names["verbosity"] == "low"


def test_a_path_into_an_anthropic_body_names_the_block_that_was_sent() -> None:
    """Not its number among the texts that were left when calls and results had been taken out."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "A cat."}]}
    body = read_body(
        {
            "system": "Be kind.",
            "tools": [{"name": "look", "input_schema": {"type": "object"}}],
            "messages": [
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm."},
                        {"type": "text", "text": "I look."},
                        {"type": "tool_use", "id": "t", "name": "look", "input": {}},
                    ],
                },
                {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
            ],
        }
    )
    assert [body.parts(i)[0].path for i in range(4)] == [
        "system",
        "messages[0].content[1]",
        "messages[1].content[0].content[0]",
        "messages[1].content[1]",
    ]
    assert body.translated("messages[1].tool_calls[0].function.arguments") == "messages[0].content[2].input"
    assert body.translated("tools[0].function.parameters") == "tools[0].input_schema"


def test_an_item_that_no_template_renders_is_refused_by_name() -> None:
    """It would be lost."""
    with pytest.raises(InvalidRequestError, match=r"input\[0\].*'web_search_call'"):
        read_body({"input": [{"type": "web_search_call", "id": "ws_1"}]})
