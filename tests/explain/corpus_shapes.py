"""Cases in the bodies of other APIs: faults and places as they stand in what was sent."""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.explain.corpus_templates import TOOLS_FIRST
from tests.explain.corpus_words import Body, Case, prose, question, system_text, tools

_SCHEMAS = {"anthropic": "input_schema", "responses": "parameters"}


def shape_cases(seed: int) -> Iterator[Case]:
    """For each API: a clock in an old result, other bytes of a call, tools in another order, edited or rewritten."""
    for shape in ("anthropic", "responses"):
        for number in range(15):
            rng = random.Random(f"{shape}-{seed}-{number}")
            kind, change, path = _FAULTS[number % len(_FAULTS)]
            given = tools(rng, 4, 6)
            parts: Body = {
                "system": system_text(rng),
                "tools": [tool["function"] for tool in given],
                "arguments": {"path": "a.py", "limit": rng.randint(3, 9)},
                "result": f"It is 14:{rng.randint(10, 29)} now. {prose(rng, 2)}",
                "reply": prose(rng, 2),
                "questions": [question(rng), question(rng)],
            }
            other = json.loads(json.dumps(parts))
            change(other)
            make = {"anthropic": _anthropic, "responses": _responses}[shape]
            yield Case(kind, make(other), [make(parts)], path[shape], TOOLS_FIRST, shape)


def _retime(parts: Body) -> None:
    parts["result"] = parts["result"].replace("It is 14:", "It is 15:")


def _reorder_arguments(parts: Body) -> None:
    parts["arguments"] = dict(reversed(parts["arguments"].items()))


def _reorder_tools(parts: Body) -> None:
    parts["tools"].reverse()


def _edit_tool(parts: Body) -> None:
    parts["tools"][1]["parameters"]["properties"]["depth"] = {"type": "integer"}


def _rewrite_tool(parts: Body) -> None:
    schema = parts["tools"][1]["parameters"]
    parts["tools"][1]["parameters"] = dict(reversed(schema.items()))


_FAULTS: list[tuple[str, Callable[[Body], None], dict[str, str]]] = [
    (
        "volatile_value",
        _retime,
        {"anthropic": "messages[2].content[0].content", "responses": "input[2].output"},
    ),
    (
        "json_order",
        _reorder_arguments,
        {"anthropic": "messages[1].content[1].input", "responses": "input[1].arguments"},
    ),
    ("tool_order", _reorder_tools, {"anthropic": "tools[0]", "responses": "tools[0]"}),
    (
        "tool_set",
        _edit_tool,
        {"anthropic": "tools[1].input_schema.properties", "responses": "tools[1].parameters.properties"},
    ),
    (
        "json_order",
        _rewrite_tool,
        {"anthropic": "tools[1].input_schema", "responses": "tools[1].parameters"},
    ),
]


def _tools(shape: str, given: list[Body]) -> list[Body]:
    kind: Body = {"type": "function"} if shape == "responses" else {}
    return [
        {**kind, **{_SCHEMAS[shape] if name == "parameters" else name: value for name, value in tool.items()}}
        for tool in given
    ]


def _anthropic(parts: dict[str, Any]) -> Body:
    call = {"type": "tool_use", "id": "c1", "name": parts["tools"][0]["name"], "input": parts["arguments"]}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": parts["result"]}
    return {
        "model": "m",
        "system": parts["system"],
        "tools": _tools("anthropic", parts["tools"]),
        "messages": [
            {"role": "user", "content": parts["questions"][0]},
            {"role": "assistant", "content": [{"type": "text", "text": "I will look."}, call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": parts["reply"]},
            {"role": "user", "content": parts["questions"][1]},
        ],
    }


def _responses(parts: dict[str, Any]) -> Body:
    arguments = json.dumps(parts["arguments"])
    return {
        "model": "m",
        "instructions": parts["system"],
        "tools": _tools("responses", parts["tools"]),
        "input": [
            {"role": "user", "content": parts["questions"][0]},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": parts["tools"][0]["name"],
                "arguments": arguments,
            },
            {"type": "function_call_output", "call_id": "c1", "output": parts["result"]},
            {"role": "assistant", "content": [{"type": "output_text", "text": parts["reply"]}]},
            {"role": "user", "content": [{"type": "input_text", "text": parts["questions"][1]}]},
        ],
    }
