"""Which stretches of a text are values that change, and which are not."""

import pytest

from anaphora.explain.values import changed_values, pieces


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("It is 2026-11-29T14:02:31.5+01:00 now", "time", "2026-11-29T14:02:31.5+01:00"),
        ("Today: Saturday, 29 November 2026.", "time", "Saturday, 29 November 2026"),
        ("at 9:05 PM, as ever", "time", "9:05 PM"),
        ("id 5f2b9c1e-1d2c-4a8b-9c3d-2e1f0a9b8c7d", "uuid", "5f2b9c1e-1d2c-4a8b-9c3d-2e1f0a9b8c7d"),
        ("since 1764424951", "epoch", "1764424951"),
        ("used 49% of it", "percent", "49%"),
        ("1,085/2,200 chars", "ratio", "1,085/2,200"),
        ("in /tmp/run-7/x here", "path", "/tmp/run-7/x"),
        ("commit 9fceb02", "hex", "9fceb02"),
        ("on localhost:8123", "address", "localhost:8123"),
        ("Turn 7", "number", "7"),
        ("There are 12 unread messages", "number", "12"),
        ("Il est 18h42 à Paris", "time", "18h42"),
        ("Montag, 30. November 2026, 08:15 Uhr", "time", "Montag, 30. November 2026, 08:15 Uhr"),
        ("el lunes 30 de noviembre de 2026", "time", "lunes 30 de noviembre de 2026"),
        ("今天是2026年11月29日。", "time", "2026年11月29日"),
        ("지금은 오후 2시 5분 입니다", "time", "오후 2시 5분"),
        ("snapshot 2026-W48-7", "time", "2026-W48-7"),
        ("6 passed in 3.21s", "number", "3.21s"),
        ("Queue depth is 17 right now", "number", "17"),
    ],
)
def test_a_value_is_found_whole(text: str, kind: str, value: str) -> None:
    """With its class."""
    assert [(p.kind, p.text) for p in pieces(text) if p.kind] == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "Answer in at most 3 sentences.",
        "Rule 4 applies.",
        "Speak like a pirate.",
        "utf8 or latin1",
        "May I ask?",
        "Founded in 1998 by two brothers.",
        "Refunds are possible within 14 days.",
        "A seat costs 1250 EUR.",
        "Il y a mai et mars, the sun sat down.",
    ],
)
def test_what_an_author_wrote_is_no_value(text: str) -> None:
    """A limit is edited; a counter counts."""
    assert [p for p in pieces(text) if p.kind] == []


def test_pieces_put_together_are_the_text() -> None:
    """Nothing is lost between values."""
    text = "At 12:01 (job-8831a2) 50% of 12 messages; 2026-01-02."
    assert "".join(piece.text for piece in pieces(text)) == text
    assert [text[p.start : p.start + len(p.text)] for p in pieces(text)] == [p.text for p in pieces(text)]


def test_values_that_differ_before_anything_else_are_paired() -> None:
    """The third difference is a word, so the fourth does not count."""
    pairs, reached = changed_values("At 12:01, 49% done, calm, 3 users", "At 12:07, 50% done, busy, 4 users")
    assert [(p.old, p.new) for p in pairs] == [("12:01", "12:07"), ("49%", "50%")]
    assert reached == len("At 12:07, 50% done, ")


@pytest.mark.parametrize(
    "unit", ["a.", "a-", "1,", "1/", "a1", "<a", "C:\\", "a@", "/tmp/", "Jan ", "12:", " "]
)
def test_a_hostile_text_costs_no_more_than_its_length(unit: str) -> None:
    """A pattern that starts over at every character would hang here, and a hang is a failure."""
    assert sum(len(piece.text) for piece in pieces(unit * 20_000)) == len(unit) * 20_000
