"""Settings in other bytes, tools that two applications share, and sources that carry numbers."""

from typing import Any

from anaphora.explain.endless_cache import explain_after
from anaphora.explain.records import Explanation
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.corpus_templates import SETTINGS_FIRST, TOOLS_FIRST
from tests.explain.support import LAW, chat
from tests.explain.word_tokenizer import WordTokenizer


def ask(new: dict[str, Any], old: dict[str, Any], template: str) -> Explanation:
    renderer = BodyRenderer(ChatTemplate(template), WordTokenizer())
    return explain_after(renderer.record("new", new), [renderer.record("old", old)], LAW, renderer)


def test_a_setting_with_its_keys_in_another_order_is_json_written_otherwise() -> None:
    """It is the same setting, and not the template's doing."""
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    other = dict(reversed(schema.items()))
    found = ask(chat("Hi", response_format=other), chat("Hi", response_format=schema), SETTINGS_FIRST)
    assert (found.cause, found.path, found.also) == ("json_order", "response_format", ())


def test_the_format_of_the_responses_api_is_a_setting() -> None:
    """Templates know it as `response_format`."""
    plain = {"instructions": "Be kind.", "input": "Who is there?"}
    asked = {**plain, "text": {"format": {"type": "json_object"}}}
    found = ask(asked, plain, SETTINGS_FIRST)
    assert (found.cause, found.path) == ("settings", "text.format")


def test_a_prompt_that_shares_whole_tools_has_been_seen() -> None:
    """Whatever stands behind them."""
    tools = [
        {
            "type": "function",
            "function": {"name": f"look_{i}", "description": "Look around. " * 9, "parameters": {}},
        }
        for i in range(2)
    ]
    one = {
        "messages": [{"role": "system", "content": "Sail north."}, {"role": "user", "content": "Ahoy"}],
        "tools": tools,
    }
    two = {
        "messages": [{"role": "system", "content": "Bake bread."}, {"role": "user", "content": "Rye?"}],
        "tools": tools,
    }
    found = ask(one, two, TOOLS_FIRST)
    assert found.cause == "ok_partial"
    assert found.reused_tokens > 16


def test_sources_with_numbers_of_their_own_are_reordered_not_counted() -> None:
    """The number that differs first is that of another source."""
    texts = [
        f"wiki/{n}: {word * 6}" for n, word in ((15, "ships sail north "), (86, "bread is baked at dawn "))
    ]
    old, new = (
        "\n\n".join(f"Source {i + 1} ({t})" for i, t in enumerate(order)) for order in (texts, texts[::-1])
    )
    found = ask(chat(old, "I see.", "So?"), chat(new, "I see.", "So?"), TOOLS_FIRST)
    assert found.cause == "retrieved_docs_reordered"
