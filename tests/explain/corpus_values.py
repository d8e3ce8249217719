"""Cases of values that change: clocks and ids, stamps, users."""

import copy
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

from tests.explain.corpus_words import (
    NAMES,
    Case,
    body,
    dialogue,
    maybe_going_on,
    prose,
    question,
    sentence,
    tool_template,
    tools,
)


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
    ("Il est {} à Lyon.", _clock_pair("%Hh%M")),
    ("今は{}です。", _clock_pair("%Y年%m月%d日 %H時%M分")),
    (
        "Heute ist {}.",
        _pair_of(lambda r: f"der {r.randint(1, 28)}. {r.choice(['März', 'Mai', 'Oktober'])} 2026"),
    ),
    (
        "Hoje é {}.",
        _pair_of(lambda r: f"{r.randint(1, 28)} de {r.choice(['abril', 'junho', 'novembro'])} de 2026"),
    ),
    ("Week {} of the plan", _clock_pair("%G-W%V")),
    ("The last run took {}", _pair_of(lambda r: f"{r.randint(1, 90)}.{r.randint(10, 99)}s")),
    ("Queue depth: {}", _pair_of(lambda r: str(r.randint(1, 99)))),
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
        ("The user's name is {}.", lambda r: r.choice(NAMES)),
        ("You are talking to {}.", lambda r: r.choice(NAMES)),
        ("User: {}", lambda r: f"{r.choice(NAMES).split()[0].lower()}@example.org"),
        ("Customer id: {}", lambda r: str(r.randint(10_000, 99_999))),
        ("account_id={}", _uuid),
        ("Conversation id: {}", _uuid),
        ("The customer, {}, has a contract.", lambda r: f"Mr. {r.choice(NAMES).split()[1]}"),
        ("Nutzer: {}", lambda r: r.choice(NAMES)),
        ("L'utilisateur s'appelle {}.", lambda r: r.choice(NAMES)),
        ("ユーザー名: {}", lambda r: r.choice(["田中太郎", "鈴木花子", "佐藤健"])),
        ("profile.full_name={}", lambda r: r.choice(NAMES)),
        ("The project lies in /home/{}/src.", lambda r: r.choice(NAMES).split()[0].lower()),
    ]
    for number in range(24):
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
