"""What stands in both of two sequences, and how long it takes to find it."""

import random

from anaphora.explain.alignment import Gap, Run, align, common_length, gaps_between


def test_a_common_prefix_ends_at_the_first_difference() -> None:
    """For texts and for tuples, equal ones included."""
    assert common_length("abcd", "abxd") == 2
    assert common_length((1, 2), (1, 2, 3)) == 2
    assert common_length("", "a") == 0


def test_what_follows_a_changed_stretch_is_found_again() -> None:
    """Old: 0…9 | 50 51 | 10…29.  New: 0…9 | 60 | 10…29 | 70 71."""
    old = [*range(10), 50, 51, *range(10, 30)]
    new = [*range(10), 60, *range(10, 30), 70, 71]
    runs = align(old, new, 10)
    assert runs == [Run(12, 11, 20)]
    assert gaps_between(runs, 10, len(old), len(new)) == [Gap(10, 12, 10, 11), Gap(32, 32, 31, 33)]


def test_an_appended_stretch_is_new_and_nothing_before_it_moves() -> None:
    """The end of the old one is matched where it stands first, not at the end of the new one."""
    old = [1, 2, *range(10, 30), 7, 8, 9]
    new = [1, 3, *range(10, 30), 7, 8, 9, *range(40, 50), 7, 8, 9]
    assert align(old, new, 1) == [Run(2, 2, 23)]


def test_moved_stretches_are_matched_in_one_order_only() -> None:
    """Runs never cross."""
    a, b = list(range(100, 120)), list(range(200, 230))
    runs = align([0, *a, *b], [1, *b, *a], 0)
    assert runs == [Run(21, 1, 30)]


def test_runs_are_equal_ordered_and_disjoint_whatever_the_input() -> None:
    """On random sequences of few symbols, where almost everything repeats itself."""
    rng = random.Random(1)
    for _ in range(300):
        old, new = ([rng.randrange(6) for _ in range(rng.randrange(80))] for _ in range(2))
        start = common_length(old, new)
        old_end = new_end = start
        for run in align(old, new, start):
            assert run.old_start >= old_end and run.new_start >= new_end and run.length > 0
            old_end, new_end = run.old_start + run.length, run.new_start + run.length
            assert old[run.old_start : old_end] == new[run.new_start : new_end]
