"""Sketches find what has much in common, wherever it stands."""

import random
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from anaphora.cache.chain import pack_tokens
from anaphora.explain.sketch import SketchIndex, sketch_of

EXAMPLE = [number * 7919 % 50_000 for number in range(400)]


def tokens(seed: int, size: int = 400) -> list[int]:
    return random.Random(seed).choices(range(50_000), k=size)


def test_a_relative_is_found_behind_another_beginning() -> None:
    """Shifted by 37 tokens, among fifty strangers."""
    index = SketchIndex()
    for number in range(50):
        index.add(number, sketch_of(pack_tokens(tokens(number))))
    shifted = sketch_of(pack_tokens(tokens(1000, 37) + tokens(17)))
    assert index.best(shifted, 3) == [17]


def test_who_has_more_in_common_comes_first_and_of_equals_the_latest() -> None:
    index = SketchIndex()
    index.add(0, sketch_of(pack_tokens(tokens(1))))
    index.add(1, sketch_of(pack_tokens(tokens(1))))
    index.add(2, sketch_of(pack_tokens(tokens(1)[:100] + tokens(2, 300))))
    assert index.best(sketch_of(pack_tokens(tokens(1))), 8) == [1, 0, 2]
    assert index.best(sketch_of(pack_tokens(tokens(1))), 1) == [1]


def test_of_many_with_the_same_text_only_the_latest_are_kept() -> None:
    index, sketch = SketchIndex(), sketch_of(pack_tokens(tokens(1)))
    for number in range(100):
        index.add(number, sketch)
    assert index.best(sketch, 50) == [99, 98, 97, 96]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300)), max_size=30))
def test_nothing_is_left_of_what_was_removed(made: list[tuple[int, int]]) -> None:
    index = SketchIndex()
    sketches = [sketch_of(pack_tokens(tokens(seed, size))) for seed, size in made]
    for number, sketch in enumerate(sketches):
        index.add(number, sketch)
    for number, sketch in enumerate(sketches):
        index.remove(number, sketch)
        assert number not in index.best(sketch, 1000)
    assert not index._numbers


def test_a_text_shorter_than_a_run_has_no_sketch() -> None:
    assert sketch_of(pack_tokens([8] * 7)) == () != sketch_of(pack_tokens([8] * 8))
    assert SketchIndex().best((), 3) == []


def test_a_sketch_is_bounded_whatever_the_length() -> None:
    assert len(sketch_of(pack_tokens(tokens(1, 20_000)))) == 16


def test_another_process_makes_the_same_sketch() -> None:
    """Whatever the seed of Python's own hashes is."""
    code = (
        "from anaphora.cache.chain import pack_tokens; from anaphora.explain.sketch import sketch_of; "
        "print(sketch_of(pack_tokens([number * 7919 % 50_000 for number in range(400)])))"
    )
    given = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert given.stdout.strip() == str(sketch_of(pack_tokens(EXAMPLE)))
