"""Reuse of part of a block, by copying the leading tokens of the page that begins most alike."""

import pytest

from anaphora.cache.page import PageCopy
from anaphora.config import CacheConfig, KVLayout
from anaphora.errors import ConfigError
from anaphora.request import SamplingParams
from tests.conformance.story import CacheStory, numbers
from tests.scheduler.story import SchedulerStory


@pytest.mark.parametrize(("least", "hit"), [(0, 32), (1, 42), (10, 42), (11, 32)])
def test_leading_tokens_of_a_block_are_reused_from_so_many_on(least: int, hit: int) -> None:
    """42 shared tokens are two blocks of 16 and ten tokens of a third."""
    story = CacheStory(11, partial_block_reuse=least)
    story.admit("A", numbers(0, 48))
    assert story.hit([*numbers(0, 42), *numbers(900, 20)]) == hit


def test_the_tokens_are_copied_and_the_new_block_is_another() -> None:
    """Block 2 of B begins like A's and is indexed under its own digest."""
    story = CacheStory(11, partial_block_reuse=1)
    story.admit("A", numbers(0, 48))
    admitted = story.admit("B", [*numbers(0, 42), *numbers(900, 20)])
    assert admitted and (admitted.hit, admitted.pages) == (42, [1, 2, 4, 5])
    assert story.copies["B"] == PageCopy(3, 4, 10)  # type: ignore[arg-type]
    assert story.indexed() == {1: [0], 2: [0], 3: [0], 4: [0]}


def test_the_best_of_many_siblings_is_found() -> None:
    """Five continuations of one block; the query shares 3 tokens with one and 9 with another."""
    story = CacheStory(40, partial_block_reuse=1)
    for name, (shared, other) in enumerate([(0, 500), (3, 600), (9, 700), (7, 800), (1, 900)]):
        story.admit(f"R{name}", [*numbers(0, 16 + shared), *numbers(other, 16 - shared)])
    assert story.hit([*numbers(0, 16 + 12), *numbers(2000, 30)]) == 16 + 9


def test_two_tokens_are_left_where_one_would_be_computed_by_another_kernel() -> None:
    """48 of 48 tokens are cached; 46 may be reused."""
    story = CacheStory(11, partial_block_reuse=1, min_prefill_tokens=2)
    story.admit("A", numbers(0, 48))
    assert story.hit(numbers(0, 48)) == 46


def test_with_larger_pages_one_copy_brings_blocks_and_tokens() -> None:
    """Pages of two blocks: 42 shared tokens are one page and ten tokens of the next."""
    story = CacheStory(11, 16, 32, partial_block_reuse=1)
    story.admit("A", numbers(0, 80))
    admitted = story.admit("B", [*numbers(0, 52), *numbers(900, 20)])
    assert admitted and admitted.hit == 52
    assert story.copies["B"] == PageCopy(2, 4, 20)  # type: ignore[arg-type]


def test_another_salt_has_no_siblings() -> None:
    """Part of a block is as private as the whole."""
    story = CacheStory(11, partial_block_reuse=1)
    story.admit("A", numbers(0, 10) + numbers(100, 6), "one")
    assert [story.hit([*numbers(0, 10), *numbers(500, 9)], salt) for salt in ("one", "two", None)] == [
        10,
        0,
        0,
    ]


def test_exact_reuse_lends_nothing_that_a_decode_step_wrote() -> None:
    """A's third block holds eight prompt tokens and eight outputs."""
    for exact, hit in ((False, 44), (True, 32)):
        story = CacheStory(11, partial_block_reuse=1, exact_reuse=exact)
        story.admit("A", numbers(0, 40))
        story.decode("A", numbers(40, 8))
        assert story.hit([*numbers(0, 44), *numbers(900, 9)]) == hit


def test_an_evicted_page_lends_nothing() -> None:
    """Its tokens are gone."""
    story = CacheStory(4, partial_block_reuse=1)
    story.admit("A", numbers(0, 32))
    story.free("A")
    story.admit("B", numbers(500, 48))
    story.free("B")
    assert story.hit([*numbers(0, 10), *numbers(900, 9)]) == 0


def test_the_books_of_a_partly_reused_block_add_up() -> None:
    """42 cached and 6 written of 48: the rest of the block alone is new."""
    story = SchedulerStory(KVLayout(16, 16, 21), partial_block_reuse=1)
    story.add("A", numbers(0, 48), SamplingParams(max_tokens=1))
    story.run()
    request = story.add("B", [*numbers(0, 42), *numbers(900, 6)], SamplingParams(max_tokens=1))
    story.run()
    assert (request.num_cached_tokens, request.num_cache_write_tokens) == (42, 6)


def test_what_rounding_costs_is_told_when_it_is_off() -> None:
    """Ten tokens at the admission of B; none when they are reused."""
    for least, rounded in ((0, 10), (1, 0)):
        story = CacheStory(11, partial_block_reuse=least)
        story.admit("A", numbers(0, 48))
        tokens = [*numbers(0, 42), *numbers(900, 20)]
        lookup = story.manager.lookup(story.chain(tokens), len(tokens), len(tokens))
        assert lookup.num_rounded_tokens == rounded


def test_a_runner_that_cannot_copy_part_of_a_page_is_refused() -> None:
    """And so is a number that no block has."""
    with pytest.raises(ConfigError, match="cannot copy part of a page"):
        CacheStory(11, partial_block_reuse=1, can_copy_part=False)
    with pytest.raises(ConfigError, match=r"--partial-block-reuse is 16, but must be 0 .* or from 1 to 15"):
        CacheConfig(partial_block_reuse=16)
