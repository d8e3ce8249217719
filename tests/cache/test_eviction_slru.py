"""Segmented LRU, on ten usable pages: at most two of them are protected."""

from tests.conformance.story import CacheStory, numbers


def send(story: CacheStory, *starts: int, pages: int = 1) -> None:
    """Let a prompt of so many full pages and one token come and go, for each start."""
    for start in starts:
        story.admit("R", [*numbers(start, 4 * pages), 999])
        story.free("R")


def test_a_page_that_was_hit_outlives_pages_that_were_not() -> None:
    """Page 1 is hit; pages 2 and 3 come later and still go first."""
    story = CacheStory(11, 4, policy="slru")
    send(story, 0, 0, 100, 200)
    assert story.order[-3:] == [2, 3, 1]


def test_a_burst_of_new_prompts_passes_the_protected_pages_by() -> None:
    """Twenty prompts on ten pages; the one that was hit before them is still there."""
    story = CacheStory(11, 4, policy="slru")
    send(story, 0, 0, *range(100, 2100, 100))
    assert story.hit([*numbers(0, 4), 1]) == 4
    assert story.order[-1] == 1


def test_what_overflows_goes_to_the_recent_end_of_probation_and_must_be_hit_again() -> None:
    """Prompts on pages 1, 2, 3 are hit in turn: the third pushes the first out, behind page 4, which was never hit."""
    story = CacheStory(11, 4, policy="slru")
    send(story, 0, 100, 200, 300)
    send(story, 0, 100, 200)
    assert story.order[-4:] == [4, 1, 2, 3]
    # It counts as never hit now; its next hit brings it back, and page 2 has to leave.
    send(story, 0)
    assert story.order[-4:] == [4, 2, 3, 1]


def test_a_demoted_page_that_returns_unhit_stays_on_probation() -> None:
    """Page 1 is pushed out by pages 2 and 3; a pin takes it away and gives it back, and that is no hit."""
    story = CacheStory(11, 4, policy="slru", max_pinned_pages=1)
    send(story, 0, 100, 200)
    send(story, 0, 100, 200)
    assert story.pin(numbers(0, 4), until=1.0) == 4
    send(story, 300)
    story.lapse(1.0)
    assert story.order[-4:] == [4, 1, 2, 3]


def test_a_protected_chain_that_overflows_loses_its_end() -> None:
    """Four pages are hit, two stay protected: the first two of the chain."""
    story = CacheStory(11, 4, policy="slru")
    send(story, 0, 0, pages=4)
    send(story, 500)
    assert story.order[-5:] == [4, 3, 5, 2, 1]


def test_new_content_begins_without_hits() -> None:
    """Page 1 is protected, until a prompt takes all ten pages and writes it anew: that was no hit."""
    story = CacheStory(11, 4, policy="slru")
    send(story, 0, 0)
    assert story.manager.pool._pages[0].num_hits == 1
    story.admit("L", numbers(500, 40))
    story.free("L")
    assert all(page.num_hits == 0 for page in story.manager.pool._pages)
    assert story.order == [1, 10, 9, 8, 7, 6, 5, 4, 3, 2]
