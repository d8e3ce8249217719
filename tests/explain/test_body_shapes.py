from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.explain.bodies import read_body

TALK = [{"role": "user", "content": "Hi."}]


def _called(call: Any) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": None, "tool_calls": call}]}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": TALK, "model": {}}, "model"),
        ({"messages": TALK, "cache_salt": 7}, "cache_salt"),
        ({"messages": TALK, "chat_template_kwargs": 7}, "chat_template_kwargs"),
        ({"prompt": [5, 2**40]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"messages": [{"role": 3}]}, "messages[0].role"),
        ({"messages": TALK, "tools": [{"function": 3}]}, "tools[0].function"),
        ({"messages": TALK, "tools": [{"name": []}]}, "tools[0].name"),
        (_called("x"), "messages[0].tool_calls"),
        (_called([7]), "messages[0].tool_calls[0]"),
        (_called([{}]), "messages[0].tool_calls[0].function"),
        (_called([{"function": {}}]), "messages[0].tool_calls[0].function.name"),
        (
            _called([{"function": {"name": "f", "arguments": 1}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_a_field_of_another_shape_is_named(body: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"must be|a token id is") as caught:
        read_body(body)
    assert caught.value.param == path


def test_fields_that_are_not_given_need_no_shape() -> None:
    assert read_body({"messages": TALK, "model": None, "tools": [{}], "cache_salt": None}).messages
