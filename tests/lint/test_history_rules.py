from typing import Any

import pytest

from anaphora.ids import TokenId
from anaphora.lint.history_rules import unstable_replies
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.word_tokenizer import WordTokenizer
from tests.lint.support import QUESTIONS, STAND_IN, chat, found, lint_bodies, log_of, only

TALK = [QUESTIONS[0], "At ten from the north quay.", QUESTIONS[1]]


def _title(quoted: str, *, instruction_first: bool) -> dict[str, Any]:
    words = "Write a title of five words for this conversation."
    return chat(
        f"{words}\n{quoted}" if instruction_first else f"{quoted}\n{words}", system="You write titles."
    )


def test_a_side_call_that_quotes_behind_its_instruction_is_found() -> None:
    quoted = "\n".join(TALK)
    finding = only(lint_bodies([chat(*TALK), _title(quoted, instruction_first=True)]), "L12")
    assert (finding.suspect.code, finding.suspect.path) == ("helper_call", "messages[1].content")
    assert finding.lines == (2,)
    assert finding.tokens_lost > 50


def test_an_instruction_behind_the_quote_is_fine() -> None:
    bodies = [chat(*TALK), _title("\n".join(TALK), instruction_first=False)]
    assert not found(lint_bodies(bodies), "L12")


def test_a_conversation_that_nobody_had_is_no_quote() -> None:
    bodies = [chat(*TALK), _title("\n".join(QUESTIONS[2:]), instruction_first=True)]
    assert not found(lint_bodies(bodies), "L12")


class _Folding(WordTokenizer):
    """Writes capital letters small, as tokenizers that normalise do."""

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        return super().encode(text.replace("Å", "A"))


def test_a_reply_that_does_not_come_back_from_its_tokens_is_found() -> None:
    made = BodyRenderer(ChatTemplate(STAND_IN), _Folding())
    bodies = [chat(QUESTIONS[0], "To Århus at ten.", QUESTIONS[1])]
    (suspect,) = unstable_replies(log_of(bodies, made), made)
    assert (suspect.rule, suspect.path) == ("L13", "messages[2].content")
    assert suspect.evidence == "'To Århus at ten.' against 'To Arhus at ten.'"


def test_a_reply_whose_first_token_holds_the_header_is_found() -> None:
    template = (
        "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
    )
    report = lint_bodies([chat(QUESTIONS[0], ":) at ten.", QUESTIONS[1])], template)
    assert "'::)'" in only(report, "L13").suspect.evidence


@pytest.mark.parametrize("reply", ["At ten.", "Århus 東京\n\n\tyes", ""])
def test_a_reply_that_comes_back_is_fine(reply: str) -> None:
    assert not found(lint_bodies([chat(QUESTIONS[0], reply, QUESTIONS[1])]), "L13")
