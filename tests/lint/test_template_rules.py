import pytest

from anaphora.lint.template_rules import check_template, clock_in_template
from tests.explain.corpus_templates import THINKING
from tests.lint.support import QUESTIONS, STAND_IN, chat, found, lint_bodies, only, renderer, tool
from tests.lint.template_table import table, written
from tests.models.templates import CHATML, GEMMA, LLAMA3, MISTRAL, QWEN3

THOUGHT = "<think>\nThe table of the harbour says that it leaves at ten.\n</think>\n\nAt ten."


def test_a_plain_template_keeps_its_prefixes() -> None:
    assert {found.is_kept for found in check_template(renderer(STAND_IN))} == {True}


@pytest.mark.parametrize(
    ("template", "broken"),
    [
        (CHATML, []),
        (QWEN3, ["thinking in the content"]),
        (MISTRAL, ["plain", "thinking in the content", "thinking in its own field"]),
    ],
)
def test_the_dialogues_that_a_template_rewrites_are_named(template: str, broken: list[str]) -> None:
    assert [
        found.dialogue for found in check_template(renderer(template)) if found.is_kept is False
    ] == broken


def test_a_template_without_system_messages_is_judged_without_one() -> None:
    assert [found.is_kept for found in check_template(renderer(GEMMA))] == [True, True, True, None]


def test_the_documented_table_is_the_measured_one() -> None:
    """Written by `python -m tests.lint.template_table`."""
    assert written() == table()


def test_what_a_rewriting_template_costs_in_a_log_is_counted() -> None:
    texts = [QUESTIONS[0], THOUGHT, QUESTIONS[1], THOUGHT, QUESTIONS[2]]
    talk = chat(*texts)["messages"]
    talk[3:3] = [{"role": "assistant", "content": "I look again, and again, until the tide has turned."}]
    bodies = [{"messages": talk[:4]}, {"messages": talk[:5]}, {"messages": talk}]
    report = lint_bodies(bodies, THINKING, is_own=True)
    finding = only(report, "L7")
    assert finding.suspect.code == "template"
    assert finding.tokens_lost > 0
    assert finding.lines


def test_a_rewriting_template_without_such_a_turn_is_low() -> None:
    finding = only(lint_bodies([chat(QUESTIONS[0])], QWEN3, is_own=True), "L7")
    assert (finding.severity, finding.tokens_lost, finding.lines) == ("low", 0, ())


def test_tools_in_another_order_are_not_the_template_s_doing() -> None:
    bodies = [chat(q, tools=[tool("a"), tool("b")][:: 1 if i % 2 else -1]) for i, q in enumerate(QUESTIONS)]
    assert not found(lint_bodies(bodies, is_own=True), "L7")


def test_a_template_that_is_not_known_is_said_not_to_be_judged() -> None:
    report = lint_bodies([chat(QUESTIONS[0])])
    assert "--chat-template" in report.not_run["L7"] and "L8" in report.not_run
    assert "L7" not in lint_bodies([chat(QUESTIONS[0])], is_own=True).not_run


@pytest.mark.parametrize(
    ("source", "severity"),
    [
        ("{{ strftime_now('%d %b %Y') }}", "medium"),
        ('{{ strftime_now("%H:%M") }}', "high"),
        ("{{ date_string }}", "low"),
        (LLAMA3, "medium"),
    ],
)
def test_a_template_that_reads_the_clock_is_found(source: str, severity: str) -> None:
    (suspect,) = clock_in_template(source, 3)
    assert (suspect.rule, suspect.severity, suspect.indices) == ("L8", severity, (0, 1, 2))


def test_a_clock_in_a_comment_is_none() -> None:
    assert not list(clock_in_template("{# strftime_now('%H') #}{{ messages }}", 1))
