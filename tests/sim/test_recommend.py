"""What to set, from curves made for the purpose."""

from anaphora.sim.order import Hits, Point
from anaphora.sim.recommend import Recommendation, block_size_ceilings, recommend
from tests.sim.traces import engine_trace, public_trace

NUM = 4000
TRACE = public_trace([[number] for number in range(NUM)])


def point(policy: str, pages: int, *quarters: int) -> Point:
    """Return a point whose requests of ten tokens find so many in each quarter."""
    found = [tokens for tokens in quarters for _ in range(NUM // 4)]
    return Point(policy=policy, pages=pages, hits=Hits(found, [10] * NUM))


def recommended(*points: Point, unbounded: tuple[int, ...] = (8, 8, 8, 8)) -> Recommendation:
    found = recommend(TRACE, points, point("lru", 1, *unbounded).hits, {4: 0.8, 8: 0.7995, 16: 0.6})
    assert found is not None
    return found


def test_the_fewest_pages_that_lose_little() -> None:
    found = recommended(
        point("lru", 10, 1, 1, 1, 1), point("lru", 20, 5, 5, 5, 5), point("lru", 40, 5, 5, 5, 5)
    )
    assert (found.pages, found.hit_rate, found.missing_to_unbounded) == (20, 0.5, 0.30000000000000004)


def test_another_policy_must_be_better_in_both_quarters() -> None:
    lru = point("lru", 10, 5, 5, 5, 5)
    assert recommended(lru, point("slru", 10, 5, 5, 6, 6)).policy == "slru"
    assert recommended(lru, point("slru", 10, 5, 5, 9, 5)).policy == "lru"


def test_the_gain_is_that_over_the_default_with_as_many_pages() -> None:
    assert (
        round(recommended(point("lru", 10, 5, 5, 5, 5), point("slru", 10, 5, 5, 6, 6)).gain_over_lru, 6)
        == 0.1
    )


def test_the_largest_block_that_loses_little() -> None:
    assert recommended(point("lru", 10, 5, 5, 5, 5)).block_size == 8


def test_the_bound_is_never_recommended() -> None:
    assert recommended(point("lru", 10, 5, 5, 5, 5), point("belady", 10, 9, 9, 9, 9)).policy == "lru"
    assert (
        recommend(TRACE, [point("belady", 10, 9, 9, 9, 9)], point("lru", 1, 9, 9, 9, 9).hits, {4: 1.0})
        is None
    )


def test_confidence_falls_with_drift_with_few_requests_and_with_a_partial_trace() -> None:
    steady = point("lru", 10, 5, 5, 5, 5)
    assert recommended(steady, unbounded=(5, 5, 5, 5)).confidence == "high"
    drifting = recommended(point("lru", 10, 5, 5, 3, 6), unbounded=(5, 5, 5, 4))
    assert drifting.confidence == "medium"
    assert "drifts" in drifting.reasons[0]
    rising = recommended(steady, unbounded=(2, 4, 4, 6))
    assert "too short to warm" in rising.reasons[0]
    few = Point(policy="lru", pages=10, hits=Hits([5] * 100, [10] * 100))
    found = recommend(TRACE, [few], few.hits, {4: 0.8})
    assert found is not None
    assert (found.confidence, found.reasons) == ("low", ("only 50 requests are counted",))
    cut = recommend(TRACE, [steady], steady.hits, {4: 0.8}, partial="line 9 is not JSON")
    assert cut is not None
    assert cut.confidence == "low"


def test_sizes_that_find_less_than_there_is_leave_doubt_until_all_is_measured() -> None:
    """A curve that was still rising at its end, or had not even begun to, was recommended with high confidence."""
    rising = recommended(point("lru", 10, 0, 0, 2, 2), point("lru", 20, 0, 0, 5, 5))
    assert rising.confidence == "medium"
    assert rising.reasons == (
        "the pages measured find only 50.0% of the 80.0% that can be found: measure more with --pages, up to 4,000",
    )
    blind = recommended(point("lru", 10, 0, 0, 0, 0))
    assert (blind.confidence, "find nothing of the 80.0%" in blind.reasons[0]) == ("low", True)
    whole = recommended(point("lru", 10, 0, 0, 2, 2), point("lru", NUM, 0, 0, 5, 5))
    assert (whole.confidence, whole.reasons) == ("high", ())


def test_where_nothing_is_ever_found_no_setting_is_said_to_gain() -> None:
    """The largest block of those that lose nothing was recommended, since all of them find nothing."""
    nothing = point("lru", 10, 0, 0, 0, 0)
    found = recommend(TRACE, [nothing], nothing.hits, {4: 0.0, 8: 0.0, 16: 0.0})
    assert found is not None
    assert (found.block_size, found.confidence) == (4, "high")
    assert found.reasons == (
        "no prompt of the last half begins like an earlier one: no setting gains anything",
    )


def test_block_sizes_are_those_that_divide_the_page() -> None:
    prompts = [(17, [0, 1, 2, 3]), (17, [0, 1, 2, 4])]
    assert block_size_ceilings(engine_trace(prompts, block_size=4, page_size=8)) == {4: 12 / 17, 8: 8 / 17}
    assert list(block_size_ceilings(public_trace([[0, 1]]))) == [4, 8, 16, 32]
