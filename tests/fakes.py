"""Stand-ins that behave like the real things, for tests without models, clocks or disks."""

import re
from collections.abc import Sequence

from anaphora.errors import InvalidRequestError
from anaphora.ids import TokenId


class ByteTokenizer:
    """A tokenizer whose ids 0 to 255 are the bytes; then come special tokens, the first of which ends a text.

    `bos` says that a text is encoded with the token `<|bos|>` in front, if special tokens are asked for.
    """

    SPECIALS = ("<|eos|>", "<|bos|>", "<|im_start|>", "<|im_end|>")

    def __init__(self, *, bos: bool = False) -> None:
        self._prefix = [self.special_id("<|bos|>")] if bos else []
        self._split = re.compile("(" + "|".join(map(re.escape, self.SPECIALS)) + ")")

    @classmethod
    def special_id(cls, markup: str) -> TokenId:
        """Return the id of a special token."""
        return 256 + cls.SPECIALS.index(markup)

    @property
    def vocab_size(self) -> int:
        return 256 + len(self.SPECIALS)

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        return frozenset({self.special_id("<|eos|>")})

    @property
    def special_token_ids(self) -> frozenset[TokenId]:
        return frozenset(range(256, self.vocab_size))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequestError("the text holds a lone surrogate") from error
        token_ids = list(self._prefix) if add_special_tokens else []
        for piece in self._split.split(text):
            token_ids += [self.special_id(piece)] if piece in self.SPECIALS else piece.encode()
        return token_ids

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        skipped = self.special_token_ids if skip_special_tokens else frozenset[TokenId]()
        pieces = (self.token_bytes(token_id) for token_id in token_ids if token_id not in skipped)
        return b"".join(pieces).decode("utf-8", "replace")

    def token_bytes(self, token_id: TokenId) -> bytes:
        return bytes([token_id]) if token_id < 256 else self.SPECIALS[token_id - 256].encode()
