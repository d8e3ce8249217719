"""The four classes, and what has no class."""

import pytest

from anaphora.cost.usage import CLASSES, TokenSplit, Usage


def test_splits_add_up_part_by_part() -> None:
    one = TokenSplit(fresh=1, read=2, write_short=3, write_long=4, fresh_or_written=5, short_or_long=6)
    both = one + one
    assert both == TokenSplit(
        fresh=2, read=4, write_short=6, write_long=8, fresh_or_written=10, short_or_long=12
    )
    assert (one.total, both.total) == (21, 42)


def test_a_class_that_may_have_more_is_not_exact() -> None:
    assert [TokenSplit(fresh=1, fresh_or_written=1).exact(name) for name in CLASSES] == [None, 0, None, 0]
    assert [TokenSplit(fresh=1, short_or_long=1).exact(name) for name in CLASSES] == [1, 0, None, None]
    assert [TokenSplit(fresh=1).exact(name) for name in CLASSES] == [1, 0, 0, 0]


def test_a_usage_has_a_split_or_a_reason() -> None:
    with pytest.raises(AssertionError, match="a split or a reason"):
        Usage(provider="openai")
