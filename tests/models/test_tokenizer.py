"""The wrapper around a library's tokenizer: bytes, markup, limits. A stand-in library; the real one is tested below."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from anaphora.errors import ContextLengthError, InvalidRequestError
from anaphora.models.spans import token_char_starts
from anaphora.models.tokenizer import Tokenizer, check_unicode

BYTES = {bytes([byte]): 100 + byte for byte in range(256)}
BYTE_LEVEL = {b"<|endoftext|>": 0, b"<|im_start|>": 1, b"<|im_end|>": 2, b" Hello": 3, b"<b>": 4, **BYTES}
SENTENCEPIECE = {
    b"<s>": 0,
    b"</s>": 1,
    "\u2581".encode(): 2,
    "\u2581Hello".encode(): 3,
    b"a": 4,
    "\u2581a".encode(): 5,
    **{f"<0x{byte:02X}>".encode(): 100 + byte for byte in range(256)},
}


@dataclass
class Library:
    """Behaves like `openvino_genai.Tokenizer`: longest match first, special tokens by their markup, a silent limit."""

    vocab: dict[bytes, int]
    special: frozenset[int]
    eos: int = -1
    bos_markup: str = ""
    space_in_front: bool = False
    limit: int = 1_000_000
    template: str = ""
    encoded_lengths: list[int] = field(default_factory=list)

    def encode(self, text: str, /, *, add_special_tokens: bool) -> Any:
        rest = ("\u2581" + text.replace(" ", "\u2581") if self.space_in_front else text).encode()
        self.encoded_lengths.append(len(text))
        token_ids = []
        while rest:
            piece = next(rest[:n] for n in range(20, 0, -1) if rest[:n] in self.vocab)
            token_ids.append(self.vocab[piece])
            rest = rest[len(piece) :]
        # The real one keeps the end.
        data = np.array([token_ids[-self.limit :]], dtype=np.int64).reshape(1, -1)
        return SimpleNamespace(input_ids=SimpleNamespace(data=data))

    def decode(self, tokens: list[list[int]], /, *, skip_special_tokens: bool) -> list[str]:
        keys = {token_id: key for key, token_id in self.vocab.items()}
        skipped = self.special if skip_special_tokens else frozenset[int]()
        return [
            b"".join(keys[t] for t in ids if t not in skipped).decode("utf-8", "ignore") for ids in tokens
        ]

    def get_vocab(self) -> dict[bytes, int]:
        return self.vocab

    def get_eos_token_id(self) -> int:
        return self.eos

    def get_eos_token(self) -> str:
        return next((key.decode() for key, token_id in self.vocab.items() if token_id == self.eos), "")

    def get_bos_token(self) -> str:
        return self.bos_markup

    def get_original_chat_template(self) -> str:
        return self.template


def byte_level(**changes: Any) -> Library:
    return Library(**{"vocab": BYTE_LEVEL, "special": frozenset({0, 1, 2}), "eos": 2, **changes})


def sentencepiece(**changes: Any) -> Library:
    return Library(
        **{"vocab": SENTENCEPIECE, "special": frozenset({0, 1}), "eos": 1, "space_in_front": True, **changes}
    )


def test_special_tokens_are_those_the_library_skips() -> None:
    """Not whatever looks like markup: `<b>` is text here. Halves of characters decode to nothing and are no specials."""
    assert Tokenizer(byte_level()).special_token_ids == {0, 1, 2}


def test_a_text_ends_with_the_models_end_token_and_with_any_end_of_turn_markup() -> None:
    """`<|endoftext|>` stops too, though the model's file names `<|im_end|>` only."""
    assert Tokenizer(byte_level()).eos_token_ids == {0, 2}


def test_end_tokens_that_other_files_of_the_model_name_count_too() -> None:
    """Such as the list in `generation_config.json`."""
    assert Tokenizer(byte_level(), eos_token_ids=[4]).eos_token_ids == {0, 2, 4}


def test_end_of_turn_markup_that_is_ordinary_text_to_the_model_does_not_stop() -> None:
    """Only special tokens count."""
    assert Tokenizer(byte_level(special=frozenset({1, 2}))).eos_token_ids == {2}


def test_a_model_without_an_end_token_has_none() -> None:
    """The library's -1 is not an id."""
    assert Tokenizer(Library({b"a": 0, b" ": 1}, frozenset())).eos_token_ids == frozenset()


def test_the_vocabulary_may_be_padded_to_the_size_of_the_logits() -> None:
    """Ids without a token stand for no bytes, so a model that samples one writes nothing."""
    tokenizer = Tokenizer(byte_level(), vocab_size=400)
    assert tokenizer.vocab_size == 400
    assert tokenizer.token_bytes(399) == b""
    assert tokenizer.decode([100 + ord("a"), 399, 100 + ord("b")]) == "ab"
    assert Tokenizer(byte_level()).vocab_size == 356


def test_the_bytes_of_a_token_are_its_key_in_a_byte_level_vocabulary() -> None:
    """Special tokens stand for their markup."""
    tokenizer = Tokenizer(byte_level())
    assert [tokenizer.token_bytes(i) for i in (2, 3, 100 + 0xC3)] == [b"<|im_end|>", b" Hello", b"\xc3"]


def test_the_bytes_of_a_sentencepiece_token_have_real_spaces_and_real_bytes() -> None:
    """U+2581 is a space, `<0x0A>` is a line end."""
    tokenizer = Tokenizer(sentencepiece())
    assert [tokenizer.token_bytes(i) for i in (0, 2, 3, 110)] == [b"<s>", b" ", b" Hello", b"\n"]


def test_the_space_a_sentencepiece_tokenizer_puts_in_front_is_no_text() -> None:
    """It goes away once, at the beginning; later spaces stay."""
    tokenizer = Tokenizer(sentencepiece())
    assert tokenizer.encode("Hello Hello") == [3, 3]
    assert tokenizer.decode([3, 3]) == "Hello Hello"
    starts = token_char_starts("Hello Hello", [b" Hello", b" Hello"])
    assert starts is not None
    assert starts.tolist() == [0, 5]


def test_a_sentencepiece_tokenizer_that_puts_no_space_in_front_keeps_all_of_them() -> None:
    """Found out by encoding a letter, not by the name of the family."""
    assert Tokenizer(sentencepiece(space_in_front=False)).decode([3, 3]) == " Hello Hello"


def test_decode_skips_special_tokens_only_when_asked() -> None:
    """Their markup is text otherwise."""
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.decode([1, 3, 2]) == " Hello"
    assert tokenizer.decode([1, 3, 2], skip_special_tokens=False) == "<|im_start|> Hello<|im_end|>"


def test_bytes_that_are_no_utf_8_become_replacement_characters() -> None:
    """The library would drop them."""
    assert Tokenizer(byte_level()).decode([100 + 0xF0, 100 + 0x9F, 100 + ord("a")]) == "\ufffda"


@pytest.mark.parametrize("token_id", [-1, 356])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    """Python would take -1 for the last one."""
    with pytest.raises(
        InvalidRequestError, match=f"token id {token_id} is not in the vocabulary; ids are from 0 to 355"
    ):
        Tokenizer(byte_level()).decode([3, token_id])


def test_half_a_surrogate_pair_is_refused_where_it_stands() -> None:
    r"""JSON's "\ud800" becomes such a string in Python."""
    with pytest.raises(
        InvalidRequestError, match=r"the text holds the lone surrogate U\+D800 at character 2"
    ):
        Tokenizer(byte_level()).encode("é-\ud800")
    with pytest.raises(InvalidRequestError) as caught:
        check_unicode("\udfff", "prompt[1]", param="prompt[1]")
    assert caught.value.param == "prompt[1]"


@pytest.mark.parametrize("text", ["", "\0", "a\r\nb", "😀", "مرحبا", "a\u0301", "\ufeff", "\uffff"])
def test_any_unicode_text_comes_back(text: str) -> None:
    """NUL, line ends, emoji, right to left, combining marks, a byte order mark, a noncharacter, nothing at all."""
    tokenizer = Tokenizer(byte_level())
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_text_the_library_would_cut_is_refused() -> None:
    """The limit is baked into the converted tokenizer, which keeps the end and says nothing."""
    tokenizer = Tokenizer(byte_level(limit=1000))
    assert len(tokenizer.encode("x" * 999)) == 999
    with pytest.raises(
        ContextLengthError, match="at least 1,000 tokens, where this model's tokenizer cuts it; shorten it"
    ):
        tokenizer.encode("x" * 1001)
    assert len(tokenizer.encode("x" * 999)) == 999


def test_texts_that_are_shown_to_come_out_whole_are_not_checked_again() -> None:
    """Each check doubles the known length, so long prompts cost one encoding, not two."""
    library = byte_level()
    tokenizer = Tokenizer(library)
    library.encoded_lengths.clear()
    for length in (127, 128, 200, 255, 256, 300, 511):
        tokenizer.encode("x" * length)
    assert library.encoded_lengths == [127, 128, 256, 200, 255, 256, 512, 300, 511]


def test_the_models_own_template_and_markup_are_handed_on() -> None:
    """What there is not, is None or left out."""
    tokenizer = Tokenizer(byte_level(template="{{ x }}", bos_markup="<|im_start|>"))
    assert tokenizer.chat_template == "{{ x }}"
    assert tokenizer.template_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    assert Tokenizer(byte_level()).chat_template is None
    assert Tokenizer(byte_level(eos=-1)).template_tokens == {}
