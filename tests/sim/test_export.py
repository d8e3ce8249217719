"""What is written can be read, and means the same."""

import json

import pytest

from anaphora.sim.export import FORMS, Form, public_lines
from anaphora.sim.trace import Trace, ceiling
from anaphora.sim.trace_lines import PublicReader, entries
from tests.sim.traces import engine_trace, public_trace


def read(lines: list[str]) -> Trace:
    reader = PublicReader(4)
    for where, entry in entries(lines):
        reader.add(where, entry)
    return reader.trace(None)


@pytest.mark.parametrize("form", FORMS)
def test_a_public_trace_comes_back_as_it_was(form: Form) -> None:
    trace = public_trace([[0, 1], [0, 1, 2], [3]], tails=[4, 1, 2])
    again = read(list(public_lines(trace, form)))
    assert again.requests == trace.requests
    assert again.format == {"mooncake": "Mooncake", "bailian": "Qwen-Bailian"}[form]


def test_a_tail_without_a_number_gets_one_of_its_own() -> None:
    trace = engine_trace([(10, [0, 1]), (10, [0, 1]), (8, [0, 1])], block_size=4, page_size=8)
    again = read(list(public_lines(trace, "mooncake")))
    assert [request.block_ids for request in again.requests] == [(0, 1, 2), (0, 1, 3), (0, 1)]
    assert ceiling(again) == [0, 8, 8]


def test_the_fields_are_those_of_the_form() -> None:
    (line,) = public_lines(public_trace([[0]]), "bailian")
    assert json.loads(line) == {
        "chat_id": 0,
        "parent_chat_id": -1,
        "timestamp": 0.0,
        "input_length": 4,
        "output_length": 2,
        "type": "text",
        "turn": 1,
        "hash_ids": [0],
    }
