"""Where each part of a conversation lies in the rendered prompt, in characters and in tokens.

Knows nothing of templates or tokenizers: ranges are handed in, found by `chat_parts.py`, and so are the
bytes of the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CharSpan:
    """One part of a rendered prompt: its path (see `Span`) and its half-open range of characters."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """One part: its path and its half-open ranges.

    `path` is `template-preamble`, `tools[i]`, `messages[k]`, `messages[k].content`,
    `messages[k].content[m]` for the m-th part of a list, `messages[k].tool_calls[i]`, or `generation-prompt`.
    In tools it may go on with `.function.name`, `.function.description` or `.function.parameters`, in calls with
    `.function.name` or `.function.arguments`. Texts have no quotes in their range, but their JSON escapes.
    """

    path: str
    char_start: int
    char_end: int
    token_start: int
    token_end: int


@dataclass(frozen=True, slots=True)
class SpanMap:
    """The parts of one prompt, in the order they are rendered; an inner part follows the part that holds it."""

    spans: tuple[Span, ...]

    def at_token(self, token_index: int) -> Span | None:
        """Return the smallest part that holds a token, or None outside all parts."""
        holders = [span for span in self.spans if span.token_start <= token_index < span.token_end]
        return min(holders, key=lambda span: span.token_end - span.token_start, default=None)

    def at_char(self, char_offset: int) -> Span | None:
        """Return the smallest part that holds a character, or None outside all parts."""
        holders = [span for span in self.spans if span.char_start <= char_offset < span.char_end]
        return min(holders, key=lambda span: span.char_end - span.char_start, default=None)


def token_char_starts(text: str, pieces: Sequence[bytes]) -> NDArray[np.int64] | None:
    """Return, for each token, the index of the character in which it begins.

    `pieces` are the bytes of the tokens of `text`, which must be valid Unicode. Several tokens may begin in
    one character. A begin-of-text or end-of-text token that is not in the text, and the space that some
    tokenizers put in front of it, get no characters.
    None when the tokens do not spell the text, as after a normalising tokenizer.
    """
    data = text.encode()
    front = _num_bytes_before(data, pieces)
    if front is None:
        return None
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    byte_starts: NDArray[np.int64] = np.clip(np.cumsum(lengths) - lengths - front, 0, len(data))
    if len(data) == len(text):
        return byte_starts
    # UTF-8: every byte but 10xxxxxx begins a character; one more entry stands for the end of the text.
    begins_char = np.append((np.frombuffer(data, np.uint8) & 0xC0) != 0x80, True)
    char_at_byte: NDArray[np.int64] = np.cumsum(begins_char, dtype=np.int64) - 1
    char_starts: NDArray[np.int64] = char_at_byte[byte_starts]
    return char_starts


def _num_bytes_before(data: bytes, pieces: Sequence[bytes]) -> int | None:
    """The bytes that the tokens put before the text; None if text and tokens do not agree."""
    if not pieces:
        return None if data else 0
    spelled = b"".join(pieces)
    first, last = len(pieces[0]), len(pieces[-1])
    #  spelled:  [begin-of-text] [space] data [end-of-text]
    for front in (0, first, 1, first + 1):
        has_space = front in {0, first} or spelled[front - 1 : front] == b" "
        back = len(spelled) - front - len(data)
        if has_space and back in {0, last} and spelled.startswith(data, front):
            return front
    return None


def spans_in_tokens(parts: Sequence[CharSpan], char_starts: NDArray[np.int64]) -> SpanMap:
    """Give each part its tokens: those that begin in it, so a token across a border belongs to the first part."""
    token_starts = np.searchsorted(char_starts, [part.start for part in parts]).tolist()
    token_ends = np.searchsorted(char_starts, [part.end for part in parts]).tolist()
    return SpanMap(
        tuple(
            Span(part.path, part.start, part.end, token_start, token_end)
            for part, token_start, token_end in zip(parts, token_starts, token_ends, strict=True)
        )
    )
