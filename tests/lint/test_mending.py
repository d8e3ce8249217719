"""The fix only moves and freezes: nothing is lost, and more is reused."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.explain.bodies import canonical
from anaphora.lint.frozen import json_in
from anaphora.lint.linter import lint
from anaphora.lint.mending import Mended, mend
from tests.lint.support import QUESTIONS, STORY, chat, log_of, means_of, tool

USERS = ("Ines Abernathy", "Hugo Petrenko")


def _mended(bodies: list[dict[str, Any]]) -> tuple[Mended, int]:
    """The fixed log, and how many tokens were reused before."""
    log, means = log_of(bodies), means_of()
    report = lint(log, means)
    made = mend(log, [finding.suspect for finding in report.findings], means)
    return made, report.reuse.reused_tokens


def _clocked(i: int, question: str) -> dict[str, Any]:
    tools = [tool("tide", a={"type": "string", "minLength": 1}), tool("crane")]
    if i % 2:
        tools = [tool("crane"), tool("tide", a={"minLength": 1, "type": "string"})]
    return chat(
        question, system=f"You are helping {USERS[i % 2]}.\nIt is 12:0{i}:31 now.\n{STORY}", tools=tools
    )


def test_values_move_behind_the_last_words_of_the_user_and_all_of_the_front_is_reused() -> None:
    made, before = _mended([_clocked(i, question) for i, question in enumerate(QUESTIONS)])
    assert made.num_changed == 4
    first = made.sources[0]["messages"]
    assert first[0]["content"] == f"\n\n{STORY}"
    assert first[1]["content"] == f"{QUESTIONS[0]}\n\nIt is 12:00:31 now.\n\nYou are helping {USERS[0]}."
    assert len({json.dumps(source["tools"]) for source in made.sources}) == 1
    assert before < made.reuse.reused_tokens
    assert made.reuse.reused[0] == 0 and min(made.reuse.reused[1:]) > 120


def test_a_log_without_faults_stays_as_it_is() -> None:
    bodies = [chat(question) for question in QUESTIONS]
    made, before = _mended(bodies)
    assert list(made.sources) == bodies
    assert (made.num_changed, made.reuse.reused_tokens) == (0, before)


def test_without_a_message_of_a_user_nothing_moves() -> None:
    bodies = [{"messages": [{"role": "system", "content": f"It is 12:0{i}:31. {STORY}"}]} for i in range(4)]
    made, _ = _mended(bodies)
    assert list(made.sources) == bodies


def test_values_move_in_the_bodies_of_all_apis() -> None:
    for body in (
        {"system": "S", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]},
        {"instructions": "S", "input": "Hi."},
        {"instructions": "S", "input": [{"role": "user", "content": [{"type": "input_image"}]}]},
    ):
        bodies = [
            json.loads(json.dumps(body).replace('"S"', json.dumps(f"It is 12:0{i}:31. {STORY}")))
            for i in range(2)
        ]
        texts = [json.dumps(source) for source in _mended(bodies)[0].sources]
        assert all(text.index("12:0") > text.index("lighthouse") for text in texts)


# ---------------------------------------------------------------------------------------------------------------------
# Nothing is lost


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _content(source: Any) -> Counter[str]:
    """The characters of all texts but white space, JSON in them taken for its value."""
    counts: Counter[str] = Counter()
    for text in _strings(source):
        place = 0
        for stretch in json_in(text):
            counts.update(
                text[place : stretch.start].split() and "".join(text[place : stretch.start].split())
            )
            counts.update(canonical(json.loads(text[stretch.start : stretch.end])))
            place = stretch.end
        counts.update("".join(text[place:].split()))
    return counts


_VALUES = st.one_of(
    st.times().map(lambda t: t.strftime("It is %H:%M:%S.")),
    st.uuids().map(lambda u: f"Session {u}."),
    st.sampled_from(
        ["Be kind.", "You are helping Ines Abernathy.", "You are helping Hugo Petrenko.", "# A\nB."]
    ),
    st.text(alphabet='ab .\n{}[]",:1', max_size=12),
)
_JSON = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3), min_size=2, max_size=3)


@st.composite
def _bodies(draw: st.DrawFn) -> dict[str, Any]:
    system = draw(st.sampled_from(["\n", " ", "\n\n"])).join([*draw(st.lists(_VALUES, max_size=4)), STORY])
    names = draw(st.permutations(["tide", "crane", "ferry"]))
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "tide", "arguments": json.dumps(draw(_JSON), separators=spaces)},
    }
    body = chat(draw(st.sampled_from(QUESTIONS)), system=system, tools=[tool(name) for name in names])
    if draw(st.booleans()):
        body["messages"] += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": json.dumps(draw(_JSON), separators=spaces)},
        ]
    return body


@settings(deadline=None, max_examples=60)
@given(st.lists(_bodies(), min_size=1, max_size=5))
def test_the_fix_loses_no_character(bodies: list[dict[str, Any]]) -> None:
    made, _ = _mended(bodies)
    for old, new in zip(bodies, made.sources, strict=True):
        assert _content(old) == _content(new)
        assert len(old["messages"]) == len(new["messages"])
