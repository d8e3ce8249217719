"""Cases in which nothing is lost, or not by content."""

import copy
import random
from collections.abc import Iterator

from tests.explain.corpus_words import (
    SUBJECTS,
    Body,
    Case,
    Encode,
    body,
    dialogue,
    going_on,
    maybe_going_on,
    prose,
    question,
)


def marker_cases(seed: int) -> Iterator[Case]:
    mark = {"cache_control": {"type": "ephemeral"}}
    for number in range(12):
        rng = random.Random(f"marker-{seed}-{number}")
        system = [{"type": "text", "text": prose(rng, 3)} for _ in range(6)]
        request: Body = {"model": "m", "system": system, "messages": dialogue(rng, 2, system=False)}
        if number % 3 == 0:
            for block in system:
                block.update(mark)  # type: ignore[arg-type]
            path = "system[4]"
        elif number % 3 == 1:
            system[0].update(mark)  # type: ignore[arg-type]
            request["messages"] = dialogue(rng, 14, system=False)
            path = f"messages[{len(request['messages']) - 1}].content"
        else:
            request = {
                "model": "m",
                "messages": dialogue(rng, 2),
                "prompt_cache_options": {"mode": "explicit"},
            }
            path = "prompt_cache_options"
        yield Case("marker", request, [copy.deepcopy(request)], path)


def short_cases(seed: int) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"short-{seed}-{number}")
        if number % 2:
            request = {"model": "m", "prompt": f"Hello {rng.choice(['there', 'you', 'friend'])}."}
            yield Case("too_short", request, [dict(request)])
            continue
        word = rng.choice(["Act.", "Hi.", "Go."])
        messages = [{"role": "system", "content": word}, {"role": "user", "content": question(rng)}]
        later = [messages[0], {"role": "user", "content": f"Tell me: {prose(rng, 3)}"}]
        yield Case("too_short", body(later), [body(messages)], name="match")


def law_cases(seed: int, encode: Encode) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"law-{seed}-{number}")
        ids = encode(prose(rng, 20))[: 16 * rng.randint(3, 6)]
        yield Case("architecture", {"model": "m", "prompt": [*ids, ids[0]]}, [{"model": "m", "prompt": ids}])


def new_cases(seed: int) -> Iterator[Case]:
    for number in range(14):
        rng = random.Random(f"new-{seed}-{number}")
        others = [
            body(dialogue(rng, rng.randint(1, 3), system=number % 3 > 0)) for _ in range(rng.randint(0, 3))
        ]
        messages = dialogue(rng, rng.randint(1, 2), system=number % 2 > 0)
        if number % 2:
            messages[0]["content"] = f"As {rng.choice(SUBJECTS)}: {prose(rng, 4)}"
        yield Case("never_seen", body(messages), others)


def fine_cases(seed: int) -> Iterator[Case]:
    for number in range(18):
        rng = random.Random(f"fine-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        if number % 3 == 0:
            later = going_on(rng, messages)
        elif number % 3 == 1:
            later = [*messages[:-1], {"role": "user", "content": question(rng)}]
        else:
            later = copy.deepcopy(messages)
        # One token more than whole blocks: then the law takes a block back, whatever the text.
        yield Case(
            "ok_partial",
            body(later),
            [body(dialogue(rng, 1)), body(messages)],
            name=str(number % 3),
            also_right=("architecture",),
        )


def unseen_setting_cases(seed: int) -> Iterator[Case]:
    """Settings that differ, under a template that does not show them: nothing is lost."""
    for number in range(6):
        rng = random.Random(f"unseen-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        later = maybe_going_on(rng, messages)
        yield Case(
            "ok_partial",
            body(later, response_format={"type": "json_object"}, temperature=0.3, user="b"),
            [body(messages, reasoning_effort="high", user="a")],
            name="unseen setting",
            also_right=("architecture",),
        )


def namespace_cases(seed: int) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"namespace-{seed}-{number}")
        messages = dialogue(rng, 2)
        earlier, later = body(messages), body(maybe_going_on(rng, messages))
        if number % 2:
            earlier["cache_salt"], later["cache_salt"] = "one", "two"
        else:
            later["model"] = "m-tuned"
        yield Case("namespace", later, [earlier], "cache_salt" if number % 2 else "model")


def bypassed_cases(seed: int) -> Iterator[Case]:
    for number in range(12):
        rng = random.Random(f"bypassed-{seed}-{number}")
        if number % 2:
            messages = dialogue(rng, 1)
            yield Case(
                "bypassed",
                body(going_on(rng, messages), prompt_logprobs=1),
                [body(messages)],
                "prompt_logprobs",
            )
        else:
            request = {"model": "m", "prompt": prose(rng, 6)}
            yield Case("bypassed", {**request, "echo": True, "logprobs": 1}, [request], "echo")
