"""What cases are made of: words, sentences, dialogues, tools."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.explain.corpus_templates import PLAIN, TOOLS_FIRST, TOOLS_IN_SYSTEM, TOOLS_INDENTED

Body = dict[str, Any]
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class Case:
    """One request, what came before it, and the right answer."""

    kind: str
    request: Body
    earlier: list[Body]
    path: str | None = None
    template: str = PLAIN
    name: str = ""
    also_right: tuple[str, ...] = ()


SUBJECTS = [
    "the gardener",
    "a pilot",
    "our archive",
    "the harbour office",
    "every clerk",
    "a small team",
    "the night shift",
    "the museum",
    "an old miller",
    "the library",
    "a courier",
    "the committee",
    "her brother",
    "the workshop",
    "this service",
]
_VERBS = [
    "collects",
    "describes",
    "repairs",
    "carries",
    "counts",
    "prefers",
    "reviews",
    "prepares",
    "delivers",
    "compares",
    "stores",
    "explains",
    "paints",
    "measures",
    "orders",
]
OBJECTS = [
    "wooden boxes",
    "weather reports",
    "long letters",
    "maps of the coast",
    "spare parts",
    "apples and pears",
    "the old ledgers",
    "brass instruments",
    "train timetables",
    "linen sheets",
    "recipes for soup",
    "questions about law",
    "broken clocks",
    "short poems",
    "lists of names",
]
_ENDINGS = [
    "before noon",
    "without delay",
    "for the visitors",
    "in plain words",
    "with great care",
    "on rainy days",
    "near the river",
    "for a modest fee",
    "when asked politely",
    "after the meeting",
    "in alphabetical sequence",
    "behind the station",
    "as agreed",
    "by hand",
    "and nothing else",
]
_APPS = [
    "a travel agency",
    "a bakery chain",
    "an online bookshop",
    "a rail operator",
    "a hardware store",
    "a law firm",
    "a hospital pharmacy",
    "a city library",
    "a seed company",
    "a bicycle rental",
]
NAMES = [
    "Alice Moreau",
    "Bertrand Okafor",
    "Chiara Novak",
    "Dmitri Halvorsen",
    "Elena Castellanos",
    "Farid Lindqvist",
    "Greta Yamamoto",
    "Hugo Petrenko",
    "Ines Abernathy",
    "Jonas Fairweather",
]


def sentence(rng: random.Random) -> str:
    text = f"{rng.choice(SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(OBJECTS)} {rng.choice(_ENDINGS)}."
    return text[0].upper() + text[1:]


def prose(rng: random.Random, num_sentences: int) -> str:
    return " ".join(sentence(rng) for _ in range(num_sentences))


def system_text(rng: random.Random, size: int = 6) -> str:
    return f"You are the assistant of {rng.choice(_APPS)}. {prose(rng, size)}"


def question(rng: random.Random) -> str:
    return f"Why is it that {sentence(rng)[:-1].lower()}, and {rng.choice(['since when', 'who says so', 'what follows', 'how often'])}?"


def dialogue(rng: random.Random, num_turns: int, *, system: bool = True) -> list[Body]:
    """A system text, then turns that end with the user's."""
    messages: list[Body] = [{"role": "system", "content": system_text(rng)}] if system else []
    for turn in range(num_turns):
        if turn:
            messages.append({"role": "assistant", "content": prose(rng, 3)})
        messages.append({"role": "user", "content": question(rng)})
    return messages


def going_on(rng: random.Random, messages: list[Body]) -> list[Body]:
    return [
        *copy.deepcopy(messages),
        {"role": "assistant", "content": prose(rng, 2)},
        {"role": "user", "content": question(rng)},
    ]


def maybe_going_on(rng: random.Random, messages: list[Body]) -> list[Body]:
    return going_on(rng, messages) if rng.random() < 0.6 else copy.deepcopy(messages)


def body(messages: list[Body], **fields: Any) -> Body:
    return {"model": "m", "messages": messages, **fields}


_TOOL_NAMES = [
    "search_web",
    "read_file",
    "send_mail",
    "list_orders",
    "get_weather",
    "book_table",
    "translate_text",
    "create_ticket",
    "cancel_order",
    "convert_units",
    "find_route",
    "open_door",
]


def tool(rng: random.Random, name: str) -> Body:
    names = rng.sample(["query", "limit", "language", "path", "city", "date", "amount", "unit", "verbose"], 3)
    kinds = [rng.choice(["string", "integer", "boolean"]) for _ in names]
    properties = {n: {"type": k, "description": sentence(rng)} for n, k in zip(names, kinds, strict=True)}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": sentence(rng),
            "parameters": {"type": "object", "properties": properties, "required": names[:2]},
        },
    }


def tools(rng: random.Random, low: int = 3, high: int = 8) -> list[Body]:
    return [tool(rng, name) for name in rng.sample(_TOOL_NAMES, rng.randint(low, high))]


def tool_template(rng: random.Random) -> str:
    return rng.choice([TOOLS_FIRST, TOOLS_INDENTED, TOOLS_IN_SYSTEM])
