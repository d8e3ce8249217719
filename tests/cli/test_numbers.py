"""Numbers as people write them."""

import argparse

import pytest

from anaphora.cli.numbers import count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("4G", 2**32),
        ("1.5k", 1500),
        ("9007199254740993", 9_007_199_254_740_993),
    ],
)
def test_a_number_is_exactly_what_was_written(text: str, value: int) -> None:
    """Also where a float would round: a seed must be the one that was given."""
    assert count(text) == value


@pytest.mark.parametrize("text", ["-1", "1.5", "1e3", "nan", "", "8kb"])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    """With the value."""
    with pytest.raises(argparse.ArgumentTypeError, match=text or "''"):
        count(text)
