"""Cases of fields that differ: tools, settings, JSON."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.explain.corpus_templates import SETTINGS_FIRST
from tests.explain.corpus_words import (
    NAMES,
    OBJECTS,
    Body,
    Case,
    body,
    dialogue,
    maybe_going_on,
    prose,
    question,
    sentence,
    tool,
    tool_template,
    tools,
)


def tool_order_cases(seed: int) -> Iterator[Case]:
    for number in range(15):
        rng = random.Random(f"order-{seed}-{number}")
        given = tools(rng, 4, 10)
        other = given[:]
        while other == given:
            rng.shuffle(other)
        first = next(i for i, (a, b) in enumerate(zip(given, other, strict=True)) if a != b)
        messages = dialogue(rng, rng.randint(1, 3))
        yield Case(
            "tool_order",
            body(maybe_going_on(rng, messages), tools=other),
            [body(messages, tools=given)],
            f"tools[{first}]",
            tool_template(rng),
        )


def tool_set_cases(seed: int) -> Iterator[Case]:
    for number in range(15):
        rng = random.Random(f"set-{seed}-{number}")
        given = tools(rng, 4, 8)
        other = copy.deepcopy(given)
        index = rng.randrange(len(given))
        if number % 3 == 0:
            del other[index]
        elif number % 3 == 1:
            other.insert(index, tool(rng, "brand_new_tool"))
        else:
            other[index]["function"]["description"] = sentence(rng) + " Always ask first."
        path = f"tools[{index}]" + (".function.description" if number % 3 == 2 else "")
        messages = dialogue(rng, rng.randint(1, 3))
        yield Case(
            "tool_set",
            body(maybe_going_on(rng, messages), tools=other),
            [body(messages, tools=given)],
            path,
            tool_template(rng),
        )


def settings_cases(seed: int) -> Iterator[Case]:
    def schema(rng: random.Random) -> Body:
        names = rng.sample(["title", "summary", "score", "tags", "answer"], 2)
        return {
            "type": "json_schema",
            "json_schema": {
                "name": "reply",
                "schema": {"type": "object", "properties": {n: {"type": "string"} for n in names}},
            },
        }

    for number in range(16):
        rng = random.Random(f"settings-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 3))
        choices: list[tuple[Body, Body, str]] = [
            ({"reasoning_effort": "low"}, {"reasoning_effort": "high"}, "reasoning_effort"),
            ({"response_format": schema(rng)}, {"response_format": {"type": "text"}}, "response_format"),
            ({"tool_choice": "auto", "tools": tools(rng)}, {"tool_choice": "required"}, "tool_choice"),
            (
                {"chat_template_kwargs": {"enable_thinking": True}},
                {"chat_template_kwargs": {"enable_thinking": False}},
                "chat_template_kwargs.enable_thinking",
            ),
        ]
        old, new, path = choices[number % 4]
        yield Case(
            "settings",
            body(maybe_going_on(rng, messages), **{**old, **new}),
            [body(messages, **old)],
            path,
            SETTINGS_FIRST,
        )


def _shuffled_keys(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        while len(keys) > 1 and keys == list(value):
            rng.shuffle(keys)
        return {key: _shuffled_keys(rng, value[key]) for key in keys}
    return [_shuffled_keys(rng, item) for item in value] if isinstance(value, list) else value


def _record(rng: random.Random) -> Body:
    return {
        "customer": rng.choice(NAMES),
        "note": sentence(rng),
        "tags": rng.sample(OBJECTS, 2),
        "total": rng.randint(3, 90),
        "place": {"street": "Ringstraße", "floor": rng.randint(1, 9), "zone": "Café"},
    }


def json_cases(seed: int, kind: str) -> Iterator[Case]:
    for number in range(15):
        rng = random.Random(f"{kind}-{seed}-{number}")
        messages = dialogue(rng, rng.randint(1, 2))
        later = maybe_going_on(rng, messages)
        if number % 3 == 0:
            given = tools(rng)
            other = copy.deepcopy(given)
            index = rng.randrange(len(given))
            parameters = other[index]["function"]["parameters"]
            if kind == "json_order":
                other[index]["function"]["parameters"] = _shuffled_keys(rng, parameters)
            else:
                given[index]["function"]["parameters"]["properties"]["limit"] = {
                    "type": "number",
                    "maximum": 10,
                }
                parameters["properties"]["limit"] = {"type": "number", "maximum": 10.0}
            if given == other and json.dumps(given) == json.dumps(other):
                continue
            yield Case(
                kind,
                body(later, tools=other),
                [body(messages, tools=given)],
                f"tools[{index}].function.parameters",
                tool_template(rng),
            )
            continue
        value = _record(rng)
        old_text = json.dumps(value, ensure_ascii=False)
        if kind == "json_order":
            new_text = json.dumps(_shuffled_keys(rng, value), ensure_ascii=False)
        else:
            new_text = rng.choice(
                [
                    json.dumps(value),
                    json.dumps(value, ensure_ascii=False, separators=(",", ":")),
                    json.dumps(value, ensure_ascii=False, indent=2),
                ]
            )
        frame = "{}" if number % 3 == 1 else f"{sentence(rng)}\nRecord: {{}}\n{sentence(rng)}"
        index = rng.choice([0, 1])
        text = messages[index]["content"]
        for each, shown in ((messages, old_text), (later, new_text)):
            each[index]["content"] = (
                frame.replace("{}", shown) if index == 1 else f"{text}\n{frame.replace('{}', shown)}"
            )
        yield Case(kind, body(later), [body(messages)], f"messages[{index}].content")
    for number in range(4):
        rng = random.Random(f"{kind}-call-{seed}-{number}")
        if kind == "json_format":
            continue  # the arguments are parsed before they are rendered, so their format does not show
        messages = dialogue(rng, 1)
        arguments = {"query": sentence(rng), "limit": rng.randint(1, 9), "language": "en"}
        call = {
            "id": "call_1",
            "type": "function",
            "function": {"name": "search_web", "arguments": json.dumps(arguments)},
        }
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": prose(rng, 3)},
        ]
        later = copy.deepcopy(messages)
        later[2]["tool_calls"][0]["function"]["arguments"] = json.dumps(_shuffled_keys(rng, arguments))
        later += [{"role": "assistant", "content": prose(rng, 2)}, {"role": "user", "content": question(rng)}]
        yield Case(kind, body(later), [body(messages)], "messages[2].tool_calls[0].function.arguments")
