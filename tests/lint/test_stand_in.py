"""The template that stands in for one that is not known shows all that it is given."""

from typing import Any

import pytest

from tests.lint.support import chat, log_of, tool

CALL = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": '{"a":1}'}}


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (chat("Hi.", tools=[tool("tide")]), '"name": "tide"'),
        (chat("Hi.", response_format={"type": "json_object"}), "json_object"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": [CALL]}]}, '{"a":1}'),
        ({"messages": [{"role": "tool", "tool_call_id": "c1", "content": "At ten."}]}, "At ten."),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a":1}'}]},
            '{"a":1}',
        ),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "At ten."}]}, "At ten."),
    ],
)
def test_all_that_a_body_holds_is_shown(body: dict[str, Any], shown: str) -> None:
    assert shown in log_of([body]).records[0].prompt.text
