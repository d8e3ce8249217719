"""Users in a system text, by label, title, address or home folder; and words that only look like them."""

import pytest

from anaphora.explain.endless_cache import explain_after
from tests.explain.support import LAW, RENDERER, chat, record

FRAME = "You help with parcels and pallets.\n{}\nBe brief, name the aisle first, and never change a price."


def cause_of(old: str, new: str) -> str:
    """What is said of a line of the system text that differs."""
    first, second = (record(name, chat("Hi?", system=FRAME.format(name))) for name in (old, new))
    return explain_after(second, [first], LAW, RENDERER).cause


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Nutzer: Karl Meier", "Nutzer: Sabine Vogt"),
        ("L'utilisateur s'appelle Amélie Laurent.", "L'utilisateur s'appelle Jean Petit."),
        ("Der Name des Kunden ist Jonas Weber.", "Der Name des Kunden ist Miriam Koch."),
        ("ユーザー名: 田中太郎", "ユーザー名: 鈴木花子"),
        ("The customer, Mr. Patel, has a contract.", "The customer, Mrs. Oduya, has a contract."),
        ("Answer as if you spoke to Professor Lindgren.", "Answer as if you spoke to Professor Achebe."),
        ("You work for Claire and nobody else.", "You work for Dmitri and nobody else."),
        ("Greet the caller as Captain Reyes.", "Greet the caller as Captain Yamada."),
        ('{"full_name":"Ada Park"}', '{"full_name":"Bo Lindgren"}'),
        ("cwd: /home/alice/src", "cwd: /home/bob/src"),
    ],
)
def test_a_user_is_recognised(old: str, new: str) -> None:
    """In several languages."""
    assert cause_of(old, new) == "user_in_system"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The product is named Aurora.", "The product is named Borealis."),
        ("Speak like a pirate from Bristol.", "Speak like a pirate from Genoa."),
        ("Always answer in German.", "Always answer in French."),
    ],
)
def test_another_name_is_an_edit(old: str, new: str) -> None:
    """Products, places and languages are no users."""
    assert cause_of(old, new) == "system_edited"
