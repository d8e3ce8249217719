"""History that was condensed, moved or quoted, where no single word gives it away."""

from typing import Any

from anaphora.explain.endless_cache import explain_after
from anaphora.explain.records import Explanation
from tests.explain.support import LAW, RENDERER, chat, record

TURNS = (
    "Which ship is the oldest?",
    "The grey one by the north pier, built before the war.",
    "Who owns her?",
    "A widow in the upper town, who never sails.",
    "Is she for sale?",
    "She was once, and nobody came.",
    "Why not?",
)


def ask(new: dict[str, Any], old: dict[str, Any]) -> Explanation:
    return explain_after(record("new", new), [record("old", old)], LAW, RENDERER)


def with_second(text: str, kept: int) -> dict[str, Any]:
    """The system text, another message, and the last turns of the conversation."""
    messages = chat(*TURNS)["messages"]
    return {"messages": [messages[0], {"role": "user", "content": text}, *messages[len(messages) - kept :]]}


def test_one_turn_in_place_of_several_is_an_edit_whatever_it_says() -> None:
    """The turns behind it are the same, and there were more before them."""
    found = ask(with_second("Ships, piers and widows were spoken of.", 3), chat(*TURNS))
    assert (found.cause, found.path) == ("history_edited", "messages[1].content")


def test_a_conversation_that_goes_on_from_a_summary_is_an_edit() -> None:
    """Nothing of the earlier turns is left but what the summary says."""
    text = "This session is continued from a previous conversation. Summary: " + "ships and piers. " * 12
    assert ask(with_second(text, 0), chat(*TURNS)).cause == "history_edited"


def test_a_message_put_before_the_turns_moves_them_all() -> None:
    """Each is the same as before, in another place."""
    messages = chat(*TURNS)["messages"]
    later = [messages[0], {"role": "user", "content": "Note: fog."}, *messages[1:]]
    found = ask({"messages": later}, {"messages": messages})
    assert (found.cause, found.path) == ("history_moved", "messages[1].content")
    assert "from messages[1] to messages[2]" in found.advice


def test_a_short_turn_said_again_later_did_not_move() -> None:
    """The two conversations part at their last turn, and one comes back to the same word."""
    assert (
        ask(chat("Go.", "Gone.", "Stop.", "Stopped.", "Go."), chat("Go.", "Gone.", "Go.")).cause
        == "ok_partial"
    )


def test_a_turn_quoted_behind_an_instruction_is_a_helper_call() -> None:
    """It is not a turn that moved to another message, though its text stands in one."""
    quoting = chat(f"Write a title:\nUSER: {TURNS[0]}", system="You write titles.")
    assert ask(quoting, {"messages": [{"role": "user", "content": TURNS[0]}]}).cause == "helper_call"
