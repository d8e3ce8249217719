"""The two vendors' diagnoses: every code, every shape, and the numbers."""

import re
from pathlib import Path
from typing import Any

import pytest

from anaphora.explain import vendors
from anaphora.explain.comparison import Comparison
from anaphora.explain.endless_cache import explain_after
from anaphora.explain.records import Explanation, Lookup, PromptRecord
from anaphora.explain.vendors import (
    NamedComparison,
    anthropic_diagnostics,
    named_comparison,
    openai_diagnostics,
)
from anaphora.explain.verdict import Case, explain
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.accuracy import compiled
from tests.explain.corpus import cases
from tests.explain.corpus_templates import PLAIN
from tests.explain.support import LAW, RENDERER, STORY, chat, record
from tests.explain.word_tokenizer import WordTokenizer

DOCS = (Path(__file__).parents[2] / "docs" / "explain.md").read_text("utf-8")

OPENAI_REASONS = {
    "model_changed", "prompt_cache_key_changed", "tools_changed", "text_format_changed", "reasoning_effort_changed",
    "verbosity_changed", "context_compacted", "input_changed", "service_tier_changed",
}  # fmt: skip
ANTHROPIC_TYPES = {
    "model_changed", "system_changed", "tools_changed", "messages_changed", "previous_message_not_found", "unavailable",
}  # fmt: skip

# What each code is called where the requests part in the messages, or, for the codes of the cache, not at all.
COLUMNS: dict[str, tuple[str, str | None]] = {
    "bypassed": ("unavailable", None),
    "too_short": ("unavailable", None),
    "namespace": ("unavailable", None),
    "in_flight": ("unavailable", None),
    "evicted": ("unavailable", None),
    "expired": ("unavailable", None),
    "other_replica": ("unavailable", None),
    "tier_refused": ("unavailable", None),
    "tier_declined": ("unavailable", None),
    "architecture": ("unavailable", None),
    "ok_partial": ("cache_hit", None),
    "marker": ("cache_hit", None),
    "special_tokens": ("input_changed", "messages_changed"),
    "client_stamp": ("input_changed", "messages_changed"),
    "user_in_system": ("input_changed", "messages_changed"),
    "volatile_value": ("input_changed", "messages_changed"),
    "tool_order": ("tools_changed", "tools_changed"),
    "tool_set": ("tools_changed", "tools_changed"),
    "settings": ("reasoning_effort_changed", "messages_changed"),
    "whitespace": ("input_changed", "messages_changed"),
    "unicode": ("input_changed", "messages_changed"),
    "json_order": ("input_changed", "messages_changed"),
    "json_format": ("input_changed", "messages_changed"),
    "template": ("input_changed", "messages_changed"),
    "retokenised": ("input_changed", "messages_changed"),
    "retrieved_docs_reordered": ("input_changed", "messages_changed"),
    "history_dropped": ("context_compacted", "messages_changed"),
    "history_edited": ("input_changed", "messages_changed"),
    "history_moved": ("input_changed", "messages_changed"),
    "helper_call": ("input_changed", "messages_changed"),
    "system_edited": ("input_changed", "messages_changed"),
    "never_seen": ("input_changed", "messages_changed"),
}
CONTENT = sorted(code for code, (_, kind) in COLUMNS.items() if kind)
CACHE = sorted(code for code, (_, kind) in COLUMNS.items() if not kind)


def said(cause: str, *also: str, reused: int = 32, **fields: Any) -> NamedComparison:
    """100 tokens, of which 96 were reusable; the requests part in the messages at token 41, if `also` says so."""
    explanation = Explanation(
        request_id="r-2",
        prompt_tokens=100,
        reused_tokens=reused,
        best_possible_reuse=96,
        cause=cause,
        also=also,
    )
    is_content = not {cause, *also}.isdisjoint(CONTENT)
    place = {"diverged_at": 41, "section": "messages"} if is_content else {}
    setting = {"setting": "reasoning_effort"} if "settings" in {cause, *also} else {}
    return NamedComparison(
        explanation=explanation, **{"block_size": 16, "reusable_tokens": 96, **place, **setting, **fields}
    )


def openai(found: NamedComparison) -> str:
    """The reason, or the type where there is none; the shape is checked."""
    answer = openai_diagnostics(found)
    if answer["type"] != "cache_miss":
        assert answer in ({"type": "cache_hit"}, {"type": "unavailable"})
        return str(answer["type"])
    assert set(answer) == {"type", "reason", "cache_missed_tokens", "comparison_reusable_tokens"}
    assert answer["reason"] in OPENAI_REASONS
    assert 0 <= answer["cache_missed_tokens"] <= answer["comparison_reusable_tokens"]
    return str(answer["reason"])


def anthropic(found: NamedComparison) -> str | None:
    """The type, or None; the shape is checked."""
    answer = anthropic_diagnostics(found)
    if answer is None:
        return None
    reason = answer["cache_miss_reason"]
    assert set(answer) == {"cache_miss_reason"} and reason["type"] in ANTHROPIC_TYPES
    assert ("cache_missed_input_tokens" in reason) == reason["type"].endswith("_changed")
    return str(reason["type"])


# ---------------------------------------------------------------------------------------------------------------------
# Every code


@pytest.mark.parametrize("code", sorted(COLUMNS))
def test_every_code_has_its_word_in_both_columns(code: str) -> None:
    """As the table of docs/explain.md has it."""
    assert (openai(said(code)), anthropic(said(code))) == COLUMNS[code]


def test_the_codes_are_all_that_explanations_have() -> None:
    """Those of the docs, which list what is answered, and of the module, which raises for any other."""
    table = DOCS.split("## The codes\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {code for cell in cells for code in re.findall(r"`(\w+)`", cell)}
    groups = (vendors.CONTENT_CODES, vendors.SAME_REQUEST_CODES, vendors.NOTHING_LOST_CODES)
    assert set(COLUMNS) == documented == set().union(*groups)
    assert len(COLUMNS) == sum(map(len, groups))
    section = DOCS.split("## The vendors' own words\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    assert documented == {code for row in rows for code in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize("codes", [("gremlins",), ("evicted", "gremlins"), ("tool_set", "gremlins")])
def test_an_unknown_code_is_an_error_and_no_guess(codes: tuple[str, ...]) -> None:
    """Wherever it stands."""
    for translate in (openai_diagnostics, anthropic_diagnostics):
        with pytest.raises(ValueError, match="'gremlins' has no translation"):
            translate(said(*codes))


@pytest.mark.parametrize("cache", CACHE)
@pytest.mark.parametrize("content", CONTENT)
def test_what_changed_in_the_request_goes_before_what_the_cache_did(cache: str, content: str) -> None:
    """The vendors compare requests, whether the cache hit or not."""
    found = said(cache, content)
    assert (openai(found), anthropic(found)) == COLUMNS[content]


# ---------------------------------------------------------------------------------------------------------------------
# What a code alone does not say


@pytest.mark.parametrize("code", sorted(COLUMNS))
def test_another_model_comes_first_and_loses_everything(code: str) -> None:
    """No block of another model can be reused."""
    found = said(code, is_model_changed=True)
    assert openai_diagnostics(found) == {
        "type": "cache_miss",
        "reason": "model_changed",
        "cache_missed_tokens": 96,
        "comparison_reusable_tokens": 96,
    }
    assert anthropic_diagnostics(found) == {
        "cache_miss_reason": {"type": "model_changed", "cache_missed_input_tokens": 96}
    }


@pytest.mark.parametrize("section", ["tools", "system", "messages"])
@pytest.mark.parametrize("code", sorted(set(CONTENT) - {"tool_order", "tool_set"}))
def test_anthropic_is_told_the_section_in_which_the_prompts_part(code: str, section: str) -> None:
    """Whatever the code, but for the codes of tools."""
    assert anthropic(said(code, section=section)) == f"{section}_changed"


@pytest.mark.parametrize("code", ["volatile_value", "json_order", "json_format", "never_seen"])
def test_openai_is_told_of_the_tools_where_the_tools_differ(code: str) -> None:
    """And of the input elsewhere."""
    assert openai(said(code, section="tools")) == "tools_changed"
    assert openai(said(code, section="system")) == "input_changed"


@pytest.mark.parametrize("code", ["template", "retokenised", "special_tokens"])
def test_tools_that_were_sent_alike_are_no_change_of_tools(code: str) -> None:
    """The template or the tokenizer did it, and only a lost block makes it a change."""
    assert openai(said(code, section="tools")) == "input_changed"
    late = said(code, diverged_at=97)
    assert (openai(late), anthropic(late)) == ("cache_hit", None)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("response_format", "text_format_changed"),
        ("response_format.type", "text_format_changed"),
        ("text.format", "text_format_changed"),
        ("output_config.format", "text_format_changed"),
        ("reasoning_effort", "reasoning_effort_changed"),
        ("reasoning.effort", "reasoning_effort_changed"),
        ("chat_template_kwargs.reasoning_effort", "reasoning_effort_changed"),
        ("verbosity", "verbosity_changed"),
        ("text.verbosity", "verbosity_changed"),
        ("reasoning.summary", "input_changed"),
        ("tool_choice", "input_changed"),
        ("documents", "input_changed"),
        ("chat_template_kwargs.enable_thinking", "input_changed"),
    ],
)
def test_each_setting_has_its_reason(setting: str, reason: str) -> None:
    """Or none of its own; then the input differs."""
    assert openai(said("settings", setting=setting)) == reason


@pytest.mark.parametrize("setting", [None, "temperature"])
def test_a_setting_that_no_template_renders_is_an_error(setting: str | None) -> None:
    """It cannot have been the cause."""
    with pytest.raises(ValueError, match="no setting that a template renders"):
        openai_diagnostics(said("settings", setting=setting))


def test_a_setting_in_the_templates_own_text_is_in_no_section() -> None:
    """Anthropic's word for parameters besides model, tools, system and messages."""
    assert anthropic(said("settings", section=None)) == "unavailable"


def test_an_edited_history_is_compacted_where_a_summary_stands_in_its_place() -> None:
    """OpenAI tells the two apart."""
    assert openai(said("history_edited", is_summarised=True)) == "context_compacted"
    assert openai(said("history_moved", is_summarised=True)) == "input_changed"


def test_a_cache_key_is_named_only_where_it_changed_the_replica() -> None:
    """It lost what was not reused; Anthropic has no word for it."""
    found = said("other_replica", has_key_changed_replica=True)
    assert openai_diagnostics(found) == {
        "type": "cache_miss",
        "reason": "prompt_cache_key_changed",
        "cache_missed_tokens": 64,
        "comparison_reusable_tokens": 96,
    }
    assert anthropic(found) is None
    assert (
        openai(said("other_replica", has_key_changed_replica=True, is_model_changed=True)) == "model_changed"
    )
    assert openai(said("evicted", has_key_changed_replica=True)) == "unavailable"


# ---------------------------------------------------------------------------------------------------------------------
# The numbers and the other shapes


@pytest.mark.parametrize(
    ("diverged_at", "missed"), [(0, 96), (15, 96), (16, 80), (41, 64), (95, 16), (96, 0), (97, 0), (200, 0)]
)
def test_missed_tokens_begin_with_the_block_that_holds_the_divergence(diverged_at: int, missed: int) -> None:
    """And end with the last published block."""
    found = said("volatile_value", diverged_at=diverged_at)
    assert openai_diagnostics(found)["cache_missed_tokens"] == missed
    answer = anthropic_diagnostics(found)
    assert answer is not None and answer["cache_miss_reason"]["cache_missed_input_tokens"] == missed


@pytest.mark.parametrize("code", CACHE)
def test_a_divergence_without_a_code_counts_where_it_lost_a_block(code: str) -> None:
    """Another last question is a change of the messages, and no fault."""
    early, late = (said(code, diverged_at=place, section="messages") for place in (41, 96))
    assert (openai(early), anthropic(early)) == ("input_changed", "messages_changed")
    assert (openai(late), anthropic(late)) == COLUMNS[code]


def test_a_hit_without_a_reused_token_is_none() -> None:
    """`cache_hit` would be a lie."""
    assert openai(said("ok_partial", reused=0)) == "unavailable"


def test_a_request_that_cannot_be_compared_has_its_own_shapes() -> None:
    """The same for unknown, expired and foreign ids; a first turn has nothing to compare."""
    assert openai_diagnostics("not_found") == {"type": "comparison_response_not_found"}
    assert openai_diagnostics("unavailable") == {"type": "unavailable"}
    assert anthropic_diagnostics("not_found") == {"cache_miss_reason": {"type": "previous_message_not_found"}}
    assert anthropic_diagnostics("unavailable") == {"cache_miss_reason": {"type": "unavailable"}}
    assert anthropic_diagnostics(None) is None
    with pytest.raises(ValueError, match="no outcome of a comparison"):
        openai_diagnostics("lost")  # type: ignore[arg-type]


def test_reusable_tokens_are_whole_blocks() -> None:
    """Anything else was not published."""
    with pytest.raises(AssertionError, match="40 tokens are no whole blocks of 16"):
        said("ok_partial", reusable_tokens=40)


# ---------------------------------------------------------------------------------------------------------------------
# From real comparisons


def compared(old: PromptRecord, new: PromptRecord, renderer: BodyRenderer = RENDERER) -> NamedComparison:
    reusable = LAW.whole_blocks(len(old.token_ids))
    found = explain_after(new, [old], LAW, renderer)
    return named_comparison(found, Comparison(old, new, renderer), LAW, reusable_tokens=reusable)


def both(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, str | None]:
    found = compared(record("r-1", old), record("r-2", new))
    return openai(found), anthropic(found)


QUESTION = (
    "Which of the ships that came in this morning has already left for the islands, and who was on board?"
)


def test_a_conversation_that_goes_on_is_a_hit() -> None:
    """The usual case."""
    assert both(chat(QUESTION), chat(QUESTION, "None.", "And now?")) == ("cache_hit", None)


def test_a_clock_is_told_by_the_message_that_holds_it() -> None:
    """System or user."""
    system = (chat(QUESTION, system=f"It is 14:02:{s}. {STORY}") for s in (31, 58))
    assert both(*system) == ("input_changed", "system_changed")
    user = (chat(f"It is 14:02:{s}. {QUESTION}", "None.", "Why?") for s in (31, 58))
    assert both(*user) == ("input_changed", "messages_changed")


def test_a_system_text_behind_the_first_turn_is_a_message() -> None:
    """Anthropic's system section stands before all messages."""
    bodies = (chat(QUESTION, "None.") for _ in range(2))
    old, new = bodies
    for body, second in ((old, 31), (new, 58)):
        body["messages"].append({"role": "system", "content": f"It is 14:02:{second}. {STORY}"})
        body["messages"].append({"role": "user", "content": QUESTION})
    assert both(old, new) == ("input_changed", "messages_changed")


def test_a_system_text_that_is_gone_is_a_change_of_the_system() -> None:
    """It comes before the message that stands there now."""
    new = chat(QUESTION)
    del new["messages"][0]
    assert both(chat(QUESTION), new)[1] == "system_changed"


def test_another_last_question_is_a_change_of_the_messages() -> None:
    """Although everything was reused that could be."""
    old, new = chat(f"One. {QUESTION * 2}"), chat("Two. How deep is the harbour?")
    found = compared(record("r-1", old), record("r-2", new))
    assert found.explanation.cause == "ok_partial"
    assert (openai(found), anthropic(found)) == ("input_changed", "messages_changed")


def test_another_model_with_the_same_words_is_a_change_of_the_model() -> None:
    """A salt is no model, and no vendor has a word for it."""
    old, new = chat(QUESTION, model="a"), chat(QUESTION, model="b")
    assert both(old, new) == ("model_changed", "model_changed")
    salted = chat(QUESTION, model="a", cache_salt="x")
    assert both(old, salted) == ("unavailable", None)


def test_a_summary_in_place_of_turns_is_a_compaction() -> None:
    """Of the history."""
    turns = [QUESTION, "None did. " * 20, "And the day before?", "All of them left. " * 20, "Thank you."]
    summary = "Summary of the conversation so far: ships were asked about."
    assert both(chat(*turns), chat(summary, "Noted.", "Thank you.")) == (
        "context_compacted",
        "messages_changed",
    )


def test_a_turn_that_was_cut_without_a_summary_is_a_change_of_the_input() -> None:
    """Although the word for it may stand in both."""
    turns = [QUESTION, f"A summary: {QUESTION * 3}", "And the day before?", "All of them left.", "Thank you."]
    cut = [turns[0], turns[1][:160] + "[truncated]", *turns[2:]]
    found = compared(record("r-1", chat(*turns)), record("r-2", chat(*cut)))
    assert found.explanation.cause == "history_edited"
    assert (openai(found), anthropic(found)) == ("input_changed", "messages_changed")


def test_a_prompt_that_ends_within_the_earlier_one_differs_in_nothing() -> None:
    """What the earlier one has behind it could not have been reused; nor does one that goes on."""
    long, short = {"prompt": STORY * 3}, {"prompt": STORY}
    found = compared(record("r-1", long), record("r-2", short))
    grown = chat(QUESTION, "None.", add_generation_prompt=False)
    longer = compared(record("r-1", chat(QUESTION, add_generation_prompt=False)), record("r-2", grown))
    assert (longer.diverged_at, longer.section) == (None, None)
    assert (found.diverged_at, found.section) == (None, None)
    assert (openai(found), anthropic(found)) == ("cache_hit", None)


def test_an_evicted_prompt_that_was_sent_again_is_no_change() -> None:
    """The vendors' comparison finds nothing, and the explanation has the truth."""
    old, new = record("r-1", chat(QUESTION)), record("r-2", chat(QUESTION))
    num_blocks = (len(new.token_ids) - 1) // LAW.block_size
    case = Case(
        request=new, lookup=Lookup(0, ("evicted",) * num_blocks), law=LAW, longest=old, render=RENDERER
    )
    reusable = LAW.whole_blocks(len(old.token_ids))
    found = named_comparison(explain(case), Comparison(old, new, RENDERER), LAW, reusable_tokens=reusable)
    assert found.explanation.cause == "evicted"
    assert (openai(found), anthropic(found)) == ("unavailable", None)


TUNED = BodyRenderer(
    ChatTemplate("{%- if text %}{{- text.verbosity + text.format.type }}{%- endif %}" + PLAIN),
    WordTokenizer(),
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({"format": {"type": "text"}, "verbosity": "high"}, "verbosity_changed"),
        ({"format": {"type": "json_object"}, "verbosity": "low"}, "text_format_changed"),
    ],
)
def test_the_field_of_a_setting_is_found(text: dict[str, Any], reason: str) -> None:
    """`text` holds the format and the verbosity; the template writes both before all messages."""
    before = {"format": {"type": "text"}, "verbosity": "low"}
    old, new = (
        TUNED.record("r-1", chat(QUESTION, text=before)),
        TUNED.record("r-2", chat(QUESTION, text=text)),
    )
    found = compared(old, new, TUNED)
    assert found.explanation.cause == "settings"
    assert (openai(found), anthropic(found)) == (reason, "unavailable")


def test_every_case_of_the_corpus_gets_published_words() -> None:
    """In the shapes that `openai` and `anthropic` check."""
    tokenizer = WordTokenizer()
    num_compared = 0
    for case in cases(tokenizer.encode):
        renderer = BodyRenderer(compiled(case.template), tokenizer)
        earlier = [renderer.record(f"earlier-{i}", body) for i, body in enumerate(case.earlier)]
        if not earlier:
            continue
        found = compared(earlier[-1], renderer.record("request", case.request), renderer)
        openai(found)
        anthropic(found)
        num_compared += 1
    assert num_compared > 300
