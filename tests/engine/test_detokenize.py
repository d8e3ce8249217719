"""The text of an output: whole characters only, cut at the first stop string, whatever way tokens arrive."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.engine.detokenize import IncrementalDetokenizer
from anaphora.ids import TokenId
from anaphora.request import SamplingParams
from tests.fakes import ByteTokenizer

TOKENIZER = ByteTokenizer()
EOS = TOKENIZER.special_id("<|eos|>")


def make(*stop: str, **settings: object) -> IncrementalDetokenizer:
    return IncrementalDetokenizer(
        TOKENIZER, SamplingParams.from_mapping({"stop": stop, "max_tokens": None, **settings})
    )


def push_each(detokenizer: IncrementalDetokenizer, text: str) -> list[str]:
    return [detokenizer.push([token_id]) for token_id in text.encode()]


def test_plain_text_is_handed_out_token_by_token() -> None:
    """Without stop strings nothing is held back."""
    assert push_each(make(), "abc") == ["a", "b", "c"]


def test_a_character_appears_with_its_last_byte() -> None:
    """The four bytes of an emoji are four tokens here; the first three give no text."""
    assert push_each(make(), "a😀b") == ["a", "", "", "", "😀", "b"]


def test_an_incomplete_character_at_the_end_becomes_one_replacement_character() -> None:
    """`finish` flushes the three bytes that wait for their fourth."""
    detokenizer = make()
    assert detokenizer.push(list("a😀".encode()[:-1])) == "a"
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""


def test_a_byte_that_is_no_utf_8_becomes_a_replacement_character_at_once() -> None:
    """0xFF begins no character, so nothing can make it whole."""
    assert make().push([0xFF, 0x61]) == "\ufffda"


def test_special_tokens_are_skipped_unless_they_are_wanted() -> None:
    """`skip_special_tokens` decides whether the markup is part of the text."""
    assert make().push([0x61, EOS, 0x62]) == "ab"
    assert make(skip_special_tokens=False).push([0x61, EOS, 0x62]) == "a<|eos|>b"


def test_a_skipped_special_token_does_not_break_a_character() -> None:
    """The one-shot decode joins the bytes around it, and so does this."""
    first, last = "é".encode()
    detokenizer = make()
    assert detokenizer.push([first, EOS]) == ""
    assert detokenizer.push([last]) == "é"


def test_text_that_may_begin_a_stop_string_is_held_back_until_it_is_clear() -> None:
    """ "ST" may become "STOP"; "STA" cannot, so all three characters come out."""
    detokenizer = make("STOP")
    assert push_each(detokenizer, "aSTA") == ["a", "", "", "STA"]
    assert detokenizer.stop_match is None


def test_a_stop_string_across_token_borders_ends_the_text_before_it() -> None:
    """The text before the stop string comes out, the stop string and what follows do not."""
    detokenizer = make("STOP")
    assert push_each(detokenizer, "abST") == ["a", "b", "", ""]
    assert detokenizer.push(list(b"OPcd")) == ""
    assert detokenizer.stop_match == "STOP"
    assert detokenizer.push(list(b"more")) == ""
    assert detokenizer.finish() == ""
    assert detokenizer.stop_match == "STOP"


def test_the_stop_string_itself_is_kept_when_asked_for() -> None:
    """`include_stop_str_in_output` cuts behind the stop string."""
    detokenizer = make("STOP", include_stop_str_in_output=True)
    assert detokenizer.push(list(b"abSTOPcd")) == "abSTOP"
    assert detokenizer.finish() == ""


def test_a_repeated_beginning_of_a_stop_string_is_not_overlooked() -> None:
    """In "aab" the stop string "ab" begins at the second a: the first one is clear as soon as it is known."""
    detokenizer = make("ab")
    assert push_each(detokenizer, "aab") == ["", "a", ""]
    assert detokenizer.stop_match == "ab"


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_the_stop_string_that_is_complete_first_wins(chunk: int) -> None:
    """ "bc" is complete one character before "abcd", in whatever pieces the text comes."""
    detokenizer = make("abcd", "bc")
    token_ids = list(b"xabcdy")
    text = "".join(detokenizer.push(token_ids[i : i + chunk]) for i in range(0, 6, chunk))
    assert (text, detokenizer.stop_match) == ("xa", "bc")


def test_of_stop_strings_complete_at_once_the_one_that_began_first_wins() -> None:
    """ "abc" and "c" end at the same character; cutting at "c" would leave the beginning of the other."""
    detokenizer = make("c", "abc")
    assert detokenizer.push(list(b"xabc")) == "x"
    assert detokenizer.stop_match == "abc"


def test_a_stop_string_within_the_first_min_tokens_is_text() -> None:
    """vLLM's own case: stop at "e", but not in the first five tokens."""
    text = "Lee, and a student"
    assert make("e").push(list(text.encode())) == "L"
    assert make("e", min_tokens=5).push(list(text.encode())) == "Lee, and a stud"


def test_a_stop_string_that_is_completed_after_min_tokens_counts() -> None:
    """It began among the ignored tokens, but only a later token completed it."""
    detokenizer = make("cd", min_tokens=3)
    assert push_each(detokenizer, "abcd") == ["a", "b", "", ""]
    assert detokenizer.stop_match == "cd"


def test_an_incomplete_character_can_complete_a_stop_string_at_the_end() -> None:
    """A stop string may hold U+FFFD, which appears only when the text is finished."""
    detokenizer = make("x\ufffd")
    assert detokenizer.push([0x61, 0x78, 0xC3]) == "a"
    assert detokenizer.finish() == ""
    assert detokenizer.stop_match == "x\ufffd"


def naive_text(token_ids: Sequence[TokenId], params: SamplingParams) -> tuple[str, str | None]:
    """What must come out, told the slow way: the shortest beginning of the text that ends with a stop string.

    `min_tokens` only where a token is a character.
    """
    text = TOKENIZER.decode(token_ids, skip_special_tokens=params.skip_special_tokens)
    for end in range(params.min_tokens + 1, len(text) + 1):
        if stops := [stop for stop in params.stop if text[:end].endswith(stop)]:
            stop = max(stops, key=len)
            return text[: end if params.include_stop_str_in_output else end - len(stop)], stop
    return text, None


ALPHABET = "abé😀"
tokens = st.lists(st.sampled_from([*b"ab", *"é😀".encode(), EOS]), max_size=24)
stop_strings = st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=4).map(tuple)


@given(
    tokens=tokens,
    stop=stop_strings,
    cuts=st.lists(st.integers(0, 24)),
    keep=st.booleans(),
    skip=st.booleans(),
)
def test_any_split_gives_the_one_shot_text_cut_at_the_first_stop_string(
    tokens: list[int], stop: tuple[str, ...], cuts: list[int], keep: bool, skip: bool
) -> None:
    """However the tokens are grouped, the pieces join to the decode of all tokens, cut at the first stop string."""
    params = SamplingParams(stop=stop, include_stop_str_in_output=keep, skip_special_tokens=skip)
    detokenizer = IncrementalDetokenizer(TOKENIZER, params)
    borders = [0, *sorted(cuts), len(tokens)]
    pieces = [detokenizer.push(tokens[a:b]) for a, b in pairwise(borders)]
    text = "".join(pieces) + detokenizer.finish()
    assert (text, detokenizer.stop_match) == naive_text(tokens, params)


@given(
    text=st.text("ab", max_size=20), stop=stop_strings, min_tokens=st.integers(0, 8), chunk=st.integers(1, 20)
)
def test_min_tokens_does_not_depend_on_the_split_either(
    text: str, stop: tuple[str, ...], min_tokens: int, chunk: int
) -> None:
    """With one character per token, stop strings count from the character after the first `min_tokens`."""
    params = SamplingParams(stop=stop, min_tokens=min_tokens)
    detokenizer = IncrementalDetokenizer(TOKENIZER, params)
    data = list(text.encode())
    pieces = [detokenizer.push(data[i : i + chunk]) for i in range(0, len(data), chunk)]
    assert ("".join(pieces) + detokenizer.finish(), detokenizer.stop_match) == naive_text(data, params)
