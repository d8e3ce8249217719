"""Lookup where pages remember which page was written behind them: the memory may be stale, the answer may not."""

from tests.conformance.story import CacheStory, numbers

COMMON, LEFT, RIGHT = numbers(0, 4), numbers(100, 4), numbers(200, 4)
END = [99]


def test_both_continuations_of_a_prefix_are_found_whichever_was_written_last() -> None:
    """Block 4; LEFT's page was behind COMMON's until RIGHT's took that place."""
    story = CacheStory(num_pages=8, block_size=4)
    story.admit("left", COMMON + LEFT)
    story.admit("right", COMMON + RIGHT)
    assert story.pages("left") == [1, 2]
    assert story.pages("right") == [1, 3]
    assert story.hit(COMMON + LEFT + END) == 8
    assert story.hit(COMMON + RIGHT + END) == 8


def test_a_page_that_was_given_away_is_not_taken_for_what_it_held() -> None:
    """Page 2 stood behind page 1 as LEFT, and holds another prompt's first block now."""
    story = CacheStory(num_pages=3, block_size=4)
    story.admit("first", COMMON + LEFT)
    story.free("first")
    story.admit("other", RIGHT)
    assert story.pages("other") == [2]
    assert story.hit(COMMON + LEFT + END) == 4
    assert story.hit(COMMON + RIGHT + END) == 4
    assert story.hit(RIGHT + END) == 4


def test_a_page_behind_that_lost_its_blocks_is_passed_over() -> None:
    """Page 2 stood behind page 1 and was taken, but nothing is published in it yet."""
    story = CacheStory(num_pages=3, block_size=4)
    story.admit("first", COMMON + LEFT)
    story.free("first")
    story.admit("short", RIGHT[:2])
    assert story.pages("short") == [2]
    assert story.hit(COMMON + LEFT + END) == 4


def test_large_pages_find_both_continuations_too() -> None:
    """Two blocks of 4 to a page: pages are told apart by their last block."""
    story = CacheStory(num_pages=8, block_size=4, page_size=8)
    common = numbers(0, 8)
    story.admit("left", common + numbers(100, 8))
    story.admit("right", common + numbers(200, 8))
    assert story.hit(common + numbers(100, 8) + END) == 16
    assert story.hit(common + numbers(200, 8) + END) == 16
