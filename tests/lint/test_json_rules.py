import json
from typing import Any

import pytest

from anaphora.lint.frozen import json_in
from anaphora.lint.json_rules import with_sorted_tools
from tests.lint.support import QUESTIONS, chat, found, lint_bodies, only, tool

TOOLS = [tool("tide"), tool("ferry"), tool("crane")]
CALL = {"to": "the islands", "day": 3}


def _asked(arguments: Any, question: str = QUESTIONS[0], **fields: Any) -> dict[str, Any]:
    body = chat(question, **fields)
    call = {"id": "c1", "type": "function", "function": {"name": "ferry", "arguments": arguments}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "At ten."},
    ]
    return body


def test_tools_in_two_orders_cost_the_whole_prompt() -> None:
    bodies = [chat(q, tools=TOOLS if i % 2 else TOOLS[::-1]) for i, q in enumerate(QUESTIONS)]
    finding = only(lint_bodies(bodies), "L2")
    assert (finding.severity, finding.suspect.code) == ("high", "tool_order")
    assert finding.tokens_lost > 100
    assert finding.suspect.evidence == "2 orders: 'crane, ferry, tide' against 'tide, ferry, crane'"


def test_one_order_that_is_not_by_name_is_low() -> None:
    finding = only(lint_bodies([chat(question, tools=TOOLS) for question in QUESTIONS]), "L2")
    assert (finding.severity, finding.tokens_lost) == ("low", 0)


def test_sorted_tools_are_fine() -> None:
    tools = sorted(TOOLS, key=lambda t: t["function"]["name"])
    assert not lint_bodies([chat(question, tools=tools) for question in QUESTIONS]).findings


def test_two_tools_of_one_name_are_found() -> None:
    tools = [tool("crane"), tool("crane", ship={"type": "string"})]
    assert "'crane'" in only(lint_bodies([chat("Hi.", tools=tools)]), "L2").suspect.evidence


def test_a_marker_keeps_its_place_when_tools_are_sorted() -> None:
    last = {**TOOLS[2], "cache_control": {"type": "ephemeral"}}
    made = with_sorted_tools({"tools": [*TOOLS[:2], last]})["tools"]
    assert [t["function"]["name"] for t in made] == ["crane", "ferry", "tide"]
    assert ["cache_control" in t for t in made] == [False, False, True]


def test_a_schema_in_two_orders_is_found() -> None:
    first = tool("crane", ship={"type": "string", "minLength": 1}, day={"type": "integer"})
    other = tool("crane", day={"type": "integer"}, ship={"minLength": 1, "type": "string"})
    bodies = [chat(q, tools=[other if i % 2 else first]) for i, q in enumerate(QUESTIONS)]
    finding = only(lint_bodies(bodies), "L3")
    assert finding.suspect.code == "json_order"
    assert finding.suspect.path == "tools[crane].function.parameters.properties"
    assert finding.suspect.indices == (1, 3)
    assert finding.severity == "high"


def test_another_schema_is_not_another_order() -> None:
    bodies = [
        chat(q, tools=[tool("crane", a={"type": kind})]) for q, kind in zip(QUESTIONS, "abcd", strict=True)
    ]
    assert not found(lint_bodies(bodies), "L3")


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (json.dumps(CALL, separators=(",", ":")), "json_format"),
        (json.dumps(dict(reversed(CALL.items()))), "json_order"),
    ],
)
def test_arguments_written_in_two_ways_are_found(other: str, code: str) -> None:
    bodies = [_asked(json.dumps(CALL)), _asked(other)]
    bodies[1]["messages"].append({"role": "assistant", "content": "At ten."})
    finding = only(lint_bodies(bodies), "L4")
    assert finding.suspect.code == code
    assert finding.suspect.path == "messages[2].tool_calls[0].function.arguments"
    assert finding.tokens_lost > 0


def test_two_calls_with_like_arguments_are_two_calls() -> None:
    bodies = [_asked(json.dumps(CALL)), _asked('{"day":3}')]
    assert not found(lint_bodies(bodies), "L4")


def test_escapes_inside_a_system_text_are_found() -> None:
    data = {"town": "Århus", "ships": ["one", "two"]}
    bodies = [
        chat(q, system=f"Facts: {json.dumps(data, ensure_ascii=bool(i % 2))} Be kind.")
        for i, q in enumerate(QUESTIONS)
    ]
    finding = only(lint_bodies(bodies), "L4")
    assert (finding.suspect.code, finding.suspect.path) == ("json_format", "messages[0].content")


def test_json_in_the_words_of_two_users_is_their_own() -> None:
    bodies = [
        chat(f"{q} [1, 2, 3, 4, {i}]".replace(", ", "," if i else ", ")) for i, q in enumerate(QUESTIONS)
    ]
    assert not found(lint_bodies(bodies), "L4")


def test_json_is_found_in_text_and_hostile_brackets_end() -> None:
    text = 'a {"b": [1, 2]} c [{"d": 1}, 2] {oops'
    assert [text[s.start : s.end] for s in json_in(text)] == ['{"b": [1, 2]}', '[{"d": 1}, 2]']
    assert json_in("[" * 100_000) == []
