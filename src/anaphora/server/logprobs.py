"""Log probabilities of tokens in the shapes of the OpenAI API and of vLLM.

Pure: what the engine found in, plain JSON values out. Does not know what part of a text is held back: each
token is told of when it was chosen.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.engine.protocols import Tokenizer
from anaphora.ids import TokenId
from anaphora.request import TokenLogprobs

Json = dict[str, Any]

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has not; the value of the OpenAI API and of vLLM."""


@dataclass(frozen=True, slots=True)
class AskedLogprobs:
    """How many of the most likely tokens a caller wants beside each of the output and of the prompt; None: nothing."""

    tokenizer: Tokenizer
    num_top: int | None = None
    num_prompt_top: int | None = None
    skip_special_tokens: bool = True

    def text(self, token_id: TokenId) -> str:
        """Return a token's own text; bytes that are no whole character become U+FFFD."""
        return self.tokenizer.token_bytes(token_id).decode("utf-8", "replace")

    def chat(self, found: Sequence[TokenLogprobs]) -> Json | None:
        """Return the `logprobs` of a chat's choice, or None if they were not asked for."""
        if self.num_top is None:
            return None
        return {"content": [self._chat_entry(entry, self.num_top) for entry in found], "refusal": None}

    def _chat_entry(self, entry: TokenLogprobs, num_top: int) -> Json:
        top = [self._chat_token(token_id, logprob) for token_id, logprob in entry.top[:num_top]]
        return {**self._chat_token(entry.token_id, entry.logprob), "top_logprobs": top}

    def _chat_token(self, token_id: TokenId, logprob: float) -> Json:
        data = self.tokenizer.token_bytes(token_id)
        return {"token": data.decode("utf-8", "replace"), "logprob": _finite(logprob), "bytes": list(data)}

    def prompt(self, found: Sequence[TokenLogprobs] | None) -> list[Json | None] | None:
        """Return the `prompt_logprobs` of an answer, or None if they were not asked for."""
        if self.num_prompt_top is None or found is None:
            return None
        return [None, *(self._prompt_entry(entry, self.num_prompt_top) for entry in found)]

    def _prompt_entry(self, entry: TokenLogprobs, num_top: int) -> Json:
        """The token of the prompt first, then the most likely ones, by id."""
        values = {str(entry.token_id): self._ranked(entry.token_id, entry.logprob, entry.rank)}
        for rank, (token_id, logprob) in enumerate(entry.top[:num_top], 1):
            values.setdefault(str(token_id), self._ranked(token_id, logprob, rank))
        return values

    def _ranked(self, token_id: TokenId, logprob: float, rank: int) -> Json:
        return {"logprob": _finite(logprob), "rank": rank, "decoded_token": self.text(token_id)}


class CompletionLogprobs:
    """The `logprobs` of one choice of a completion, whole or piece by piece: offsets go on from piece to piece."""

    def __init__(self, asked: AskedLogprobs) -> None:
        self._asked = asked
        self._skipped = (
            asked.tokenizer.special_token_ids if asked.skip_special_tokens else frozenset[TokenId]()
        )
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def echo(self, text: str, first: TokenId, found: Sequence[TokenLogprobs]) -> Json:
        """Return that of the prompt, whose first token nothing predicts; outputs come after it."""
        ids = [first, *(entry.token_id for entry in found)]
        self._num_chars = len(text)
        return {
            "tokens": [self._asked.text(token_id) for token_id in ids],
            "token_logprobs": [None, *(_finite(entry.logprob) for entry in found)],
            "top_logprobs": [None, *map(self._top, found)],
            "text_offset": prompt_offsets(text, ids, self._asked.tokenizer),
        }

    def outputs(self, found: Sequence[TokenLogprobs]) -> Json:
        """Return that of further output tokens."""
        return {
            "tokens": [self._asked.text(entry.token_id) for entry in found],
            "token_logprobs": [_finite(entry.logprob) for entry in found],
            "top_logprobs": [self._top(entry) for entry in found],
            "text_offset": [self._offset(entry.token_id) for entry in found],
        }

    def _top(self, entry: TokenLogprobs) -> dict[str, float]:
        """The most likely tokens by text, and the token itself; of several with one text the most likely counts."""
        values: dict[str, float] = {}
        for token_id, logprob in (*entry.top[: self._asked.num_top], (entry.token_id, entry.logprob)):
            values.setdefault(self._asked.text(token_id), _finite(logprob))
        return values

    def _offset(self, token_id: TokenId) -> int:
        """Return where an output token begins in the text, were nothing of it cut off by a stop string."""
        offset = self._num_chars
        if token_id not in self._skipped:
            self._num_chars += len(self._decoder.decode(self._asked.tokenizer.token_bytes(token_id)))
        return offset


def prompt_offsets(text: str, token_ids: Sequence[TokenId], tokenizer: Tokenizer) -> list[int]:
    """Return the character of a prompt's text at which each of its tokens begins, or within which it does.

    Markup that is not in the text was put there by the tokenizer and takes no room, and neither does a space that
    some tokenizers put in front.
    """
    data = text.encode()
    char_of_byte = [index for index, char in enumerate(text) for _ in char.encode()] + [len(text)]
    offsets, at = [], 0
    for token_id in token_ids:
        offsets.append(char_of_byte[at])
        piece = tokenizer.token_bytes(token_id)
        if not data.startswith(piece, at):
            piece = b"" if token_id in tokenizer.special_token_ids else piece.removeprefix(b" ")
        at = min(at + len(piece), len(data))
    return offsets


def joined(parts: Sequence[Json]) -> Json:
    """Return the pieces of one choice's `logprobs` as a whole."""
    return {name: [value for part in parts for value in part[name]] for name in parts[0]}


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
