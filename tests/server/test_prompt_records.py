"""Bodies rendered for explanations."""

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.corpus_templates import PLAIN, SETTINGS_FIRST
from tests.explain.word_tokenizer import WordTokenizer

TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
HELLO = [{"role": "user", "content": "Hello"}]


def test_a_template_that_shows_no_tools_is_named() -> None:
    """Silence would make every tool a hit."""
    renderer = BodyRenderer(ChatTemplate(PLAIN), WordTokenizer())
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        renderer.record("r", {"messages": HELLO, "tools": [TOOL]})
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        renderer.record("r", {"messages": HELLO, "tools": [TOOL], "tool_choice": "none"})


def test_settings_are_variables_of_the_template() -> None:
    """Also those that the server does not serve."""
    renderer = BodyRenderer(ChatTemplate(SETTINGS_FIRST), WordTokenizer())
    body = {"messages": HELLO, "response_format": {"type": "json_object"}, "reasoning": {"effort": "low"}}
    text = renderer.record("r", body).prompt.text
    assert '{"type": "json_object"}' in text and "Reasoning: low" in text


def test_token_ids_are_taken_as_they_are() -> None:
    """Their text is rebuilt for the comparison."""
    tokenizer = WordTokenizer()
    renderer = BodyRenderer(None, tokenizer)
    ids = tokenizer.encode("Han") + tokenizer.encode("zi")
    prompt = renderer.record("r", {"prompt": ids}).prompt
    assert (list(prompt.token_ids), prompt.text, prompt.char_starts) == (ids, "Hanzi", [0, 3])


def test_without_a_template_a_chat_is_refused() -> None:
    """A raw prompt is not."""
    with pytest.raises(InvalidRequestError, match="no chat template"):
        BodyRenderer(None, WordTokenizer()).record("r", {"messages": HELLO})
