"""The tokenizer and the chat template of the demo model, for real."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.engine.detokenize import IncrementalDetokenizer
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.spans import token_char_starts
from anaphora.models.tokenizer import Tokenizer
from anaphora.request import SamplingParams

pytestmark = pytest.mark.model

TEXTS = [
    "",
    "The capital of France is Paris.",
    " leading and trailing ",
    "a\0b",
    "a\r\nb\rc\n\n\n",
    "naïve café e\u0301",
    "😀👩‍👩‍👧 𐍈",
    "مرحبا بالعالم",
    "日本語テキスト",
    "\ufeff\u2028\u00a0\u200b\ufffd\uffff\U0010ffff",
    "<|im_start|>user\nhi<|im_end|>\n",
    "def f(x):\n\treturn {'a': x}  # 12,345",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_and_each_token_has_its_place(text: str, demo_tokenizer: Tokenizer) -> None:
    """Its tokens spell it byte for byte, so the places are exact."""
    token_ids = demo_tokenizer.encode(text)
    assert demo_tokenizer.decode(token_ids, skip_special_tokens=False) == text
    starts = token_char_starts(text, [demo_tokenizer.token_bytes(i) for i in token_ids])
    assert starts is not None
    assert len(starts) == len(token_ids)


def test_the_ids_of_a_known_text(demo_tokenizer: Tokenizer) -> None:
    """As the Hugging Face tokenizer gives them, and nothing added around them."""
    assert demo_tokenizer.encode("hello <|im_end|> x\n") == [28120, 216, 2, 1792, 198]
    assert demo_tokenizer.encode("hello", add_special_tokens=False) == [28120]


def test_special_and_end_tokens(demo_tokenizer: Tokenizer) -> None:
    """Seventeen are markup; a text ends with `<|im_end|>` or `<|endoftext|>`."""
    assert demo_tokenizer.vocab_size == 49_152
    assert demo_tokenizer.special_token_ids == frozenset(range(17))
    assert demo_tokenizer.eos_token_ids == {0, 2}
    assert demo_tokenizer.token_bytes(2) == b"<|im_end|>"
    assert demo_tokenizer.template_tokens == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}


def test_several_threads_get_the_same_as_one(demo_tokenizer: Tokenizer) -> None:
    """The event loop and its helpers encode at the same time."""
    rng = random.Random(1)
    texts = ["".join(rng.choices("abc dé😀م\n{}", k=rng.randrange(1, 2000))) for _ in range(100)]
    alone = [demo_tokenizer.encode(text) for text in texts]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(demo_tokenizer.encode, texts * 5)) == alone * 5


def test_a_long_text_is_not_cut(demo_tokenizer: Tokenizer) -> None:
    """The tokenizer inside a GGUF file keeps only the last 8,192 tokens, unless that limit is lifted."""
    token_ids = demo_tokenizer.encode("first" + " The system allocates memory." * 4000)
    assert demo_tokenizer.decode(token_ids[:1]) == "first"
    assert len(token_ids) == 28_001


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_tokens_come_out_the_same_one_by_one_and_at_once(
    data: st.DataObject, demo_tokenizer: Tokenizer
) -> None:
    """Random ids are mostly halves of characters and markup: the hardest there is."""
    token_ids = data.draw(st.lists(st.integers(0, 48_000) | st.integers(0, 255), max_size=30))
    detokenizer = IncrementalDetokenizer(demo_tokenizer, SamplingParams())
    text = "".join(detokenizer.push([token_id]) for token_id in token_ids) + detokenizer.finish()
    assert text == demo_tokenizer.decode(token_ids)


def test_the_prompt_of_a_chat_has_every_token_in_a_part(demo_tokenizer: Tokenizer) -> None:
    """Preamble, messages and generation prompt follow one another without a gap, and contents lie inside."""
    source = demo_tokenizer.chat_template
    assert source is not None
    renderer = ChatRenderer(
        ChatTemplate(source, special_tokens=demo_tokenizer.template_tokens), demo_tokenizer
    )
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris. 😀"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "And of"}, {"type": "text", "text": " Spain?"}],
        },
    ]
    token_ids, spans = renderer.render(messages)
    assert spans is not None
    outer = [span for span in spans.spans if "content" not in span.path]
    assert [(span.path, span.token_start) for span in outer] == [
        ("template-preamble", 0),
        ("messages[0]", 21),
        ("messages[1]", 33),
        ("messages[2]", 43),
        ("generation-prompt", 52),
    ]
    assert [span.token_end for span in outer] == [21, 33, 43, 52, len(token_ids)]
    contents = {s.path: demo_tokenizer.decode(token_ids[s.token_start : s.token_end]) for s in spans.spans}
    assert contents["messages[0].content"] == "What is the capital of France?"
    assert contents["messages[1].content"] == "Paris. 😀"
    assert contents["messages[2].content[0]"] == "And of"
    assert contents["messages[2].content[1]"] == " Spain?"
