"""A tokenizer that cuts words as byte-pair encodings do, for tests without a model."""

import re
from collections.abc import Sequence

from anaphora.ids import TokenId

_PIECES = re.compile(rb"<\|\w+\|>| ?[A-Za-z]+|\d| ?[!-/:-@\[-`{-~]+|[ \t]+(?= )|\s+|[\x80-\xff]+")


class WordTokenizer:
    """Words of up to five letters are tokens, longer ones several; digits stand alone. Ids come as words do."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._bytes: list[bytes] = []

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        ids = []
        for piece in _PIECES.findall(text.encode()):
            size = len(piece) if piece.startswith(b"<|") else 5
            for start in range(0, len(piece), size):
                ids.append(self._id(piece[start : start + size]))
        return ids

    def _id(self, piece: bytes) -> TokenId:
        if piece not in self._ids:
            self._ids[piece] = len(self._bytes)
            self._bytes.append(piece)
        return TokenId(self._ids[piece])

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: TokenId) -> bytes:
        return self._bytes[token_id]
