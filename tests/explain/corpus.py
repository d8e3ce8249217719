"""Requests with a known fault each: for every kind that can be told without a server, cases made from a seed.

A case says which code is right, and with what its path must begin. The texts are put together from words, the
templates are in the manner of well-known families, and nothing is taken from anybody's logs.
"""

import copy
import json
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Body = dict[str, Any]
Encode = Callable[[str], list[int]]

# ---------------------------------------------------------------------------------------------------------------------
# Templates

_TURNS = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{%- if m.tool_calls %}{%- for call in m.tool_calls %}{{- '\\n<tool_call>\\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\\n</tool_call>' }}{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"

PLAIN = _TURNS
TOOLS_FIRST = (
    "{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n\\nYou may call these functions:\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    + _TURNS
)
TOOLS_INDENTED = (
    "{{- bos_token }}{%- if tools %}{{- '[AVAILABLE_TOOLS]' + (tools | tojson(indent=4)) + '[/AVAILABLE_TOOLS]\\n' }}{%- endif %}"
    + _TURNS
)
TOOLS_IN_SYSTEM = (
    "{%- set rest = messages %}"
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}"
    "{%- set rest = messages[1:] %}{%- endif %}{{- '# Tools\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    + _TURNS.replace("in messages", "in rest")
)
THINKING = (
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{%- set content = m.content or '' %}"
    "{%- if m.role == 'assistant' and '</think>' in content and loop.index0 < ns.last %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
EMPTY_THOUGHT = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
)
COUNTING = (
    "{{- '<|im_start|>system\\nThis conversation has ' + (messages | length | string) + ' messages so far. Answer in the language of the user.<|im_end|>\\n' }}"
    + _TURNS
)
LAST_MARKED = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}{%- if m.role == 'user' and not loop.last %}{{- '[earlier] ' }}{%- endif %}"
    "{{- m.content + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
SETTINGS_FIRST = (
    "{%- if reasoning_effort is defined or tool_choice is defined or response_format is defined or enable_thinking is defined %}"
    "{{- '<|im_start|>system\\n' }}"
    "{%- if reasoning_effort is defined %}{{- 'Reasoning: ' + reasoning_effort + '\\n' }}{%- endif %}"
    "{%- if tool_choice is defined %}{{- 'Tool choice: ' + (tool_choice | tojson) + '\\n' }}{%- endif %}"
    "{%- if response_format is defined %}{{- 'Answer in this format: ' + (response_format | tojson) + '\\n' }}{%- endif %}"
    "{%- if enable_thinking is defined %}{{- '/think\\n' if enable_thinking else '/no_think\\n' }}{%- endif %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}"
    "{%- if tools %}{{- '<tools>' + (tools | tojson) + '</tools>\\n' }}{%- endif %}" + _TURNS
)


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


# ---------------------------------------------------------------------------------------------------------------------
# Words

_SUBJECTS = [
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
_OBJECTS = [
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
_NAMES = [
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
    text = f"{rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_OBJECTS)} {rng.choice(_ENDINGS)}."
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


# ---------------------------------------------------------------------------------------------------------------------
# Values that change


def _moment(rng: random.Random) -> datetime:
    return datetime(
        2026,
        rng.randint(1, 12),
        rng.randint(1, 28),
        rng.randint(0, 23),
        rng.randint(0, 59),
        rng.randint(0, 59),
        tzinfo=UTC,
    )


def _hex(rng: random.Random, size: int) -> str:
    return (
        "".join(rng.choice("0123456789abcdef") for _ in range(size - 2))
        + rng.choice("abcdef")
        + rng.choice("0123456789")
    )


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _ulid(rng: random.Random) -> str:
    return "01" + "".join(rng.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(24))


def _later(rng: random.Random, moment: datetime) -> datetime:
    return moment + timedelta(seconds=rng.choice([7, 61, 3700, 90_000]))


def _clock_pair(form: str) -> Callable[[random.Random], tuple[str, str]]:
    def make(rng: random.Random) -> tuple[str, str]:
        old = _moment(rng)
        new = _later(rng, old) if "%M" in form or "%S" in form else old + timedelta(days=rng.randint(1, 9))
        if "%S" not in form and old.strftime(form) == new.strftime(form):
            new = old + timedelta(days=1, minutes=3)
        return old.strftime(form), new.strftime(form)

    return make


def _pair_of(make: Callable[[random.Random], str]) -> Callable[[random.Random], tuple[str, str]]:
    return lambda rng: (make(rng), make(rng))


VOLATILE: list[tuple[str, Callable[[random.Random], tuple[str, str]]]] = [
    ("The current time is {}.", _clock_pair("%Y-%m-%dT%H:%M:%SZ")),
    ("Today is {}.", _clock_pair("%A, %d %B %Y")),
    ("Current date: {}", _clock_pair("%B %d, %Y")),
    ("It is now {} in Vienna.", _clock_pair("%H:%M:%S")),
    ("Generated at {}", _clock_pair("%a, %d %b %Y %H:%M:%S GMT")),
    ("Local time {}", _clock_pair("%m/%d/%Y %I:%M %p")),
    ("Date: {}.", _clock_pair("%Y-%m-%d")),
    ("now={}", _clock_pair("%Y-%m-%d %H:%M:%S.%f")),
    ("Timestamp: {}", _pair_of(lambda r: str(r.randint(1_700_000_000, 1_799_999_999)))),
    ("ts {} ms", _pair_of(lambda r: str(r.randint(1_700_000_000_000, 1_799_999_999_999)))),
    ("Request id: {}", _pair_of(_uuid)),
    ("Trace {}", _pair_of(_ulid)),
    ("Session: {}", _pair_of(lambda r: "sess_" + _hex(r, 12))),
    ("Commit {}", _pair_of(lambda r: _hex(r, 40))),
    ("build {}", _pair_of(lambda r: _hex(r, 8))),
    ("Memory used: {}", _pair_of(lambda r: f"{r.randint(1, 99)}%")),
    ("Budget: {} chars", _pair_of(lambda r: f"{r.randint(1, 9)},{r.randint(100, 999)}/9,900")),
    ("Turn {}.", _pair_of(lambda r: str(r.randint(1, 99)))),
    ("Your scratch folder is {}", _pair_of(lambda r: f"/tmp/run-{_hex(r, 6)}/work")),
    ("The proxy listens on localhost:{}", _pair_of(lambda r: str(r.randint(20_000, 60_000)))),
    ("Process pid={}", _pair_of(lambda r: str(r.randint(1000, 99_999)))),
    ("There are {} unread messages.", _pair_of(lambda r: str(r.randint(2, 400)))),
    ("Nonce: {}", _pair_of(lambda r: _hex(r, 16).upper())),
    ("Step {} of 40", _pair_of(lambda r: str(r.randint(1, 39)))),
]


def _different(rng: random.Random, make: Callable[[random.Random], tuple[str, str]]) -> tuple[str, str]:
    while True:
        old, new = make(rng)
        if old != new:
            return old, new


def volatile_cases(seed: int) -> Iterator[Case]:
    for number in range(2 * len(VOLATILE)):
        rng = random.Random(f"volatile-{seed}-{number}")
        phrase, make = VOLATILE[number % len(VOLATILE)]
        old, new = _different(rng, make)
        messages = dialogue(rng, rng.randint(1, 3))
        where = (
            rng.choice(["front", "middle", "end", "user", "tool"])
            if number >= len(VOLATILE)
            else rng.choice(["front", "middle"])
        )
        if where == "tool":
            given = tools(rng)
            index = rng.randrange(len(given))
            changed = copy.deepcopy(given)
            given[index]["function"]["description"] = f"{sentence(rng)} {phrase.format(old)}"
            changed[index]["function"]["description"] = given[index]["function"]["description"].replace(
                old, new
            )
            yield Case(
                "volatile_value",
                body(maybe_going_on(rng, messages), tools=changed),
                [body(messages, tools=given)],
                f"tools[{index}].function.description",
                tool_template(rng),
                phrase,
            )
            continue
        index = 1 if where == "user" else 0
        text = messages[index]["content"]
        sentences = [part + "." for part in text.rstrip(".").split(". ")] if index == 0 else [text]
        place = {"front": 0, "middle": len(sentences) // 2, "end": len(sentences), "user": 0}[where]
        sentences.insert(place, phrase)
        whole = rng.choice([" ", "\n"]).join(sentences)
        messages[index]["content"] = whole.replace("{}", old)
        later = maybe_going_on(rng, messages)
        later[index]["content"] = whole.replace("{}", new)
        yield Case("volatile_value", body(later), [body(messages)], f"messages[{index}].content", name=phrase)


def stamp_cases(seed: int) -> Iterator[Case]:
    forms = [
        "x-anthropic-billing-header: cc_version=2.{}.1; cc_entrypoint=cli; cch={};",
        "x-client: agent/3.{} req_id={}",
        "X-Trace-Info: v=1.{} trace-id={}",
    ]
    for number in range(15):
        rng = random.Random(f"stamp-{seed}-{number}")
        form, minor = forms[number % 3], rng.randint(1, 9)
        messages = dialogue(rng, rng.randint(1, 3))
        text = messages[0]["content"]
        later = maybe_going_on(rng, messages)
        as_parts = number % 2 == 1
        for each in (messages, later):
            stamp = form.format(minor, _hex(rng, 5))
            each[0]["content"] = (
                [{"type": "text", "text": stamp + "\n"}, {"type": "text", "text": text}]
                if as_parts
                else f"{stamp}\n{text}"
            )
        yield Case("client_stamp", body(later), [body(messages)], "messages[0].content")


def user_cases(seed: int) -> Iterator[Case]:
    forms: list[tuple[str, Callable[[random.Random], str]]] = [
        ("The user's name is {}.", lambda r: r.choice(_NAMES)),
        ("You are talking to {}.", lambda r: r.choice(_NAMES)),
        ("User: {}", lambda r: f"{r.choice(_NAMES).split()[0].lower()}@example.org"),
        ("Customer id: {}", lambda r: str(r.randint(10_000, 99_999))),
        ("account_id={}", _uuid),
        ("Conversation id: {}", _uuid),
    ]
    for number in range(18):
        rng = random.Random(f"user-{seed}-{number}")
        phrase, make = forms[number % len(forms)]
        old, new = _different(rng, _pair_of(make))
        messages = dialogue(rng, 1)
        text = messages[0]["content"]
        form = rng.choice(["{0} {1}", "{1}\n{0}\n" + prose(rng, 2)])
        messages[0]["content"] = form.format(phrase.format(old), text)
        later = copy.deepcopy(messages)
        later[0]["content"] = form.format(phrase.format(new), text)
        if rng.random() < 0.5:
            later[1]["content"] = question(rng)
        yield Case("user_in_system", body(later), [body(messages)], "messages[0].content", name=phrase)


# ---------------------------------------------------------------------------------------------------------------------
# Tools, settings, JSON


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
        "customer": rng.choice(_NAMES),
        "note": sentence(rng),
        "tags": rng.sample(_OBJECTS, 2),
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


# ---------------------------------------------------------------------------------------------------------------------
# The form of texts


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


# ---------------------------------------------------------------------------------------------------------------------
# Template and tokens


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


# ---------------------------------------------------------------------------------------------------------------------
# History


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


# ---------------------------------------------------------------------------------------------------------------------
# Nothing lost, or not by content


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
            messages[0]["content"] = f"As {rng.choice(_SUBJECTS)}: {prose(rng, 4)}"
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


def cases(encode: Encode, seed: int = 0) -> Iterator[Case]:
    """All cases; `encode` is the tokenizer's, without added tokens."""
    yield from volatile_cases(seed)
    yield from stamp_cases(seed)
    yield from user_cases(seed)
    yield from tool_order_cases(seed)
    yield from tool_set_cases(seed)
    yield from settings_cases(seed)
    yield from json_cases(seed, "json_order")
    yield from json_cases(seed, "json_format")
    yield from whitespace_cases(seed)
    yield from unicode_cases(seed)
    yield from docs_cases(seed)
    yield from template_cases(seed)
    yield from retokenised_cases(seed, encode)
    yield from special_cases(seed)
    yield from dropped_cases(seed)
    yield from edited_cases(seed)
    yield from moved_cases(seed)
    yield from helper_cases(seed)
    yield from system_cases(seed)
    yield from marker_cases(seed)
    yield from short_cases(seed)
    yield from law_cases(seed, encode)
    yield from new_cases(seed)
    yield from fine_cases(seed)
    yield from unseen_setting_cases(seed)
    yield from namespace_cases(seed)
    yield from bypassed_cases(seed)
