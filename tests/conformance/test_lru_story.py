"""Cases 1 to 12, 20, 27 to 33, 47, 56 to 58 and 61 to 64 of the conformance table: one cache, exact pages and order."""

import pytest

from tests.conformance.story import CacheStory, numbers

COMMON = numbers(0, 48)


def test_case_1_a_prompt_publishes_its_full_blocks_and_no_more() -> None:
    """48 + 7 tokens on ten usable pages take pages 1 to 4, and page 4 has no digest."""
    story = CacheStory(11)
    admitted = story.admit("R0", COMMON + numbers(1000, 7))
    assert admitted and (admitted.hit, admitted.pages) == (0, [1, 2, 3, 4])
    assert story.indexed() == {1: [0], 2: [0], 3: [0]}
    assert story.refs(1, 2, 3, 4) == [1, 1, 1, 1]


def test_cases_2_to_5_sharing_freeing_partial_first_and_eviction() -> None:
    """The prompts of vLLM's own test, step by step."""
    story = CacheStory(11)
    story.admit("R0", COMMON + numbers(1000, 7))
    second = story.admit("R1", COMMON + numbers(2000, 5))
    assert second and (second.hit, second.pages) == (48, [1, 2, 3, 5])
    assert story.refs(1, 2, 3) == [2, 2, 2]
    assert story.manager.pool.num_free_pages == 5
    story.free("R0")
    story.free("R1")
    assert story.order == [5, 4, 6, 7, 8, 9, 10, 3, 2, 1]
    third = story.admit("R2", COMMON + numbers(3000, 6))
    assert third and (third.hit, third.pages) == (48, [1, 2, 3, 5])
    assert story.manager.pool.num_free_pages == 6
    story.free("R2")
    fourth = story.admit("R3", numbers(5000, 160))
    assert fourth and (fourth.hit, fourth.pages) == (0, [5, 4, 6, 7, 8, 9, 10, 3, 2, 1])
    assert story.manager.pool.num_free_pages == 0
    assert story.hit(COMMON + [1]) == 0


def test_cases_6_and_7_outputs_complete_blocks() -> None:
    """55 tokens and 4 outputs change nothing; 19 more complete block 3 and open page 5."""
    story = CacheStory(11)
    story.admit("R", numbers(0, 55))
    assert story.decode("R", numbers(100, 4))
    assert (story.pages("R"), story.indexed()) == ([1, 2, 3, 4], {1: [0], 2: [0], 3: [0]})
    assert story.decode("R", numbers(200, 19))
    assert story.pages("R") == [1, 2, 3, 4, 5]
    assert story.indexed() == {1: [0], 2: [0], 3: [0], 4: [0]}
    block = next(block for block in story.manager.pool.index if block.page.page_id == 4)
    assert block.is_decode_written


def test_cases_8_and_9_free_order_is_partial_first_then_deepest_first() -> None:
    """Two requests are freed one after another, and a prefix of the first comes back."""
    story = CacheStory(11)
    story.admit("A", numbers(0, 87))
    story.admit("B", numbers(500, 48))
    assert story.manager.pool.num_free_pages == 1
    story.free("A")
    assert story.order == [6, 10, 5, 4, 3, 2, 1]
    story.free("B")
    assert story.order == [6, 10, 5, 4, 3, 2, 1, 9, 8, 7]
    third = story.admit("C", numbers(0, 35))
    assert third and (third.hit, third.pages) == (32, [1, 2, 6])
    assert story.manager.pool.num_free_pages == 7


def test_case_10_a_reused_page_loses_its_digest() -> None:
    """One usable page holds 16 cached tokens and is taken for 15 others."""
    story = CacheStory(2)
    story.admit("A", numbers(0, 16))
    story.free("A")
    assert story.indexed() == {1: [0]}
    second = story.admit("B", numbers(100, 15))
    assert second and second.pages == [1]
    assert story.indexed() == {}


def test_case_11_a_hit_page_is_not_evicted_by_the_request_that_hit_it() -> None:
    """With two pages, a hit on page 1 evicts page 2."""
    story = CacheStory(3)
    x, y = numbers(0, 16), numbers(100, 16)
    story.admit("X", x)
    story.admit("Y", y)
    story.free("X")
    story.free("Y")
    third = story.admit("Z", x + numbers(200, 16))
    assert third and (third.hit, third.pages) == (16, [1, 2])
    assert story.hit([*y, 0]) == 0


def test_case_12_without_caching_nothing_is_hit_and_pages_are_reused() -> None:
    """Four usable pages of four tokens."""
    story = CacheStory(5, 4, caching=False)
    first = story.admit("A", numbers(0, 10))
    assert first and len(first.pages) == 3
    story.free("A")
    second = story.admit("B", numbers(0, 16))
    assert second and (second.hit, len(second.pages)) == (0, 4)
    assert not story.decode("B", [1])


def test_case_27_a_refused_admission_changes_nothing() -> None:
    """D needs nine pages, six of them hits of which three are idle, and five are free."""
    story = CacheStory(11)
    story.admit("A", numbers(0, 48))
    story.admit("B", numbers(0, 96))
    story.free("B")
    story.admit("C", numbers(900, 32))
    before = (story.order, story.refs(1, 2, 3))
    assert story.admit("D", numbers(0, 144)) is None
    assert (story.order, story.refs(1, 2, 3)) == before
    assert story.refs(1, 2, 3, 4, 5, 6) == [1, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(("num_tokens", "is_admitted"), [(80, True), (96, False)])
def test_case_28_idle_hits_count_towards_the_need(num_tokens: int, *, is_admitted: bool) -> None:
    """Five usable pages, three of them cached and idle."""
    story = CacheStory(6)
    story.admit("A", numbers(0, 48))
    story.free("A")
    assert (story.admit("B", numbers(0, num_tokens)) is not None) == is_admitted


def test_case_29_reset_is_refused_while_pages_are_held() -> None:
    """The index survives a refused reset and is empty after a granted one."""
    story = CacheStory(11)
    story.admit("A", numbers(0, 48))
    assert not story.manager.reset()
    assert story.indexed() == {1: [0], 2: [0], 3: [0]}
    story.free("A")
    assert story.manager.reset()
    assert story.indexed() == {}
    assert story.usage == (0, 0, 10)
    story.manager.check_invariants()


def test_cases_31_and_33_a_recomputed_block_is_not_indexed_again() -> None:
    """A read-skipping request writes duplicates; they go first when freed, and the old pages keep the digests."""
    story = CacheStory(11)
    tokens = numbers(0, 55)
    story.admit("A", tokens)
    story.free("A")
    # A's partial page 4 was freed to the front.
    again = story.admit("B", tokens, skip_reading=True)
    assert again and (again.hit, again.pages) == (0, [4, 5, 6, 7])
    assert story.indexed() == {1: [0], 2: [0], 3: [0]}
    story.free("B")
    assert story.order == [7, 6, 5, 4, 8, 9, 10, 3, 2, 1]


def test_case_47_events_come_in_the_order_of_what_happened() -> None:
    """One publication per commit, one removal per page, and the clearing last."""
    story = CacheStory(4)
    story.admit("A", numbers(0, 32))
    story.free("A")
    story.admit("B", numbers(100, 48))
    story.free("B")
    story.manager.reset()
    assert story.log.entries == [
        ("published", [0, 1]),
        ("evicted", (2, 1)),
        ("evicted", (1, 1)),
        ("published", [0, 1, 2]),
        ("cleared", None),
    ]


def test_case_56_the_ten_block_story() -> None:
    """The example of vLLM's design page, with today's free order."""
    story = CacheStory(11, 4)
    shared = numbers(0, 10)
    story.admit("R0", [*shared, *numbers(50, 5)])
    story.decode("R0", [60, 61])
    assert story.pages("R0") == [1, 2, 3, 4, 5]
    second = story.admit("R1", [*shared, *numbers(70, 4)])
    assert second and (second.hit, second.pages) == (8, [1, 2, 6, 7])
    story.free("R0")
    assert story.order == [5, 8, 9, 10, 4, 3]
    story.free("R1")
    assert story.order == [7, 5, 8, 9, 10, 4, 3, 6, 2, 1]
    third = story.admit("R2", [*shared, 50, 51, *numbers(80, 17)])
    assert third and (third.hit, third.pages) == (12, [1, 2, 3, 7, 5, 8, 9, 10])
    assert not [entry for entry in story.log.entries if entry[0] == "evicted"]


def test_case_57_a_block_aligned_prompt_computes_its_last_block_again_and_keeps_one_copy() -> None:
    """The same 64-token prompt four times."""
    story = CacheStory(11)
    results = []
    for turn in range(4):
        admitted = story.admit(f"R{turn}", numbers(0, 64))
        assert admitted
        results.append((admitted.hit, admitted.pages[3]))
        story.free(f"R{turn}")
        assert story.order == [5, 6, 7, 8, 9, 10, 4, 3, 2, 1]
    assert results == [(0, 4), (48, 5), (48, 5), (48, 5)]
    assert story.indexed() == {1: [0], 2: [0], 3: [0], 4: [0]}


@pytest.mark.parametrize(("least", "hits"), [(1, (32, 48)), (2, (32, 32))])
def test_case_58_a_block_is_given_back_when_too_short_a_prefill_would_remain(
    least: int, hits: tuple[int, int]
) -> None:
    """48 cached tokens, asked for with 48 and with 49."""
    story = CacheStory(11, min_prefill_tokens=least)
    story.admit("A", numbers(0, 48))
    assert (story.hit(numbers(0, 48)), story.hit(numbers(0, 49))) == hits


def test_case_61_chunks_publish_at_their_commits() -> None:
    """Chunks that end at 30, 64 and 100 tokens publish 1, 4 and 6 blocks."""
    story = CacheStory(11)
    tokens = numbers(0, 100)
    story.manager.open("R", story.chain(tokens))  # type: ignore[arg-type]
    lookup = story.manager.lookup(story.chain(tokens), 100, 100)
    counts = []
    assert story.manager.admit("R", lookup, 30, 100)  # type: ignore[arg-type]
    for end in (30, 64, 100):
        assert story.manager.grow("R", end) is not None  # type: ignore[arg-type]
        before = len(story.pages("R"))
        story.manager.commit("R", tokens, end, is_decode=False)  # type: ignore[arg-type]
        counts.append((before, len(story.indexed())))
    assert counts == [(2, 1), (4, 4), (7, 6)]


@pytest.mark.parametrize(
    ("num_prompt", "num_outputs", "cached", "reusable"),
    [(48, 16, 3, 3), (48, 17, 4, 3), (55, 9, 3, 3), (55, 10, 4, 3)],
)
def test_case_62_the_last_sampled_token_is_never_written(
    num_prompt: int, num_outputs: int, cached: int, reusable: int
) -> None:
    """P prompt and O output tokens cache floor((P + O - 1) / 16) blocks, of which exact reuse takes the prefilled."""
    for exact, expected in ((False, cached), (True, reusable)):
        story = CacheStory(11, exact_reuse=exact)
        story.admit("R", numbers(0, num_prompt))
        story.decode("R", numbers(1000, num_outputs - 1))
        story.free("R")
        everything = numbers(0, num_prompt) + numbers(1000, num_outputs - 1)
        assert len(story.indexed()) == cached
        assert story.hit([*everything, 7, 8]) == expected * 16


def test_case_63_a_prompt_shorter_than_a_block_is_never_cached() -> None:
    """15 tokens twice."""
    story = CacheStory(11)
    story.admit("A", numbers(0, 15))
    story.free("A")
    assert story.hit(numbers(0, 15)) == 0
    assert story.indexed() == {}


def test_case_64_cached_pages_are_free_pages() -> None:
    """Four pages held, then all freed but cached."""
    story = CacheStory(11)
    story.admit("A", numbers(0, 64))
    assert story.usage == (4, 0, 6)
    story.free("A")
    assert story.usage == (0, 4, 6)


def test_salts_part_the_cache() -> None:
    """Case 20: the same text under another salt is a miss, under the same salt a hit."""
    story = CacheStory(11)
    tokens = numbers(0, 59)
    story.admit("A", tokens, "salt1")
    story.free("A")
    assert [story.hit(tokens, salt) for salt in ("salt1", "salt2", None)] == [48, 0, 0]
