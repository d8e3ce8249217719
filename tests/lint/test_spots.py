from typing import Any

import pytest

from anaphora.lint.spots import (
    move_to_end,
    sentence_around,
    spots_of,
    value_at,
    with_text_at_end,
    with_value,
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"prompt": "P"}, [("prompt", "prompt", "P")]),
        ({"prompt": [1, 2]}, []),
        (
            {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "U"}]},
            [("system[0].text", "system", "S"), ("messages[0].content", "user", "U")],
        ),
        ({"instructions": "I", "input": "U"}, [("instructions", "system", "I"), ("input", "user", "U")]),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "U"}]}]},
            [("input[0].content[0].text", "user", "U")],
        ),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "content": "R"}, {"type": "image"}]}
                ]
            },
            [("messages[0].content[0].content", "tool", "R")],
        ),
        ({"messages": "none", "system": 7}, []),
    ],
)
def test_the_texts_of_all_apis_are_found_and_can_be_replaced(
    source: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    spots = list(spots_of(source))
    assert [spot[:3] for spot in spots] == expected
    for spot in spots:
        made = with_value(source, spot.path, "new")
        assert value_at(made, spot.path) == "new" and value_at(source, spot.path) == spot.text


def test_a_path_that_leads_nowhere_holds_nothing() -> None:
    assert [value_at({"a": [1]}, path) for path in ("a[0]", "a[1]", "a.b", "b")] == [1, None, None, None]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("U", "U\n\nx"),
        ([{"type": "text", "text": "U"}], [{"type": "text", "text": "U\n\nx"}]),
        ([{"type": "image"}], [{"type": "image"}, {"type": "text", "text": "x"}]),
        (["U"], ["U\n\nx"]),
        ([], [{"type": "text", "text": "x"}]),
    ],
)
def test_a_text_is_put_behind_the_last_user_message(content: Any, expected: Any) -> None:
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "A"}]
    made = with_text_at_end({"messages": messages}, "x")
    assert made == {"messages": [{"role": "user", "content": expected}, messages[1]]}


def test_without_a_user_there_is_no_such_place() -> None:
    source = {"messages": [{"role": "system", "content": "a. b."}]}
    assert with_text_at_end(source, "x") is None
    assert move_to_end(source, "messages[0].content", ["a."]) is source


@pytest.mark.parametrize(
    ("text", "value", "sentence"),
    [
        ("One. It is 12:01 now. Two.", "12:01", "It is 12:01 now."),
        ("One.\n  It is 12:01\nTwo.", "12:01", "It is 12:01"),
        ("12:01", "12:01", "12:01"),
        ("v1.2.3 of 12:01, and on", "12:01", "v1.2.3 of 12:01, and on"),
        ("a " * 200 + "12:01", "12:01", "12:01"),
    ],
)
def test_a_value_moves_with_its_sentence(text: str, value: str, sentence: str) -> None:
    start = text.index(value)
    first, last = sentence_around(text, start, start + len(value))
    assert text[first:last] == sentence
