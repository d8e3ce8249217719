"""How deeply JSON may be nested."""

import json

import pytest

from anaphora.explain.bodies import canonical, difference_path
from anaphora.explain.structure_kinds import canonical_in_order
from anaphora.nesting import MAX_DEPTH, is_deeper, parse_json, parse_json_part


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_text_is_parsed_up_to_the_limit_and_not_a_level_deeper(opening: str, closing: str) -> None:
    """Both kinds of levels count."""
    deepest = opening * MAX_DEPTH + "1" + closing * MAX_DEPTH
    assert not is_deeper(parse_json(deepest))
    for text in (opening + deepest + closing, opening * 100_000):
        with pytest.raises(ValueError, match="it is nested deeper than 200 levels; use fewer"):
            parse_json(text)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_the_deepest_value_can_be_compared(opening: str, closing: str) -> None:
    """All that calls itself at each level has stack to spare."""
    old, new = (json.loads(f"{opening * MAX_DEPTH}{leaf}{closing * MAX_DEPTH}") for leaf in (1, 2))
    assert canonical(old) != canonical(new)
    assert canonical_in_order(old) != canonical_in_order(new)
    assert difference_path(old, new, "x") not in {None, "x"}


def test_text_that_is_no_json_is_a_value_error() -> None:
    """As from the parser itself."""
    with pytest.raises(ValueError, match="Expecting"):
        parse_json("{")


def test_a_value_within_a_text_says_where_it_ends() -> None:
    """What comes behind it is not looked at."""
    assert parse_json_part('[{"a": 1}, rubbish', 1) == ({"a": 1}, 9)
    for text in ("[" * 201 + "]" * 201, "[" * 100_000):
        with pytest.raises(ValueError, match="it is nested deeper than 200 levels; use fewer"):
            parse_json_part(text, 0)
