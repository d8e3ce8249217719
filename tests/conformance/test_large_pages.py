"""Pages of two blocks: whole pages first, then a run inside one page, by copy; fuller pages take over."""

from anaphora.cache.page import PageCopy
from tests.conformance.story import CacheStory, numbers


def story(num_pages: int = 11, **options: object) -> CacheStory:
    """Return a cache of pages of 32 tokens with blocks of 16."""
    return CacheStory(num_pages, 16, 32, **options)  # type: ignore[arg-type]


def test_hits_are_counted_in_blocks_although_pages_are_larger() -> None:
    """Shared prefixes of 15 to 100 tokens hit whole blocks of 16, not pages of 32."""
    cache = story()
    cache.admit("A", numbers(0, 112))
    hits = [cache.hit([*numbers(0, shared), *numbers(900, 20)]) for shared in (15, 16, 17, 95, 96, 97, 100)]
    assert hits == [0, 16, 16, 80, 96, 96, 96]


def test_a_run_inside_a_page_is_copied_into_a_fresh_page() -> None:
    """48 shared tokens are page 1 and half of page 2, which is held until the commit."""
    cache = story()
    cache.admit("A", numbers(0, 60))
    admitted = cache.admit("B", numbers(0, 48) + numbers(500, 10))
    assert admitted and (admitted.hit, admitted.pages) == (48, [1, 3])
    assert cache.copies["B"] == PageCopy(2, 3, 16)  # type: ignore[arg-type]
    assert cache.refs(1, 2, 3) == [2, 1, 1]


def test_a_fuller_page_takes_over_the_digests_of_a_partial_one() -> None:
    """A holds block 2 alone on page 2; B holds blocks 2 and 3 on page 3 and becomes the home of both."""
    cache = story()
    cache.admit("A", numbers(0, 50))
    assert cache.indexed() == {1: [0, 1], 2: [0]}
    cache.admit("B", numbers(0, 70))
    assert cache.indexed() == {1: [0, 1], 3: [0, 1]}
    assert ("published", [3]) in cache.log.entries
    cache.free("A")
    # Page 2 answers for nothing any more, so it is the first to go.
    assert cache.order[0] == 2


def test_a_page_that_loses_its_last_digest_while_idle_moves_to_the_front() -> None:
    """A is freed before B takes over."""
    cache = story()
    cache.admit("A", numbers(0, 50))
    cache.free("A")
    assert cache.order == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]
    cache.admit("B", numbers(0, 70))
    assert cache.indexed() == {1: [0, 1], 3: [0, 1]}
    assert cache.order == [2, 5, 6, 7, 8, 9, 10]
    assert cache.usage == (3, 0, 7)


def test_a_page_that_is_as_full_takes_over_nothing() -> None:
    """Two continuations of one block: the block stays where it was first."""
    cache = story()
    cache.admit("A", numbers(0, 64))
    cache.admit("B", numbers(0, 48) + numbers(500, 16))
    assert cache.indexed() == {1: [0, 1], 2: [0, 1], 3: [1]}
    assert cache.hit(numbers(0, 48) + numbers(500, 17)) == 64
    cache.free("A")
    cache.free("B")
    assert cache.hit(numbers(0, 48) + numbers(500, 17)) == 64


def test_without_exact_copies_only_whole_pages_are_reused() -> None:
    """A runner that cannot copy part of a page."""
    cache = story(can_copy_part=False)
    cache.admit("A", numbers(0, 60))
    assert cache.hit(numbers(0, 60)) == 32


def test_a_run_is_given_up_when_its_source_is_one_page_too_many() -> None:
    """Four usable pages: B needs three, and holding the idle source would be the fifth."""
    cache = story(5)
    cache.admit("A", numbers(0, 50))
    cache.free("A")
    admitted = cache.admit("B", numbers(0, 48) + numbers(500, 80))
    assert admitted and (admitted.hit, len(admitted.pages)) == (32, 4)
    assert cache.copies["B"] is None


def test_giving_back_a_block_turns_a_whole_page_into_a_run() -> None:
    """65 tokens after 64 cached ones would leave one: block 3 is given back and half of page 2 copied."""
    cache = story(min_prefill_tokens=2)
    cache.admit("A", numbers(0, 64))
    assert cache.hit(numbers(0, 65)) == 48
    assert cache.hit(numbers(0, 66)) == 64


def test_a_decode_step_marks_only_what_it_wrote() -> None:
    """40 prompt tokens and 30 outputs: of four full blocks, exact reuse takes the first two."""
    cache = story(exact_reuse=True)
    cache.admit("A", numbers(0, 40))
    cache.decode("A", numbers(500, 30))
    everything = numbers(0, 40) + numbers(500, 30)
    assert cache.hit(everything) == 32
    assert sorted(cache.indexed()) == [1, 2]


def test_a_prefill_written_block_takes_over_from_a_decode_written_one() -> None:
    """Exact reuse: the history comes back as a prompt, is computed again, and is reusable from then on."""
    cache = story(exact_reuse=True)
    cache.admit("A", numbers(0, 40))
    cache.decode("A", numbers(500, 30))
    history = numbers(0, 40) + numbers(500, 30)
    cache.free("A")
    first = cache.admit("B", history)
    assert first and first.hit == 32
    cache.free("B")
    second = cache.admit("C", history)
    assert second and second.hit == 64
    assert not [entry for entry in cache.log.entries if entry[0] == "evicted"]


def test_a_decode_written_block_never_takes_over_from_a_prefill_written_one() -> None:
    """Exact reuse: B decodes what A prefilled on a partial page; the digest of block 2 stays with A."""
    cache = story(exact_reuse=True)
    cache.admit("A", numbers(0, 48))
    cache.admit("B", numbers(0, 40), skip_reading=True)
    cache.decode("B", numbers(40, 24))
    assert cache.indexed() == {1: [0, 1], 2: [0], 4: [1]}
    assert cache.hit(numbers(0, 48) + [7, 8]) == 48


def test_a_block_size_that_does_not_divide_the_page_is_refused() -> None:
    """The message names what is allowed."""
    import pytest

    from anaphora.errors import ConfigError

    with pytest.raises(
        ConfigError, match=r"--block-size is 12.*page of 32 tokens: one of 1, 2, 4, 8, 16, 32"
    ):
        CacheStory(5, 12, 32)
