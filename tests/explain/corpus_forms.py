"""Cases of texts in another form or order."""

import random
from collections.abc import Callable, Iterator

from tests.explain.corpus_words import Case, body, dialogue, maybe_going_on, prose, question, sentence


def whitespace_cases(seed: int) -> Iterator[Case]:
    edits: list[Callable[[str], str]] = [
        lambda t: t.replace(". ", ".  "),
        lambda t: t.replace("\n", "\r\n"),
        lambda t: t + "\n",
        lambda t: t.replace("\n", "\n\n", 1),
        lambda t: "  " + t,
        lambda t: t.replace("\n", " \n"),
        lambda t: t.replace("    ", "\t"),
    ]
    for number in range(14):
        rng = random.Random(f"space-{seed}-{number}")
        messages = dialogue(rng, 2)
        index = rng.choice([0, 2, 0])
        messages[index]["content"] = (
            f"{prose(rng, 2)}\n    - {sentence(rng)}\n    - {sentence(rng)}\n{prose(rng, 2)}"
        )
        later = maybe_going_on(rng, messages)
        later[index]["content"] = edits[number % len(edits)](messages[index]["content"])
        yield Case(
            "whitespace",
            body(later),
            [body(messages)],
            f"messages[{index}].content",
            name=str(number % len(edits)),
        )


def unicode_cases(seed: int) -> Iterator[Case]:
    pairs = [
        ("the café's naïve résumé", "the cafe\u0301's nai\u0308ve re\u0301sume\u0301"),
        ('the so-called "best" offer', "the so-called “best” offer"),
        ("it doesn't matter", "it doesn’t matter"),
        ("from 10 - 20 metres", "from 10 – 20 metres"),
        ("5 km away", "5\u00a0km away"),
        ("the file office", "the ﬁle oﬃce"),
        ("wait...", "wait…"),
    ]
    for number in range(14):
        rng = random.Random(f"unicode-{seed}-{number}")
        messages = dialogue(rng, 2)
        old, new = pairs[number % len(pairs)]
        if rng.random() < 0.5:
            old, new = new, old
        index = rng.choice([0, 1, 2])
        text = f"{prose(rng, 2)} Mind {old}. {prose(rng, 2)}"
        messages[index]["content"] = text
        later = maybe_going_on(rng, messages)
        later[index]["content"] = text.replace(old, new)
        yield Case("unicode", body(later), [body(messages)], f"messages[{index}].content", name=new)


def docs_cases(seed: int) -> Iterator[Case]:
    frames: list[Callable[[list[str]], str]] = [
        "\n\n".join,
        lambda docs: "\n".join(f"[{i + 1}] {doc}" for i, doc in enumerate(docs)),
        lambda docs: "\n".join(f"<doc id={i}>\n{doc}\n</doc>" for i, doc in enumerate(docs)),
        lambda docs: "\n\n".join(f"Document {i + 1}: {doc}" for i, doc in enumerate(docs)),
        "\n---\n".join,
        lambda docs: "\n".join(f"- {doc}" for doc in docs),
    ]
    for number in range(18):
        rng = random.Random(f"docs-{seed}-{number}")
        docs = [prose(rng, 2) for _ in range(rng.randint(3, 8))]
        other = docs[:]
        while other == docs:
            rng.shuffle(other)
        frame = frames[number % len(frames)]
        messages = dialogue(rng, 1)
        index = rng.choice([0, 1])
        intro, asked = "Use these sources:\n\n", f"\n\n{question(rng)}"
        messages[index]["content"] = intro + frame(docs) + asked
        later = maybe_going_on(rng, messages)
        later[index]["content"] = (
            intro + frame(other) + (asked if rng.random() < 0.5 else f"\n\n{question(rng)}")
        )
        yield Case(
            "retrieved_docs_reordered",
            body(later),
            [body(messages)],
            f"messages[{index}].content",
            name=str(number % len(frames)),
        )
