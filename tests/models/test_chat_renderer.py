"""Messages → token ids and their parts, with a tokenizer whose tokens are bytes."""

from anaphora.ids import TokenId
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.spans import Span, SpanMap
from tests.fakes import ByteTokenizer
from tests.models import templates

MESSAGES = [{"role": "user", "content": "é?"}]


class Lowercasing(ByteTokenizer):
    """Forgets about capital letters, as some models do."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        return super().encode(text.lower(), add_special_tokens=add_special_tokens)


def test_each_part_has_its_tokens() -> None:
    """Markup is one token each, the é two, everything else one per character."""
    renderer = ChatRenderer(ChatTemplate(templates.CHATML), ByteTokenizer(bos=True))
    token_ids, spans = renderer.render(MESSAGES)
    start, end = ByteTokenizer.special_id("<|im_start|>"), ByteTokenizer.special_id("<|im_end|>")
    assert token_ids == [start, *b"user\n", *"é?".encode(), end, *b"\n", start, *b"assistant\n"]
    assert spans == SpanMap(
        (
            Span("messages[0]", 0, 30, 0, 11),
            Span("messages[0].content", 17, 19, 6, 9),
            Span("generation-prompt", 30, 52, 11, 22),
        )
    )


def test_no_begin_token_is_added_to_the_templates_own() -> None:
    """A second one would change every answer; the template writes it where the model wants it."""
    template = ChatTemplate(
        "{{ bos_token }}{{ messages[0].content }}", special_tokens={"bos_token": "<|bos|>"}
    )
    token_ids, _ = ChatRenderer(template, ByteTokenizer(bos=True)).render([{"role": "user", "content": "a"}])
    assert token_ids == [ByteTokenizer.special_id("<|bos|>"), ord("a")]


def test_without_a_generation_prompt_there_is_no_such_part() -> None:
    """The last token is that of the last message."""
    renderer = ChatRenderer(ChatTemplate(templates.CHATML), ByteTokenizer())
    token_ids, spans = renderer.render(MESSAGES, add_generation_prompt=False)
    assert spans is not None
    assert [(span.path, span.token_end) for span in spans.spans] == [
        ("messages[0]", 11),
        ("messages[0].content", 9),
    ]
    assert len(token_ids) == 11


def test_tokens_that_do_not_spell_the_text_have_no_parts() -> None:
    """The prompt is served all the same."""
    token_ids, spans = ChatRenderer(ChatTemplate(templates.CHATML), Lowercasing()).render(
        [{"role": "user", "content": "A"}]
    )
    assert spans is None
    assert token_ids[6] == ord("a")
