import pytest

from anaphora.lint.spots import value_at
from tests.lint.support import QUESTIONS, STORY, chat, found, lint_bodies, only, tool


def test_a_clock_in_front_costs_what_follows_it() -> None:
    bodies = [chat(question, system=f"It is 12:0{i}:31 now. {STORY}") for i, question in enumerate(QUESTIONS)]
    report = lint_bodies(bodies)
    finding = only(report, "L1")
    assert (finding.severity, finding.suspect.path) == ("high", "messages[0].content")
    assert finding.suspect.evidence == "'12:00:31' against '12:01:31'"
    assert finding.suspect.indices == (0, 1, 2, 3)
    plain = lint_bodies([chat(question, system=f" {STORY}") for question in QUESTIONS])
    assert not plain.findings
    assert finding.tokens_lost + report.reuse.reused_tokens == plain.reuse.reused_tokens


def test_a_value_that_stays_the_same_is_none() -> None:
    bodies = [
        chat(question, system=f"Rules of 2024-01-31, at most 2000 tokens. {STORY}") for question in QUESTIONS
    ]
    assert not lint_bodies(bodies).findings


def test_one_new_version_in_a_long_log_is_no_changing_value() -> None:
    bodies = [
        chat(question, system=f"Count 200{i // 2} ships. {STORY}") for i, question in enumerate(QUESTIONS)
    ]
    assert not found(lint_bodies(bodies), "L1")


def test_a_clock_that_was_seen_once_is_low() -> None:
    finding = only(lint_bodies([chat("Hi.", system=f"It is 12:01:31 now. {STORY}")]), "L1")
    assert (finding.severity, finding.tokens_lost) == ("low", 0)
    assert "seen once" in finding.suspect.evidence


def test_sentences_of_two_tools_are_not_two_versions_of_one() -> None:
    tools = [tool("a"), tool("b")]
    for number, made in zip((1000, 2000), tools, strict=True):
        made["function"]["description"] = f"Gives at {number} items."
    assert not lint_bodies([chat(question, tools=tools) for question in QUESTIONS]).findings


def test_a_value_in_a_tool_is_found_there() -> None:
    def clocked(i: int) -> dict[str, object]:
        made = tool("tide")
        made["function"]["description"] = f"The tide as of 12:0{i}."
        return made

    report = lint_bodies([chat(question, tools=[clocked(i)]) for i, question in enumerate(QUESTIONS)])
    assert only(report, "L1").suspect.path == "tools[0].function.description"


def test_a_value_in_an_earlier_turn_is_found_when_the_conversation_goes_on() -> None:
    first = "[It is {}] " + QUESTIONS[0]
    opening = "Good morning, harbour master, here we are."
    bodies = [
        chat(opening, "Hello.", first.format(clock), "At ten.", *more)
        for clock, more in (("12:01:31", ["And back?"]), ("12:02:58", ["And back?", "At six.", "Thanks."]))
    ]
    assert only(lint_bodies(bodies), "L1").suspect.path == "messages[3].content"


def test_a_value_in_a_raw_prompt_is_found() -> None:
    bodies = [{"prompt": f"It is 12:0{i}. {STORY} {question}"} for i, question in enumerate(QUESTIONS)]
    finding = only(lint_bodies(bodies), "L1")
    assert finding.suspect.path == "prompt"
    assert finding.tokens_lost > 0
    assert not finding.suspect.is_safe


@pytest.mark.parametrize("users", [("Ines Abernathy", "Hugo Petrenko"), ("a@b.example", "c@d.example")])
def test_a_user_in_the_system_text_is_found_in_all_requests(users: tuple[str, str]) -> None:
    bodies = [
        chat(question, system=f"You are helping {users[i % 2]}.\n{STORY}")
        for i, question in enumerate(QUESTIONS)
    ]
    finding = only(lint_bodies(bodies), "L5")
    assert finding.suspect.indices == (0, 1, 2, 3)
    assert finding.tokens_lost > 0
    assert not found(lint_bodies(bodies), "L1")


def test_a_user_whom_the_request_names_itself_is_found_in_one_request() -> None:
    body = chat("Hi.", system=f"Session of u-4711-x. {STORY}", user="u-4711-x")
    assert only(lint_bodies([body]), "L5").suspect.evidence == "'u-4711-x'"


def test_a_clock_beside_a_user_is_still_a_clock() -> None:
    bodies = [
        chat(
            question,
            system=f"You are helping {('Ines Abernathy', 'Hugo Petrenko')[i % 2]}.\nIt is 12:0{i}.\n{STORY}",
        )
        for i, question in enumerate(QUESTIONS)
    ]
    report = lint_bodies(bodies)
    mend = only(report, "L1").suspect.mend
    assert mend is not None
    assert "helping" in value_at(mend(0, bodies[0]), "messages[0].content")
    assert found(report, "L5")


def test_one_text_for_all_users_names_nobody() -> None:
    assert not lint_bodies([chat(question, user="u-4711-x") for question in QUESTIONS]).findings
