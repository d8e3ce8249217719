"""Characters ↔ tokens, and the question of which part holds one."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.models.spans import CharSpan, Span, SpanMap, spans_in_tokens, token_char_starts


def starts(text: str, pieces: Sequence[bytes]) -> list[int] | None:
    found = token_char_starts(text, pieces)
    return None if found is None else found.tolist()


def test_a_token_begins_at_the_character_of_its_first_byte() -> None:
    """Plain ASCII: characters are bytes."""
    assert starts("Hello you", [b"Hel", b"lo", b" you"]) == [0, 3, 5]


def test_tokens_that_share_a_character_begin_in_the_same_one() -> None:
    """The emoji has four bytes in three tokens; the b behind it is character 2."""
    assert starts("é😀b", [b"\xc3\xa9", b"\xf0\x9f", b"\x98", b"\x80", b"b"]) == [0, 1, 1, 1, 2]


def test_a_token_may_hold_the_end_of_one_character_and_the_beginning_of_the_next() -> None:
    """Its first byte decides."""
    assert starts("éé", [b"\xc3", b"\xa9\xc3", b"\xa9"]) == [0, 0, 1]


@pytest.mark.parametrize(
    "pieces, expected",
    [
        ([b"<s>", b"a", b"b"], [0, 0, 1]),
        ([b" a", b"b"], [0, 1]),
        ([b"<s>", b" a", b"b"], [0, 0, 1]),
        ([b"a", b"b", b"</s>"], [0, 1, 2]),
        ([b"<s>", b"a", b"b", b"</s>"], [0, 0, 1, 2]),
        ([b"<s>", b" ", b"ab", b"</s>"], [0, 0, 0, 2]),
    ],
)
def test_what_a_tokenizer_adds_around_the_text_has_no_characters(
    pieces: list[bytes], expected: list[int]
) -> None:
    """A begin-of-text token, a space in front, an end-of-text token, and their combinations."""
    assert starts("ab", pieces) == expected


@pytest.mark.parametrize("pieces", [[b"a"], [b"a", b"B"], [b"ab", b"c", b"</s>"], [b"x", b"y", b"ab"], []])
def test_tokens_that_do_not_spell_the_text_have_no_places(pieces: list[bytes]) -> None:
    """A normalising tokenizer gives other bytes; a guess would be wrong somewhere."""
    assert starts("ab", pieces) is None


def test_an_empty_text_has_no_tokens_or_only_added_ones() -> None:
    """Both are fine."""
    assert starts("", []) == []
    assert starts("", [b"<s>"]) == [0]


@given(st.text(alphabet="aé日😀\n", max_size=30), st.lists(st.integers(0, 100)))
def test_any_split_of_the_bytes_is_placed_like_a_naive_decode_says(text: str, cuts: list[int]) -> None:
    """The character of a token is the number of characters that are complete before its first byte."""
    data = text.encode()
    borders = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(borders)]
    expected = [len(data[:border].decode("utf-8", "ignore")) for border in borders[:-1]]
    assert starts(text, pieces) == expected


def test_a_token_across_a_border_belongs_to_the_part_it_begins_in() -> None:
    r"""The token "b<" begins in the content, so the content has tokens 1 and 2, and the markup has none of them."""
    #   char   0 1 2 3 4 5
    #   text   > a a b < |
    #   token  0 1 1 2 2 3
    token_starts = token_char_starts(">aab<|", [b">", b"aa", b"b<", b"|"])
    assert token_starts is not None
    parts = (CharSpan("messages[0]", 0, 6), CharSpan("messages[0].content", 1, 4))
    assert spans_in_tokens(parts, token_starts) == SpanMap(
        (Span("messages[0]", 0, 6, 0, 4), Span("messages[0].content", 1, 4, 1, 3))
    )


def test_the_smallest_part_that_holds_a_place_is_found() -> None:
    """By token and by character; outside all parts there is none."""
    message = Span("messages[0]", 0, 10, 0, 5)
    content = Span("messages[0].content", 3, 8, 2, 4)
    spans = SpanMap((message, content))
    assert [spans.at_token(i) for i in range(6)] == [message, message, content, content, message, None]
    assert [spans.at_char(i) for i in (0, 3, 7, 8, 9, 10)] == [
        message,
        content,
        content,
        message,
        message,
        None,
    ]


def test_an_empty_map_holds_nothing() -> None:
    """A prompt without parts is no error."""
    assert SpanMap(()).at_token(0) is None
