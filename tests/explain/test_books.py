"""Every uncached token has one cause, and they add up."""

import random

import pytest

from anaphora.explain.alignment import align, common_length
from anaphora.explain.books import bypassed, partition
from anaphora.explain.records import HitLaw, Lookup

LAW = HitLaw(block_size=16, min_prefill_tokens=2)


def test_a_clock_costs_what_stands_behind_it() -> None:
    """A clock at token 402 of 12,040: the books of the documentation."""
    shared, behind, reply = list(range(402)), list(range(1000, 12_493)), list(range(20_000, 20_136))
    old = [*shared, *range(30_000, 30_009), *behind]
    new = [*shared, *range(31_000, 31_009), *behind, *reply]
    runs = align(old, new, 402)
    books = partition(12_040, Lookup(400), LAW, len(old), 402, runs)
    assert books == {"block_floor": 2, "changed": 9, "behind_change": 11_493, "new": 136}


def test_fifteen_tokens_twice_are_new_and_then_the_laws() -> None:
    """Less than a block is never reused."""
    assert partition(15, Lookup(0), LAW, 0, 0) == {"new": 15}
    assert partition(15, Lookup(0), LAW, 15, 15) == {"block_floor": 14, "last_token": 1}


def test_a_whole_prompt_again_loses_its_last_block_to_the_last_token() -> None:
    """48 tokens twice: 32 reused; the third block is there and may not be used."""
    assert partition(48, Lookup(32, ("law",)), LAW, 48, 48) == {"block_floor": 15, "last_token": 1}


def test_a_block_is_given_back_for_the_shortest_prefill() -> None:
    """49 tokens of which 48 are cached: one token alone is not prefilled."""
    assert partition(49, Lookup(32, ("law",)), LAW, 48, 48) == {"one_token": 16, "new": 1}


def test_blocks_are_booked_under_the_answer_of_the_cache() -> None:
    """H = 16, then one block of each answer, then text that the baseline has too."""
    labels = ("evicted", "stranded", "in_flight", "law:decode_written")
    books = partition(100, Lookup(16, labels), LAW, 90, 90)
    assert books == {
        "evicted": 16, "stranded": 16, "in_flight": 16, "decode_written": 16, "block_floor": 10, "new": 10,
    }  # fmt: skip


def test_a_block_reused_in_part_is_booked_from_there() -> None:
    """H = 20: the rest of that block, then whole ones."""
    assert partition(48, Lookup(20, ("evicted", "evicted")), LAW, 0, 0) == {"evicted": 28}


def test_a_request_that_was_not_looked_up_has_one_cause() -> None:
    """All tokens, also the last one."""
    assert bypassed(40) == {"bypassed": 40}


@pytest.mark.parametrize("seed", range(5))
def test_the_causes_add_up_whatever_was_asked(seed: int) -> None:
    """The assertion in `partition` is the law; here it meets random prompts, hits and answers."""
    rng = random.Random(seed)
    names = ["evicted", "expired", "namespace", "in_flight", "stranded", "law"]
    for _ in range(300):
        new = [rng.randrange(5) for _ in range(rng.randrange(1, 120))]
        old = new[: rng.randrange(len(new) + 1)] + [rng.randrange(5) for _ in range(rng.randrange(60))]
        matched = common_length(old, new)
        most = LAW.best_possible(len(new)) // 16
        hit = rng.randrange(most + 1)
        labels = [rng.choice(names) for _ in range(rng.randrange(len(new) // 16 - hit + 1))]
        books = partition(
            len(new), Lookup(hit * 16, tuple(labels)), LAW, len(old), matched, align(old, new, matched)
        )
        assert sum(books.values()) == len(new) - hit * 16
        assert min(books.values()) > 0
