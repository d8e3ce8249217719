"""Output tokens → the text that is certain by now. Pure; knows nothing of requests, steps or HTTP."""

import codecs
from collections.abc import Sequence
from typing import NamedTuple

from anaphora.engine.protocols import Tokenizer
from anaphora.ids import TokenId
from anaphora.request import SamplingParams


class _StopMatch(NamedTuple):
    """A stop string and where it ends in the text that is held back."""

    end: int
    start: int
    stop: str


class IncrementalDetokenizer:
    """The text of one output, handed out as soon as nothing can change it.

    Held back are the bytes of an incomplete character, and text that may turn out to begin a stop string.
    The stop string that is complete first ends the text (of several, the one that began first), so the
    result does not depend on how the tokens arrive. A stop string must be completed by a token after the
    first `min_tokens`.
    A token that ends the output (`eos_token_ids`, `stop_token_ids`) is the caller's business: whether it is
    pushed decides whether its text appears.
    """

    def __init__(self, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_token_ids if params.skip_special_tokens else frozenset[TokenId]()
        self._stops = params.stop
        self._keeps_stop = params.include_stop_str_in_output
        self._num_tokens_to_ignore = params.min_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._ignored_end = 0  # a stop string that ends at or before it in `_held` does not count
        self._match: _StopMatch | None = None
        self._is_finished = False

    @property
    def stop_match(self) -> str | None:
        """The stop string that ended the text, or None."""
        return self._match.stop if self._match else None

    def push(self, token_ids: Sequence[TokenId]) -> str:
        """Take further tokens and return the text that has become certain; nothing after a stop string."""
        num_ignored = min(self._num_tokens_to_ignore, len(token_ids))
        self._num_tokens_to_ignore -= num_ignored
        if num_ignored:
            self._held += self._decode(token_ids[:num_ignored])
            self._ignored_end = len(self._held)
        return self._advance(self._decode(token_ids[num_ignored:]), is_last=False)

    def finish(self) -> str:
        """Return the text still held back, with U+FFFD for an incomplete character; nothing when called again."""
        return self._advance(self._decoder.decode(b"", final=True), is_last=True)

    def _decode(self, token_ids: Sequence[TokenId]) -> str:
        pieces = [
            self._tokenizer.token_bytes(token_id) for token_id in token_ids if token_id not in self._skipped
        ]
        return self._decoder.decode(b"".join(pieces))

    def _advance(self, text: str, *, is_last: bool) -> str:
        """Add text to what is held back, and hand out the part that is certain."""
        if self._is_finished:
            return ""
        self._held += text
        self._match = self._find_stop()
        if self._match:
            num_certain = self._match.end if self._keeps_stop else self._match.start
        else:
            num_certain = len(self._held) if is_last else len(self._held) - self._num_uncertain()
        self._is_finished = is_last or self._match is not None
        return self._take(num_certain)

    def _take(self, num_chars: int) -> str:
        taken, self._held = self._held[:num_chars], self._held[num_chars:]
        self._ignored_end = max(0, self._ignored_end - num_chars)
        return taken

    def _find_stop(self) -> _StopMatch | None:
        found = []
        for stop in self._stops:
            start = self._held.find(stop, max(0, self._ignored_end + 1 - len(stop)))
            if start >= 0:
                found.append(_StopMatch(start + len(stop), start, stop))
        return min(found, default=None)

    def _num_uncertain(self) -> int:
        """The length of the longest end of the held text with which a stop string begins."""
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
