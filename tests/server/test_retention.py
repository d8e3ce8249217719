"""cache_control: what is marked, where that ends in the prompt, and what becomes of several marks."""

from typing import Any

import pytest

from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.spans import Span, SpanMap
from anaphora.request import Retention
from anaphora.server.fields import UnknownFields
from anaphora.server.prompts import Prompt
from anaphora.server.retention import Mark, read_marks, retaining
from tests import fakes
from tests.models import templates
from tests.server.fakes import FakeEngine, chat, complete, make_app

FIVE_MINUTES, ONE_HOUR = 300.0, 3600.0
SHORT: dict[str, Any] = {"type": "ephemeral"}
LONG: dict[str, Any] = {"type": "ephemeral", "ttl": "1h"}
RENDERER = ChatRenderer(ChatTemplate(templates.CHATML), fakes.ByteTokenizer())


def span(path: str, token_start: int, token_end: int) -> Span:
    """Return a part whose characters do not matter."""
    return Span(path, token_start, token_end, token_start, token_end)


SPANS = SpanMap(
    (
        span("messages[0]", 0, 40),
        span("messages[0].content", 5, 35),
        span("messages[1]", 40, 90),
        span("messages[1].content[0]", 45, 60),
        span("generation-prompt", 90, 95),
    )
)


def kept(*marks: Mark, spans: SpanMap | None = SPANS) -> tuple[list[tuple[int, float]], int]:
    """Return what a prompt of 95 tokens asks to keep, and how many marks were not placed."""
    unplaced: list[None] = []
    prompt = retaining(Prompt("messages", [1] * 95, spans=spans), marks, lambda: unplaced.append(None))
    return [(retention.num_tokens, retention.ttl_s) for retention in prompt.retention], len(unplaced)


@pytest.mark.parametrize(
    "path, end", [("", 95), ("messages[0]", 40), ("messages[1]", 90), ("messages[1].content[0]", 60)]
)
def test_a_mark_reaches_to_the_end_of_its_part(path: str, end: int) -> None:
    assert kept(Mark(path, 300.0)) == ([(end, 300.0)], 0)


def test_a_part_that_was_not_found_is_marked_up_to_the_beginning_of_its_message() -> None:
    """Less than was asked for, but nothing else."""
    assert kept(Mark("messages[1].content[1]", 300.0)) == ([(40, 300.0)], 0)


@pytest.mark.parametrize("path", ["messages[2]", "messages[2].content[0]"])
def test_a_mark_without_a_place_keeps_nothing_and_is_counted(path: str) -> None:
    assert kept(Mark(path, 300.0)) == ([], 1)


def test_without_a_span_map_only_the_whole_prompt_can_be_marked() -> None:
    """The tokens do not spell the text, so no part of it has a place among them."""
    assert kept(Mark("messages[0]", 300.0), Mark("", 300.0), spans=None) == ([(95, 300.0)], 1)


def test_a_first_part_that_was_not_found_keeps_nothing() -> None:
    """Before the first message there is nothing to keep."""
    assert kept(Mark("messages[0].content[1]", 300.0)) == ([], 0)


@pytest.mark.parametrize(
    "marks, expected",
    [
        ([("messages[0]", 300.0), ("messages[1]", 300.0)], [(90, 300.0)]),
        ([("messages[0]", 300.0), ("messages[1]", 3600.0)], [(90, 3600.0)]),
        ([("messages[0]", 3600.0), ("messages[1]", 300.0)], [(40, 3600.0), (90, 300.0)]),
        ([("", 300.0)] * 9 + [("messages[1]", 3600.0)], [(90, 3600.0), (95, 300.0)]),
        ([("", 300.0), ("", 3600.0)], [(95, 3600.0)]),
    ],
)
def test_of_several_marks_the_longest_of_each_time_counts_unless_more_is_kept_longer(
    marks: list[tuple[str, float]], expected: list[tuple[int, float]]
) -> None:
    """However many there are, and in whichever order."""
    assert kept(*(Mark(*mark) for mark in marks)) == (expected, 0)


def test_marks_are_found_on_the_body_on_messages_and_on_their_parts() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "x", "cache_control": SHORT},
        {
            "role": "user",
            "content": [{"type": "text", "text": "y", "cache_control": LONG}, {"cache_control": None}],
        },
        {"role": "assistant", "content": None},
    ]
    unknown = UnknownFields(lambda name: None, strict=True)
    assert read_marks({"type": "ephemeral", "ttl": None}, messages, unknown) == [
        Mark("", FIVE_MINUTES),
        Mark("messages[0]", FIVE_MINUTES),
        Mark("messages[1].content[0]", ONE_HOUR),
    ]


def test_an_unknown_field_of_a_mark_is_counted() -> None:
    """At each of its three places."""
    counted: list[str] = []
    odd = SHORT | {"scope": "global"}
    content = [{"type": "text", "text": "hi", "cache_control": odd}]
    app = make_app(count_unknown_field=counted.append)
    messages = [{"role": "user", "content": content, "cache_control": odd}]
    assert chat(app, messages=messages, cache_control=odd).status_code == 200
    assert sorted(counted) == [
        "cache_control.scope",
        "messages[].cache_control.scope",
        "messages[].content[].cache_control.scope",
    ]


def test_the_marks_of_a_chat_reach_the_engine_as_tokens() -> None:
    """A token is a byte here, and markup is one token: im_start, "system\\n", "Be kind.", im_end, "\\n"."""
    engine = FakeEngine()
    app = make_app(engine, renderer=RENDERER)
    content = [
        {"type": "text", "text": "Be kind.", "cache_control": LONG},
        {"type": "text", "text": " Be brief."},
    ]
    messages = [
        {"role": "system", "content": content},
        {"role": "user", "content": "hi", "cache_control": SHORT},
    ]
    assert chat(app, messages=messages).status_code == 200
    user_end = len("_system\nBe kind. Be brief._\n_user\nhi_\n")
    assert engine.requests[0].retention == (
        Retention(len("_system\nBe kind."), ONE_HOUR),
        Retention(user_end, FIVE_MINUTES),
    )


def test_a_mark_of_the_body_keeps_every_prompt_as_a_whole() -> None:
    engine = FakeEngine()
    assert complete(make_app(engine), prompt=["abc", "defgh"], cache_control=LONG).status_code == 200
    assert [request.retention for request in engine.requests] == [
        (Retention(3, ONE_HOUR),),
        (Retention(5, ONE_HOUR),),
    ]
    assert chat(make_app(engine), cache_control=SHORT).status_code == 200
    assert engine.requests[-1].retention == (Retention(len("<user>hi<assistant>"), FIVE_MINUTES),)


def test_without_a_mark_nothing_is_asked_to_be_kept() -> None:
    engine = FakeEngine()
    assert complete(make_app(engine), cache_control=None).status_code == 200
    assert engine.requests[0].retention == ()


def test_a_mark_that_has_no_place_is_told_to_who_counts_them() -> None:
    """FakeRenderer knows no parts."""
    unplaced: list[None] = []
    app = make_app(count_unplaced_mark=lambda: unplaced.append(None))
    messages = [{"role": "user", "content": "hi", "cache_control": SHORT}]
    assert chat(app, messages=messages).status_code == 200
    assert len(unplaced) == 1
