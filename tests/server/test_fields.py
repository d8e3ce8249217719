"""No field is dropped in silence: each one is honoured, refused, ignored on purpose, or counted."""

import logging
from collections.abc import Mapping
from typing import Any, get_type_hints

import openai.types.chat as chat_types
import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from anaphora.server import fields
from anaphora.server.bodies import Body, ChatBody, CompletionBody, StreamOptions
from anaphora.server.messages import MESSAGE_FIELDS, PART_FIELDS, REFUSED_MESSAGE_FIELDS
from tests.server.fakes import FakeEngine, call, chat, complete, make_app


def names(*kinds: Any) -> set[str]:
    """The fields of the SDK's typed dictionaries."""
    return {name for kind in kinds for name in get_type_hints(kind)}


@pytest.mark.parametrize(
    "kind, defined",
    [
        (
            ChatBody,
            names(
                chat_create_params.CompletionCreateParamsNonStreaming,
                chat_create_params.CompletionCreateParamsStreaming,
            ),
        ),
        (
            CompletionBody,
            names(
                completion_create_params.CompletionCreateParamsNonStreaming,
                completion_create_params.CompletionCreateParamsStreaming,
            ),
        ),
        (StreamOptions, names(chat_types.ChatCompletionStreamOptionsParam)),
    ],
)
def test_every_field_of_the_sdk_is_in_exactly_one_list(kind: type[Body], defined: set[str]) -> None:
    """A new version of the SDK that brings a field fails here until somebody decides about it."""
    honoured, refused, ignored = set(kind.model_fields), set(kind.refused), set(kind.ignored)
    assert defined - honoured - refused - ignored == set()
    assert honoured & refused == refused & ignored == honoured & ignored == set()


def test_every_field_of_the_sdks_messages_is_in_exactly_one_list() -> None:
    """The same for what lies inside a message."""
    defined = names(
        chat_types.ChatCompletionSystemMessageParam,
        chat_types.ChatCompletionDeveloperMessageParam,
        chat_types.ChatCompletionUserMessageParam,
        chat_types.ChatCompletionAssistantMessageParam,
        chat_types.ChatCompletionToolMessageParam,
    )
    assert defined - MESSAGE_FIELDS - set(REFUSED_MESSAGE_FIELDS) == set()
    assert set(REFUSED_MESSAGE_FIELDS) & MESSAGE_FIELDS == set()
    assert names(chat_types.ChatCompletionContentPartTextParam) <= PART_FIELDS


HARMLESS = [
    (kind, name, value)
    for kind in ("chat", "completions")
    for name, refusal in (fields.REFUSED_BY_CHAT if kind == "chat" else fields.REFUSED_BY_COMPLETIONS).items()
    for value in (None, *refusal.harmless)
]


@pytest.mark.parametrize("kind, name, value", HARMLESS)
def test_a_refused_field_that_asks_for_nothing_passes(kind: str, name: str, value: Any) -> None:
    """Clients send defaults: `tools: []`, `logprobs: false`, null."""
    send = chat if kind == "chat" else complete
    assert send(make_app(), **{name: value}).status_code == 200


@pytest.mark.parametrize(
    "kind, table", [("chat", fields.REFUSED_BY_CHAT), ("completions", fields.REFUSED_BY_COMPLETIONS)]
)
def test_every_refused_field_is_named_with_a_remedy(kind: str, table: Mapping[str, fields.Refusal]) -> None:
    """Whatever its value, and even in a server that counts unknown fields only."""
    send = chat if kind == "chat" else complete
    for name, refusal in table.items():
        error = send(make_app(), **{name: {"some": "value"}}).json()["error"]
        assert error["param"] == name
        assert error["code"] == "unsupported_parameter"
        assert refusal.remedy in error["message"]


def test_zero_is_not_false() -> None:
    """In completions `logprobs: 0` asks for the log probability of each token; in a chat it is a wrong type."""
    assert chat(make_app(), logprobs=False).status_code == 200
    assert chat(make_app(), logprobs=0).status_code == 400
    assert chat(make_app(), tools=False).status_code == 400


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_an_ignored_field_changes_nothing(kind: str) -> None:
    """Their promise is about storage, billing and routing, not about the text; nothing is counted either."""
    counted: list[str] = []
    engine = FakeEngine()
    ignored = fields.IGNORED_BY_CHAT if kind == "chat" else fields.IGNORED_BY_COMPLETIONS
    send = chat if kind == "chat" else complete
    app = make_app(engine, count_unknown_field=counted.append, strict_fields=True)
    assert send(app).status_code == 200
    assert send(app, **dict.fromkeys(ignored, "x")).status_code == 200
    assert engine.requests[0].params == engine.requests[1].params
    assert counted == []


def test_an_unknown_field_is_counted_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """At every level where one can stand."""
    counted: list[str] = []
    app = make_app(count_unknown_field=counted.append)
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "c": 1}], "b": 1}],
        "stream": True,
        "stream_options": {"d": 1},
        "a": 1,
    }
    with caplog.at_level(logging.WARNING, logger="anaphora.server"):
        for _ in range(2):
            assert call(app, "POST", "/v1/chat/completions", json=body).status_code == 200
    assert counted == ["a", "messages[].b", "messages[].content[].c", "stream_options.d"] * 2
    assert len(caplog.messages) == 4
    assert "unknown field 'a'" in caplog.messages[0]


def test_an_unknown_field_is_refused_by_a_strict_server() -> None:
    """For those who would rather find their typing errors."""
    error = complete(make_app(strict_fields=True), temprature=0).json()["error"]
    assert error["param"] == "temprature"
    assert "spelling" in error["message"]
    assert chat(make_app(strict_fields=True)).status_code == 200


def test_names_that_callers_invent_cannot_fill_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    """After some hundred names all others are counted as one, and long ones are cut."""
    counted: list[str] = []
    unknown = fields.UnknownFields(counted.append, strict=False)
    for i in range(1000):
        unknown.report(f"{i}-" + "x" * 1000)
    assert len(set(counted)) == 257
    assert max(map(len, counted)) == 64
    assert counted.count("(other)") == 744
    assert len(caplog.messages) == 256
