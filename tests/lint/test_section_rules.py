from tests.lint.support import QUESTIONS, STORY, chat, found, lint_bodies, only

SECTION = "# Git\nThere are changes that nobody has committed yet."


def test_a_section_that_comes_and_goes_is_found() -> None:
    tail = "# Style\nWrite short sentences and no lists."
    bodies = [
        chat(question, system="\n\n".join([STORY, *([SECTION] if i % 2 else []), tail]))
        for i, question in enumerate([QUESTIONS[0], QUESTIONS[0], QUESTIONS[1], QUESTIONS[1]])
    ]
    finding = only(lint_bodies(bodies), "L6")
    assert finding.suspect.indices == (1, 3)
    assert "nobody has committed" in finding.suspect.evidence and "2 of 4" in finding.suspect.evidence
    assert finding.tokens_lost > 0
    assert not finding.suspect.is_safe


def test_a_section_that_was_edited_is_no_condition() -> None:
    systems = [f"{STORY}\n\n# Style\n{words}" for words in ("Write short sentences.", "Rhyme a lot.")]
    assert not found(lint_bodies([chat("Hi there.", system=system) for system in systems]), "L6")


def test_two_applications_are_not_two_versions() -> None:
    systems = [STORY, "You write titles.\n\nNever more than five words.", f"{STORY}\n{STORY}"]
    assert not found(lint_bodies([chat("Hi there.", system=system) for system in systems[:2]]), "L6")
