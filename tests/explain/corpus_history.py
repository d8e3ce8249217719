"""Cases of rewritten history: by the template, the tokenizer, or the caller."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.explain.corpus_templates import COUNTING, EMPTY_THOUGHT, LAST_MARKED, THINKING
from tests.explain.corpus_words import (
    Case,
    Encode,
    body,
    dialogue,
    going_on,
    maybe_going_on,
    prose,
    question,
    sentence,
    system_text,
)


def template_cases(seed: int) -> Iterator[Case]:
    for number in range(16):
        rng = random.Random(f"template-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        if number % 4 == 0:
            messages += [
                {"role": "assistant", "content": f"<think>\n{prose(rng, 3)}\n</think>\n\n{prose(rng, 2)}"},
                {"role": "tool", "content": prose(rng, 3)},
            ]
            index = len(messages) - 2
            yield Case(
                "template", body(going_on(rng, messages)), [body(messages)], f"messages[{index}]", THINKING
            )
        elif number % 4 == 1:
            yield Case(
                "template",
                body(going_on(rng, messages)),
                [body(messages)],
                f"messages[{len(messages)}]",
                EMPTY_THOUGHT,
            )
        elif number % 4 == 2:
            yield Case(
                "template", body(going_on(rng, messages)), [body(messages)], "template-preamble", COUNTING
            )
        else:
            yield Case(
                "template",
                body(going_on(rng, messages)),
                [body(messages)],
                f"messages[{len(messages) - 1}]",
                LAST_MARKED,
            )


def retokenised_cases(seed: int, encode: Encode) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"tokens-{seed}-{number}")
        before, behind = prose(rng, 4), prose(rng, 4)
        word = rng.choice(
            ["Hanzi", "hippopotamus", "understanding", "wonderfully", "archipelago", "thermodynamics"]
        )
        cut = rng.randint(1, 2)
        old = encode(before) + encode(" " + word[:cut]) + encode(word[cut:]) + encode(" " + behind)
        text = f"{before} {word} {behind}"
        new: Any = text + " " + prose(rng, 2)
        yield Case(
            "retokenised",
            {"model": "m", "prompt": new if number % 2 else encode(new)},
            [{"model": "m", "prompt": old}],
            "prompt",
            name=word,
        )


def special_cases(seed: int) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"special-{seed}-{number}")
        text = f"<|im_start|>system\n{system_text(rng)}<|im_end|>\n<|im_start|>user\n{question(rng)}<|im_end|>\n<|im_start|>assistant\n"
        pair = [
            {"model": "m", "prompt": t, "add_special_tokens": False} for t in (text, "<|im_start|>" + text)
        ]
        old, new = pair if number % 2 else pair[::-1]
        yield Case("special_tokens", new, [old], "prompt")


def dropped_cases(seed: int) -> Iterator[Case]:
    for number in range(14):
        rng = random.Random(f"dropped-{seed}-{number}")
        messages = dialogue(rng, rng.randint(5, 8), system=number % 3 != 0)
        first = 1 if number % 3 else 0
        start = first if number % 2 else first + 2
        count = rng.choice([2, 4])
        later = going_on(rng, messages)
        del later[start : start + count]
        yield Case("history_dropped", body(later), [body(messages)], f"messages[{start}]")


def edited_cases(seed: int) -> Iterator[Case]:
    for number in range(16):
        rng = random.Random(f"edited-{seed}-{number}")
        messages = dialogue(rng, rng.randint(4, 6))
        index = rng.randrange(1, len(messages) - 2)
        messages[index]["content"] = prose(rng, 8)
        later = going_on(rng, messages)
        text = messages[index]["content"]
        if number % 4 == 3:
            later[1:5] = [{"role": "user", "content": f"Summary of the conversation so far: {prose(rng, 2)}"}]
            yield Case("history_edited", body(later), [body(messages)], "messages[1]", name="summary")
            continue
        later[index]["content"] = [
            text[:60] + " [truncated]",
            "[Old tool result content omitted]",
            text[: len(text) // 2],
        ][number % 4]
        yield Case(
            "history_edited",
            body(later),
            [body(messages)],
            f"messages[{index}].content",
            name=str(number % 4),
        )


def moved_cases(seed: int) -> Iterator[Case]:
    for number in range(14):
        rng = random.Random(f"moved-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        block = f"<system-reminder>\nAvailable skills: {prose(rng, 3)}\n</system-reminder>"
        text = messages[1]["content"]
        if number % 2:
            messages[1]["content"] = [{"type": "text", "text": block}, {"type": "text", "text": text}]
            later = going_on(rng, messages)
            later[1]["content"] = [{"type": "text", "text": text}]
            later[-1]["content"] = [
                {"type": "text", "text": block},
                {"type": "text", "text": later[-1]["content"]},
            ]
        else:
            messages[1]["content"] = f"{block}\n{text}"
            later = going_on(rng, messages)
            later[1]["content"] = text
            later[-1]["content"] = f"{block}\n{later[-1]['content']}"
        yield Case("history_moved", body(later), [body(messages)], "messages[1].content")


def helper_cases(seed: int) -> Iterator[Case]:
    asks = [
        "Write a title of at most five words for this chat.",
        "Suggest three tags for the conversation below.",
        "Summarise the following conversation in one paragraph:",
        "### Task:\nGenerate a concise title with an emoji.\n### Chat history:",
    ]
    for number in range(14):
        rng = random.Random(f"helper-{seed}-{number}")
        messages = dialogue(rng, rng.randint(2, 4))
        turns = [m for m in messages if m["role"] != "system"]
        quoted = [
            "\n".join(f"{m['role'].upper()}: {m['content']}" for m in turns),
            "<chat_history>\n"
            + "\n\n".join(f"{m['role']}: {m['content']}" for m in turns)
            + "\n</chat_history>",
            json.dumps(turns),
        ][number % 3]
        own = [{"role": "system", "content": system_text(rng, 1)}] if number % 2 else []
        later = [*own, {"role": "user", "content": f"{asks[number % 4]}\n\n{quoted}"}]
        yield Case("helper_call", body(later), [body(messages)], f"messages[{len(own)}].content")


def system_cases(seed: int) -> Iterator[Case]:
    for number in range(14):
        rng = random.Random(f"system-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        parts = [part + "." for part in messages[0]["content"].rstrip(".").split(". ")]
        messages[0]["content"] = " ".join(parts)
        place = rng.randrange(1, len(parts))
        if number % 3 == 0:
            parts.insert(place, "Never mention prices. " + sentence(rng))
        elif number % 3 == 1:
            del parts[place]
        else:
            parts[place] = "Be brief, and quote your source."
        later = maybe_going_on(rng, messages)
        later[0]["content"] = " ".join(parts)
        yield Case(
            "system_edited", body(later), [body(messages)], "messages[0].content", name=str(number % 3)
        )


def condensed_cases(seed: int) -> Iterator[Case]:
    """One message stands for the first turns; no word says so."""
    for number in range(12):
        rng = random.Random(f"condensed-{seed}-{number}")
        messages = dialogue(rng, rng.randint(4, 6))
        digest = {"role": rng.choice(["user", "system", "assistant"]), "content": prose(rng, 2)}
        later = [messages[0], digest, *messages[-3:]]
        yield Case("history_edited", body(going_on(rng, later)), [body(messages)], "messages[1].content")


def inserted_cases(seed: int) -> Iterator[Case]:
    """A message comes in before all turns, so that every turn moves."""
    for number in range(12):
        rng = random.Random(f"inserted-{seed}-{number}")
        messages = dialogue(rng, rng.randint(2, 4))
        later = going_on(rng, messages)
        later.insert(1, {"role": "user", "content": f"Note: {sentence(rng)}"})
        yield Case("history_moved", body(later), [body(messages)], "messages[1].content")
