"""What every eviction policy must do, and the settings that choose one."""

import pytest

from anaphora.cache.eviction.policies import make_policy
from anaphora.config import EVICTION_POLICIES, CacheConfig, EngineConfig, EvictionPolicyName, KVLayout
from anaphora.errors import ConfigError
from tests.conformance.story import CacheStory, numbers

every_policy = pytest.mark.parametrize("policy", EVICTION_POLICIES)


@every_policy
def test_of_one_chain_freed_at_once_the_deepest_page_goes_first(policy: EvictionPolicyName) -> None:
    """Four full pages and a partial one, which has no digest and goes before the empty ones."""
    story = CacheStory(9, 4, policy=policy)
    story.admit("A", numbers(0, 17))
    story.free("A")
    assert story.order == [5, 6, 7, 8, 4, 3, 2, 1]


@every_policy
def test_a_chain_hit_as_a_whole_still_goes_from_its_end(policy: EvictionPolicyName) -> None:
    """All four pages have one hit."""
    story = CacheStory(9, 4, policy=policy)
    for name in ("A", "B"):
        story.admit(name, numbers(0, 17))
        story.free(name)
    assert story.order == [5, 6, 7, 8, 4, 3, 2, 1]


@every_policy
def test_a_shared_beginning_outlives_every_continuation(policy: EvictionPolicyName) -> None:
    """Pages 1 and 2 are common; B goes on with 3 and 4, C with 5. Whoever is freed last, the beginning goes last."""
    story = CacheStory(8, 4, policy=policy)
    story.admit("B", [*numbers(0, 8), *numbers(100, 8)])
    story.admit("C", [*numbers(0, 8), *numbers(200, 4)])
    story.free("B")
    story.free("C")
    order = story.order
    assert (
        sorted(order[-2:]) == [1, 2] and order.index(2) < order.index(1) and order.index(4) < order.index(3)
    )


@every_policy
def test_pages_without_digests_go_before_everything_cached(policy: EvictionPolicyName) -> None:
    """Page 1 is cached; a duplicate of it on page 2 and the partial page 3 are not."""
    story = CacheStory(5, 4, policy=policy)
    story.admit("A", numbers(0, 4))
    story.admit("B", numbers(0, 6), skip_reading=True)
    story.free("A")
    story.free("B")
    assert story.order == [3, 2, 4, 1]


@every_policy
def test_a_reset_forgets_and_the_pages_can_be_used_again(policy: EvictionPolicyName) -> None:
    """The second life begins as the first."""
    story = CacheStory(5, 4, policy=policy)
    for _ in range(3):
        story.admit("A", numbers(0, 16))
        story.free("A")
        assert story.usage == (0, 4, 0)
        assert story.manager.reset()
        assert story.usage == (0, 0, 4)


@every_policy
def test_a_new_policy_is_empty(policy: EvictionPolicyName) -> None:
    """Taking nothing from it is safe."""
    made = make_policy(policy, KVLayout(4, 4, 9))
    assert (len(made), list(made), made.take(0)) == (0, [], [])


@every_policy
def test_taking_more_than_there_is_is_our_mistake(policy: EvictionPolicyName) -> None:
    """The caller has counted."""
    with pytest.raises(AssertionError, match="1 pages wanted of 0"):
        make_policy(policy, KVLayout(4, 4, 9)).take(1)


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"--eviction-policy is 'fifo', but must be one of lru, slru, lfu, cost"
    ):
        EngineConfig.from_mapping({"eviction_policy": "fifo"})


@pytest.mark.parametrize("share", [-0.1, 1.01, float("nan")])
def test_a_pinned_share_outside_of_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=r"--max-pinned-share is .*, but must be at least 0 and at most 1"):
        CacheConfig(max_pinned_share=share)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_pinned_share_from_0_to_1_is_taken(share: float) -> None:
    assert CacheConfig(max_pinned_share=share).max_pinned_share == share
