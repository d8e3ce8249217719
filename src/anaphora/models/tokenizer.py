"""Text ↔ token ids. Knows bytes and markup; the library that does the splitting is handed in by a runner."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from anaphora.errors import ContextLengthError, InvalidRequestError
from anaphora.ids import TokenId

END_OF_TURN_MARKUP = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|end_of_sentence|>",
        "<｜end▁of▁sentence｜>",
        "</s>",
    }
)
"""Special tokens after which a model never goes on, whatever its files call its end token (as llama.cpp has it)."""

# SentencePiece writes a space as U+2581, and bytes without a piece of their own as <0x0A>.
_METASPACE = "\u2581".encode()
_BYTE_PIECES = {f"<0x{byte:02X}>".encode(): bytes([byte]) for byte in range(256)}


class RawTokenizer(Protocol):
    """The part of `openvino_genai.Tokenizer` that is used."""

    def encode(self, text: str, /, *, add_special_tokens: bool) -> Any:
        """Return an object with `input_ids.data`, an integer array [1, num_tokens]."""
        ...

    def decode(self, tokens: list[list[int]], /, *, skip_special_tokens: bool) -> list[str]:
        """Return one text per list of ids."""
        ...

    def get_vocab(self) -> Mapping[bytes, int]:
        """Return the id of each token by its bytes."""
        ...

    def get_eos_token_id(self) -> int:
        """Return the id of the end token, or -1."""
        ...

    def get_eos_token(self) -> str:
        """Return the end token's markup, or an empty string."""
        ...

    def get_bos_token(self) -> str:
        """Return the begin token's markup, or an empty string."""
        ...

    def get_original_chat_template(self) -> str:
        """Return the template as the model's author wrote it, or an empty string."""
        ...


class Tokenizer:
    """The tokenizer of one model; satisfies `engine.protocols.Tokenizer`.

    `vocab_size` may be larger than the vocabulary: a model's logits are often padded, and the ids without a
    token stand for no bytes. `eos_token_ids` are the end tokens that other files of the model name.
    Texts come back by joining the bytes of tokens, so a text decoded in pieces is the text decoded at once.
    Safe from several threads: the library's `encode` holds the GIL to its end.
    """

    def __init__(
        self, raw: RawTokenizer, *, vocab_size: int | None = None, eos_token_ids: Iterable[TokenId] = ()
    ) -> None:
        self._raw = raw
        vocab = raw.get_vocab()
        self._vocab_size = max(vocab_size or 0, max(vocab.values()) + 1)
        self._pieces = _piece_table(vocab, self._vocab_size)
        self._special_token_ids = _find_special_tokens(raw, vocab)
        self._eos_token_ids = _find_end_tokens(raw, vocab, self._special_token_ids).union(eos_token_ids)
        self._longest_whole_length = 127  # no tokenizer in use cuts texts shorter than this
        self._has_space_in_front = self._puts_space_in_front()

    @property
    def vocab_size(self) -> int:
        """How many token ids there are; ids are below it."""
        return self._vocab_size

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        """The model's end token and the end-of-turn markup it knows."""
        return self._eos_token_ids

    @property
    def special_token_ids(self) -> frozenset[TokenId]:
        """Tokens that are markup, not text."""
        return self._special_token_ids

    @property
    def chat_template(self) -> str | None:
        """The source of the model's own chat template, or None."""
        return self._raw.get_original_chat_template() or None

    @property
    def template_tokens(self) -> dict[str, str]:
        """The markup that chat templates refer to: `bos_token` and `eos_token`, those that there are."""
        tokens = {"bos_token": self._raw.get_bos_token(), "eos_token": self._raw.get_eos_token()}
        return {name: markup for name, markup in tokens.items() if markup}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        """Return the ids of a text; markup such as `<|im_end|>` in it becomes its special token.

        Raises InvalidRequestError for a text that is not valid Unicode, ContextLengthError for one so long
        that the model's tokenizer would silently cut it.
        """
        check_unicode(text, "the text")
        token_ids = self._encode(text, add_special_tokens=add_special_tokens)
        if len(token_ids) > self._longest_whole_length:
            self._check_not_cut(text, len(token_ids))
        return token_ids

    def _encode(self, text: str, *, add_special_tokens: bool) -> list[TokenId]:
        data = self._raw.encode(text, add_special_tokens=add_special_tokens).input_ids.data  # [1, num_tokens]
        token_ids: list[TokenId] = data[0].tolist()
        return token_ids

    def _check_not_cut(self, text: str, num_tokens: int) -> None:
        """Refuse a text that was cut: twice the text has no more tokens then.

        The limit is baked into converted tokenizers and cannot be asked for. Each proof doubles the length
        that is known to come out whole, so there are only a few.
        """
        num_tokens_of_twice = len(self._encode(text + text, add_special_tokens=True))
        if num_tokens_of_twice <= num_tokens:
            raise ContextLengthError(
                f"the text has at least {num_tokens:,} tokens, where this model's tokenizer cuts it; shorten it"
            )
        self._longest_whole_length = num_tokens_of_twice - 1

    def decode(self, token_ids: Sequence[TokenId], *, skip_special_tokens: bool = True) -> str:
        """Return the text of some ids; bytes that are no UTF-8 become U+FFFD.

        Raises InvalidRequestError for an id outside the vocabulary.
        """
        self._check_known(token_ids)
        skipped = self._special_token_ids if skip_special_tokens else frozenset()
        data = b"".join(self._pieces[token_id] for token_id in token_ids if token_id not in skipped)
        if self._has_space_in_front:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: TokenId) -> bytes:
        """Return the bytes one token stands for; a special token's are its literal markup."""
        return self._pieces[token_id]

    def _check_known(self, token_ids: Sequence[TokenId]) -> None:
        for token_id in (min(token_ids, default=0), max(token_ids, default=0)):
            if not 0 <= token_id < self._vocab_size:
                raise InvalidRequestError(
                    f"token id {token_id} is not in the vocabulary; ids are from 0 to {self._vocab_size - 1:,}"
                )

    def _puts_space_in_front(self) -> bool:
        pieces = [self._pieces[token_id] for token_id in self._encode("a", add_special_tokens=False)]
        return b"".join(pieces) == b" a"


def check_unicode(text: str, what: str, *, param: str | None = None) -> None:
    """Refuse a text with half a surrogate pair, as the JSON escape for U+D800 makes one; InvalidRequestError."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"{what} holds the lone surrogate U+{ord(text[error.start]):04X} at character {error.start:,}, "
            "which is half a character; send whole characters",
            param=param,
        ) from error


def _piece_table(vocab: Mapping[bytes, int], size: int) -> list[bytes]:
    """The bytes of each token, by id."""
    table = [b""] * size
    for key, token_id in vocab.items():
        table[token_id] = key
    if _is_sentencepiece(vocab):
        return [_BYTE_PIECES.get(key) or key.replace(_METASPACE, b" ") for key in table]
    return table


def _is_sentencepiece(vocab: Mapping[bytes, int]) -> bool:
    """Whether spaces are written as U+2581; in the other style the keys are the bytes themselves."""
    sample = list(itertools.islice(vocab, 5000))
    num_metaspaces = sum(key.startswith(_METASPACE) for key in sample)
    return b"<0x0A>" in vocab or num_metaspaces > sum(key.startswith(b" ") for key in sample)


def _find_special_tokens(raw: RawTokenizer, vocab: Mapping[bytes, int]) -> frozenset[TokenId]:
    """The tokens that the library leaves out of a text when asked to skip special ones."""
    token_ids = list(vocab.values())
    one_by_one = [[token_id] for token_id in token_ids]
    without = raw.decode(one_by_one, skip_special_tokens=True)
    literal = raw.decode(one_by_one, skip_special_tokens=False)
    # Tokens that are part of a character decode to nothing either way.
    return frozenset(
        token_id for token_id, a, b in zip(token_ids, without, literal, strict=True) if not a and b
    )


def _find_end_tokens(
    raw: RawTokenizer, vocab: Mapping[bytes, int], special: frozenset[TokenId]
) -> frozenset[TokenId]:
    named = {vocab[key] for markup in END_OF_TURN_MARKUP if (key := markup.encode()) in vocab}
    own = raw.get_eos_token_id()
    return frozenset(named & special) | ({own} if own >= 0 else set())
