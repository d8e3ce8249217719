"""The cases of the conformance table once more, on pages of two blocks: what changes when a page holds two digests.

Whole pages are shared, one more block is copied, and a fuller page takes over the digests of an emptier one.
"""

import pytest

from anaphora.cache.page import PageCopy
from anaphora.config import KVLayout
from anaphora.errors import NotEnoughMemoryError
from anaphora.ids import PageId, RequestId
from anaphora.request import SamplingParams
from tests.conformance.story import CacheStory, numbers
from tests.scheduler.story import SchedulerStory

COMMON = numbers(0, 48)


def story(num_pages: int = 11, **options: object) -> CacheStory:
    """Return a cache of pages of 32 tokens with blocks of 16."""
    return CacheStory(num_pages, 16, 32, **options)  # type: ignore[arg-type]


def copy(source: int, target: int, num_tokens: int) -> PageCopy:
    """Return a copy of leading tokens."""
    return PageCopy(PageId(source), PageId(target), num_tokens)


def test_cases_1_to_5_three_common_blocks_are_a_page_and_a_copy() -> None:
    """As on small pages 48 tokens are hit; the copy is the dead page that goes first."""
    cache = story()
    first = cache.admit("R0", COMMON + numbers(1000, 7))
    assert first and (first.hit, first.pages) == (0, [1, 2])
    assert cache.indexed() == {1: [0, 1], 2: [0]}
    second = cache.admit("R1", COMMON + numbers(2000, 5))
    assert second and (second.hit, second.pages) == (48, [1, 3])
    assert cache.copies["R1"] == copy(2, 3, 16)
    assert cache.refs(1, 2, 3) == [2, 1, 1]
    assert cache.manager.pool.num_free_pages == 7
    cache.free("R0")
    cache.free("R1")
    assert cache.order == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]
    third = cache.admit("R2", COMMON + numbers(3000, 6))
    assert third and (third.hit, third.pages) == (48, [1, 3])
    assert cache.manager.pool.num_free_pages == 8
    cache.free("R2")
    fourth = cache.admit("R3", numbers(5000, 320))
    assert fourth and (fourth.hit, fourth.pages) == (0, [3, 4, 5, 6, 7, 8, 9, 10, 2, 1])
    assert cache.hit([*COMMON, 1]) == 0


def test_cases_6_and_7_outputs_fill_the_second_block_of_a_page() -> None:
    """The page's first block is from a prefill, its second is not."""
    cache = story()
    cache.admit("R", numbers(0, 55))
    cache.decode("R", numbers(100, 4))
    assert (cache.pages("R"), cache.indexed()) == ([1, 2], {1: [0, 1], 2: [0]})
    cache.decode("R", numbers(200, 19))
    assert (cache.pages("R"), cache.indexed()) == ([1, 2, 3], {1: [0, 1], 2: [0, 1]})
    blocks = {block.slot: block for block in cache.manager.pool.index if block.page.page_id == 2}
    assert [blocks[slot].is_decode_written for slot in (0, 1)] == [False, True]


def test_cases_8_and_9_a_page_with_one_digest_of_two_is_cached_like_any_other() -> None:
    """A's third page holds one full block and seven tokens: it is not a dead page."""
    cache = story()
    cache.admit("A", numbers(0, 87))
    cache.admit("B", numbers(500, 48))
    assert cache.manager.pool.num_free_pages == 5
    cache.free("A")
    assert cache.order == [6, 7, 8, 9, 10, 3, 2, 1]
    cache.free("B")
    assert cache.order == [6, 7, 8, 9, 10, 3, 2, 1, 5, 4]
    third = cache.admit("C", numbers(0, 35))
    assert third and (third.hit, third.pages) == (32, [1, 6])
    assert cache.manager.pool.num_free_pages == 8


def test_case_10_a_reused_page_loses_its_digest() -> None:
    """One usable page."""
    cache = story(2)
    cache.admit("A", numbers(0, 16))
    cache.free("A")
    second = cache.admit("B", numbers(100, 15))
    assert second and second.pages == [1]
    assert cache.indexed() == {}


def test_case_11_a_hit_page_is_the_source_of_a_copy_and_then_has_nothing_left_to_answer_for() -> None:
    """Page 2 is evicted for the copy, holds both blocks after the step, and takes over the first."""
    cache = story(3)
    x, y = numbers(0, 16), numbers(100, 16)
    for name, tokens in (("X", x), ("Y", y)):
        cache.admit(name, tokens)
        cache.free(name)
    third = cache.admit("Z", x + numbers(200, 16))
    assert third and (third.hit, third.pages) == (16, [2])
    assert cache.copies["Z"] == copy(1, 2, 16)
    assert cache.indexed() == {2: [0, 1]}
    assert (cache.order, cache.usage) == ([1], (1, 0, 1))
    assert cache.hit([*y, 0]) == 0


def test_case_12_without_caching_pages_are_only_larger() -> None:
    """Four usable pages of eight tokens."""
    cache = CacheStory(5, 4, 8, caching=False)
    first = cache.admit("A", numbers(0, 10))
    assert first and len(first.pages) == 2
    cache.free("A")
    second = cache.admit("B", numbers(0, 32))
    assert second and (second.hit, len(second.pages)) == (0, 4)
    assert not cache.decode("B", [1])


@pytest.mark.parametrize(("num_tokens", "is_admitted"), [(256, True), (288, False)])
def test_case_27_a_refused_admission_changes_nothing(num_tokens: int, *, is_admitted: bool) -> None:
    """D hits three pages, two of them idle, and seven are free: eight pages in all fit, nine do not."""
    cache = story()
    cache.admit("A", numbers(0, 48))
    cache.admit("B", numbers(0, 96))
    # B's fuller page took over A's third block.
    assert cache.indexed() == {1: [0, 1], 3: [0, 1], 4: [0, 1]}
    cache.free("B")
    cache.admit("C", numbers(900, 32))
    before = (cache.order, cache.refs(1, 2, 3, 4))
    assert before == ([6, 7, 8, 9, 10, 4, 3], [1, 1, 0, 0])
    admitted = cache.admit("D", numbers(0, num_tokens))
    assert (admitted is not None) == is_admitted
    if not is_admitted:
        assert (cache.order, cache.refs(1, 2, 3, 4)) == before


@pytest.mark.parametrize(("num_tokens", "hit"), [(80, 48), (128, 48), (160, 32), (192, None)])
def test_case_28_the_copy_is_given_up_before_the_request_is(num_tokens: int, hit: int | None) -> None:
    """Five usable pages, two cached and idle: with 160 tokens there is no page left to hold the source."""
    cache = story(6)
    cache.admit("A", numbers(0, 48))
    cache.free("A")
    admitted = cache.admit("B", numbers(0, num_tokens))
    assert (admitted.hit if admitted else None) == hit


def test_cases_31_and_33_a_recomputed_block_is_not_indexed_again() -> None:
    """Both pages of the copy go first."""
    cache = story()
    tokens = numbers(0, 55)
    cache.admit("A", tokens)
    cache.free("A")
    assert cache.order == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]
    again = cache.admit("B", tokens, skip_reading=True)
    assert again and (again.hit, again.pages) == (0, [3, 4])
    assert cache.indexed() == {1: [0, 1], 2: [0]}
    cache.free("B")
    assert cache.order == [4, 3, 5, 6, 7, 8, 9, 10, 2, 1]


def test_case_47_an_evicted_page_takes_two_digests_with_it() -> None:
    """One removal for each page, of all that it answered for."""
    cache = story(4)
    cache.admit("A", numbers(0, 64))
    cache.free("A")
    cache.admit("B", numbers(100, 96))
    cache.free("B")
    cache.manager.reset()
    assert cache.log.entries == [
        ("published", [0, 1, 2, 3]),
        ("evicted", (2, 2)),
        ("evicted", (1, 2)),
        ("published", [0, 1, 2, 3, 4, 5]),
        ("cleared", None),
    ]


def test_case_53_a_context_that_the_pool_cannot_hold_is_refused_at_the_start() -> None:
    """512 tokens in 15 usable pages of 32."""
    with pytest.raises(
        NotEnoughMemoryError, match=r"needs 16 pages.*pool has 15.*lower --max-model-len to 480"
    ):
        SchedulerStory(KVLayout(16, 32, 16), max_model_len=512)


def test_case_56_the_ten_block_story() -> None:
    """Blocks of 4 on pages of 8: twelve shared tokens are a page and a copied block."""
    cache = CacheStory(11, 4, 8)
    shared = numbers(0, 10)
    cache.admit("R0", [*shared, *numbers(50, 5)])
    cache.decode("R0", [60, 61])
    assert cache.pages("R0") == [1, 2, 3]
    second = cache.admit("R1", [*shared, *numbers(70, 4)])
    assert second and (second.hit, second.pages) == (8, [1, 4])
    cache.free("R0")
    assert cache.order == [3, 5, 6, 7, 8, 9, 10, 2]
    cache.free("R1")
    assert cache.order == [3, 5, 6, 7, 8, 9, 10, 2, 4, 1]
    third = cache.admit("R2", [*shared, 50, 51, *numbers(80, 17)])
    assert third and (third.hit, third.pages) == (12, [1, 3, 5, 6])
    assert cache.copies["R2"] == copy(2, 3, 4)
    assert not [entry for entry in cache.log.entries if entry[0] == "evicted"]


def test_case_57_the_last_block_is_computed_again_on_a_copy_that_is_never_indexed() -> None:
    """The same 64-token prompt four times: page 3 is used three times, and page 2 keeps both digests."""
    cache = story()
    results = []
    for turn in range(4):
        admitted = cache.admit(f"R{turn}", numbers(0, 64))
        assert admitted
        results.append((admitted.hit, admitted.pages))
        cache.free(f"R{turn}")
        assert cache.order == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]
    assert results == [(0, [1, 2]), (48, [1, 3]), (48, [1, 3]), (48, [1, 3])]
    assert cache.indexed() == {1: [0, 1], 2: [0, 1]}


@pytest.mark.parametrize(("least", "hits"), [(1, (32, 48, 64)), (2, (32, 32, 48))])
def test_case_58_giving_back_a_block_may_split_a_page(least: int, hits: tuple[int, ...]) -> None:
    """48, 49 and 65 tokens of 64 that are cached."""
    cache = story(min_prefill_tokens=least)
    cache.admit("A", numbers(0, 64))
    assert tuple(cache.hit(numbers(0, length)) for length in (48, 49, 65)) == hits


def test_case_59_four_sequences_share_two_pages_and_copy_one() -> None:
    """50 tokens: after the first decode step five pages are used, the tails being 2, 3, 4 and 5."""
    names = ("A", "A1", "A2", "A3")
    scheduled = SchedulerStory(
        KVLayout(16, 32, 11), script={name: [number] for number, name in enumerate(names, 11)}
    )
    scheduled.add_n(4, "A", numbers(0, 50), SamplingParams(max_tokens=3, temperature=0.0))
    scheduled.step()
    assert [page.ref_count for page in scheduled.manager.table(RequestId("A")).pages] == [4, 4]
    assert scheduled.step().copies == (copy(2, 3, 18), copy(2, 4, 18), copy(2, 5, 18))
    held = {
        int(page.page_id): page.ref_count
        for name in names
        for page in scheduled.manager.table(RequestId(name)).pages
    }
    assert held == {1: 4, 2: 1, 3: 1, 4: 1, 5: 1}


@pytest.mark.parametrize(("exact", "hit", "copied"), [(False, 48, 16), (True, 32, 0)])
def test_case_60_a_resume_takes_a_page_and_a_copy(*, exact: bool, hit: int, copied: int) -> None:
    """40 prompt tokens and 9 outputs, of which 48 tokens were written before the preemption."""
    cache = story(exact_reuse=exact)
    cache.admit("R", numbers(0, 40))
    cache.decode("R", numbers(500, 8))
    request_id = RequestId("R")
    cache.manager.release(request_id)
    chain, num_prefill = cache.manager.table(request_id).chain, 40 if exact else 49
    lookup = cache.manager.lookup(chain, 49, num_prefill)
    assert (lookup.cached_tokens, lookup.num_run_tokens) == (hit, copied)


def test_case_61_chunks_publish_at_their_commits() -> None:
    """Chunks that end at 30, 64 and 100 tokens take 1, 2 and 4 pages and publish 1, 4 and 6 blocks."""
    cache, request_id, tokens = story(), RequestId("R"), numbers(0, 100)
    chain = cache.chain(tokens)
    cache.manager.open(request_id, chain)
    assert cache.manager.admit(request_id, cache.manager.lookup(chain, 100, 100), 30, 100)
    counts = []
    for end in (30, 64, 100):
        assert cache.manager.grow(request_id, end) is not None
        cache.manager.commit(request_id, tokens, end, is_decode=False)
        counts.append((len(cache.pages("R")), len(cache.manager.pool.index)))
    assert counts == [(1, 1), (2, 4), (4, 6)]


@pytest.mark.parametrize(
    ("num_prompt", "num_outputs", "cached"), [(48, 16, 3), (48, 17, 4), (55, 9, 3), (55, 10, 4)]
)
def test_case_62_a_page_with_a_decode_written_end_lends_its_prefilled_beginning(
    num_prompt: int, num_outputs: int, cached: int
) -> None:
    """As many blocks are cached as on small pages, and exact reuse takes three of them in every case."""
    for exact, expected in ((False, cached), (True, 3)):
        cache = story(exact_reuse=exact)
        cache.admit("R", numbers(0, num_prompt))
        cache.decode("R", numbers(1000, num_outputs - 1))
        cache.free("R")
        everything = numbers(0, num_prompt) + numbers(1000, num_outputs - 1)
        assert len(cache.manager.pool.index) == cached
        assert cache.hit([*everything, 7, 8]) == expected * 16


def test_case_64_cached_pages_are_free_pages() -> None:
    """64 tokens are two pages."""
    cache = story()
    cache.admit("A", numbers(0, 64))
    assert cache.usage == (2, 0, 8)
    cache.free("A")
    assert cache.usage == (0, 2, 8)
