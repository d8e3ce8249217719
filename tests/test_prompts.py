"""The library for clients: one text for one value, the first bytes win, tools in one order, a history that only grows."""

import contextlib
import copy
import doctest
import json
import pickle
import random
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage

from anaphora import prompts
from anaphora.prompts import (
    History,
    HistoryChangedError,
    append_only,
    canonical_json,
    frozen_json,
    stable_tools,
)

DOCS = Path(__file__).parents[1] / "docs" / "prompts.md"

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value with the keys of all its objects in another order, and whole floats as integers."""
    if isinstance(value, dict):
        items = [(key, shuffled(item, rng)) for key, item in value.items()]
        rng.shuffle(items)
        return dict(items)
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    return int(value) if type(value) is float and value.is_integer() and abs(value) < 2**53 else value


# ---------------------------------------------------------------------------------------------------------------------
# canonical_json


@given(VALUES, st.randoms(use_true_random=False))
def test_a_value_has_one_text_whoever_made_it(value: Any, rng: random.Random) -> None:
    """In both orders of keys, and the text is that of the value."""
    for order in ("sorted", "schema"):
        text = canonical_json(value, order=order)
        assert text == canonical_json(shuffled(value, rng), order=order)
        assert text == canonical_json(json.loads(text), order=order)
        assert json.loads(text) == value
        text.encode()


@given(VALUES, VALUES)
def test_two_values_have_two_texts(a: Any, b: Any) -> None:
    """True and 1 are two values to JSON, 1.0 and 1 are one."""
    is_same = json.dumps(shuffled(a, random.Random(0)), sort_keys=True) == json.dumps(
        shuffled(b, random.Random(0)), sort_keys=True
    )
    assert (canonical_json(a) == canonical_json(b)) == is_same


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [2, {"d": 0, "c": 0}]}, '{"a":[2,{"c":0,"d":0}],"b":1}'),
        ({"é": "é\u2028", "e\u0301": '"\\\n\x00'}, '{"e\u0301":"\\"\\\\\\n\\u0000","é":"é\u2028"}'),
        ([1.0, -0.0, 1.5, 1e16, 10**16, True], "[1,0,1.5,1e+16,10000000000000000,true]"),
        ((1, ("x",)), '[1,["x"]]'),
    ],
)
def test_the_text_of_a_value_is_as_documented(value: Any, text: str) -> None:
    """Keys by code point, no spaces, no escapes but those JSON asks for, whole floats as integers."""
    assert canonical_json(value) == text


def test_the_order_for_schemas_leads_with_their_keywords_and_leaves_names_and_data_alone() -> None:
    """A property may be called `type`, and a default may have a key `required`."""
    schema = {
        "title": "T",
        "required": ["b", "a"],
        "properties": {
            "type": {"enum": ["z", "a"], "type": "string"},
            "default": {"required": [], "default": {"type": 1, "a": 2}, "type": "object"},
        },
        "description": "d",
        "type": "object",
    }
    assert canonical_json(schema, order="schema") == (
        '{"type":"object","description":"d","properties":{"default":{"type":"object","required":[],"default":'
        '{"a":2,"type":1}},"type":{"type":"string","enum":["z","a"]}},"required":["b","a"],"title":"T"}'
    )


def endless() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ({"a": [1, float("nan")]}, ValueError, r"\$\.a\[1\] is nan, which JSON cannot write"),
        ([float("-inf")], ValueError, r"\$\[0\] is -inf"),
        ({"a": {1: 2}}, TypeError, r"\$\.a has the key 1 of type int; keys of JSON objects are strings"),
        ({"a": {1, 2}}, TypeError, r"\$\.a is of type set, which has no JSON form"),
        ({"a": b"x"}, TypeError, r"\$\.a is of type bytes"),
        ({"a": "x\ud800"}, ValueError, r"\$\.a has half a surrogate pair at character 1"),
        ({"\ud800": 1}, ValueError, r"a key of \$ has half a surrogate pair at character 0"),
        (endless(), ValueError, r"is nested deeper than 100 levels, or holds itself"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(
    value: Any, error: type[Exception], words: str
) -> None:
    """In one line."""
    with pytest.raises(error, match=words) as caught:
        canonical_json(value)
    assert "\n" not in str(caught.value)


def test_another_order_is_refused() -> None:
    """The two names are given."""
    with pytest.raises(ValueError, match="order is 'json'; it is 'sorted' or 'schema'"):
        canonical_json({}, order="json")  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------------
# frozen_json


@given(VALUES, st.randoms(use_true_random=False), st.booleans())
def test_the_first_bytes_of_a_value_are_given_for_all_its_texts(
    value: Any, rng: random.Random, is_text: bool
) -> None:
    """Whether it comes as a text or as a value."""
    freeze = frozen_json()
    first = json.dumps(value, indent=1)
    assert freeze(first) == first
    other = shuffled(value, rng)
    again: Any = json.dumps(other, ensure_ascii=False) if is_text or isinstance(other, str) else other
    assert freeze(again) == first
    assert len(freeze) == 1


def test_a_value_is_written_in_its_own_order_and_another_value_is_not_confused_with_it() -> None:
    """Frozen is not canonical."""
    freeze = frozen_json()
    assert freeze({"b": 1.0, "a": "é"}) == '{"b":1.0,"a":"é"}'
    assert freeze('{"a": "é", "b": 1}') == '{"b":1.0,"a":"é"}'
    assert freeze({"b": True, "a": "é"}) == '{"b":true,"a":"é"}'


def test_the_text_that_was_not_asked_for_longest_is_forgotten_first() -> None:
    """By number and by size, and it is counted."""
    freeze = frozen_json(max_entries=2)
    freeze("[1 ]"), freeze("[2 ]"), freeze("[1]")
    freeze("[3 ]")  # 2 goes, since 1 was asked for again
    assert (freeze("[1]"), freeze("[3]"), freeze.num_evicted, len(freeze)) == ("[1 ]", "[3 ]", 1, 2)
    assert freeze("[2]") == "[2]"
    small = frozen_json(max_bytes=10)
    small("[1   ]"), small('"é"')
    assert (len(small), small.num_evicted) == (2, 0)  # six and four bytes
    small("[2]")
    assert (len(small), small.num_evicted, small("[1]")) == (2, 1, "[1]")


def test_a_text_that_can_never_be_remembered_is_refused() -> None:
    """With the limit and the remedy."""
    with pytest.raises(ValueError, match="the text has 12 bytes, the limit is 10; raise max_bytes"):
        frozen_json(max_bytes=10)("[1,2,3,4,56]")
    with pytest.raises(ValueError, match="both are at least 1"):
        frozen_json(max_entries=0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": ', r"this is no JSON text: .* at character 6 of '\{\"a\": '"),
        ("hello", "A string is taken for a JSON text; to freeze a string"),
        ("[NaN]", "the JSON text has NaN, which is no JSON number"),
        ('{"a": 1, "a": 2}', "an object of the JSON text has the key 'a' twice"),
        ("[1e999]", r"\$\[0\] is inf"),
        ('"\ud800"', "the JSON text has half a surrogate pair"),
        ("[" * 5000 + "]" * 5000, "nested deeper than 100 levels"),
    ],
)
def test_what_is_no_json_text_is_refused(text: str, words: str) -> None:
    """It could not be recognised again."""
    with pytest.raises(ValueError, match=words):
        frozen_json()(text)


class Meeting(OrderedDict[bytes, str]):
    """A memory in which two threads that look something up at once wait until both have seen it absent."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def get(self, key: bytes, default: Any = None) -> Any:
        found = super().get(key, default)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(timeout=0.2)  # one that is alone goes on: the other is kept out by the lock
        return found


def test_threads_agree_on_the_first_bytes() -> None:
    """Each asks with a text of its own, and both get that of the same one."""
    freeze = frozen_json()
    freeze._texts = Meeting()
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda text=text: answers.append(freeze(text))) for text in ("[1 ]", "[ 1]")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2 and answers[0] == answers[1]


# ---------------------------------------------------------------------------------------------------------------------
# stable_tools


def chat_tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


SCHEMA = {
    "type": "object",
    "properties": {"b": {"type": "number", "minimum": 1}, "a": {}},
    "required": ["b", "a"],
}
TOOLS = [
    chat_tool("zeta", description="d", parameters=SCHEMA, strict=True),
    {"name": "alpha", "description": "d", "input_schema": SCHEMA, "cache_control": {"type": "ephemeral"}},
    {"type": "function", "name": "mid", "parameters": SCHEMA},
    {"type": "web_search"},
    {"type": "mcp", "server_label": "github", "server_url": "u"},
]


@given(st.permutations(TOOLS), st.randoms(use_true_random=False))
def test_tools_have_one_text_in_whatever_order_they_come(tools: list[Any], rng: random.Random) -> None:
    """Sorted by name, in all shapes, and what was given stays as it was."""
    given_tools = [shuffled(tool, rng) for tool in tools]
    before = json.dumps(given_tools)
    found = stable_tools(given_tools)
    assert json.dumps(found) == json.dumps(stable_tools(TOOLS))
    assert json.dumps(given_tools) == before
    assert sorted(map(canonical_json, found)) == sorted(map(canonical_json, TOOLS))


def test_tools_are_sorted_and_their_schemas_lead_with_the_keywords() -> None:
    """And `required` keeps its order."""
    found = stable_tools(TOOLS)
    assert found[0]["name"] == "alpha" and list(found[0]) == [
        "name",
        "description",
        "cache_control",
        "input_schema",
    ]
    assert [tool.get("server_label") or tool.get("name") or tool["type"] for tool in found[1:4]] == [
        "github", "mid", "web_search",
    ]  # fmt: skip
    zeta = found[4]["function"]
    assert list(zeta) == ["name", "description", "parameters", "strict"]
    assert json.dumps(zeta["parameters"]) == (
        '{"type": "object", "properties": {"a": {}, "b": {"type": "number", "minimum": 1}}, "required": ["b", "a"]}'
    )


def test_what_is_returned_shares_nothing_with_what_was_given() -> None:
    """So it may be edited, a marker put on it."""
    tool = chat_tool("a", parameters={"type": "object", "properties": {}})
    stable_tools([tool])[0]["function"]["parameters"]["properties"]["x"] = {}
    assert tool == chat_tool("a", parameters={"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("tools", "error", "words"),
    [
        (
            [chat_tool("b"), chat_tool("a"), chat_tool("b"), {"name": "a"}],
            ValueError,
            "several tools are named 'a', 'b';",
        ),
        ([chat_tool("a"), {"type": "function"}], ValueError, r"tools\[1\] has no name"),
        ([{"type": "function", "function": {}}], ValueError, r"tools\[0\] has no name"),
        ([chat_tool("")], ValueError, r"tools\[0\] has no name"),
        ([{"name": 3}], ValueError, r"tools\[0\] has no name"),
        (["a"], TypeError, r"tools\[0\] is of type str; a tool is an object with a name"),
        (
            [chat_tool("a", parameters={"default": float("nan")})],
            ValueError,
            r"tools\[0\]\.function\.parameters\.default is nan",
        ),
    ],
)
def test_tools_that_cannot_be_told_apart_are_refused(
    tools: list[Any], error: type[Exception], words: str
) -> None:
    """By name, or by place."""
    with pytest.raises(error, match=words):
        stable_tools(tools)


# ---------------------------------------------------------------------------------------------------------------------
# append_only


def talk() -> History:
    return append_only(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Rain in Bonn?"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "function": {"arguments": '{"a":1}'}}],
            },
        ]
    )


@given(st.lists(OBJECTS, max_size=4), st.lists(OBJECTS, max_size=3))
def test_a_history_is_the_list_of_what_was_appended(first: list[Any], more: list[Any]) -> None:
    """Byte for byte, by whatever way it is read."""
    history = append_only(first)
    for message in more[:1]:
        history.append(message)
    history += more[1:]
    text = json.dumps(first + more)
    for seen in (
        history,
        list(history),
        [*history],
        history.messages,
        history.copy(),
        history + [],
        history[:],
    ):
        assert json.dumps(seen) == text
    assert json.dumps(history, indent=1) == json.dumps(first + more, indent=1)
    for twin in (copy.copy(history), copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert type(twin) is History and twin == history
        twin.append({"role": "user"})
    assert json.dumps(history) == text and isinstance(history, list)


def test_a_dict_that_was_appended_may_be_reused() -> None:
    """The history has a copy of it."""
    message = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    history = append_only([message])
    message["content"][0]["text"] = "b"  # type: ignore[index]
    assert history.messages == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    history.messages[0]["role"] = "x"
    assert history.messages[0]["role"] == "user"


READS: list[Callable[[History], Any]] = [
    lambda h: h.messages,
    list,
    json.dumps,
    lambda h: [*h],
    lambda h: json.dumps({"messages": h}, indent=2),
    lambda h: h + [],
    lambda h: h.append({"role": "user"}),
    lambda h: h.extend_to([]),
    lambda h: h.check(),
    copy.deepcopy,
]


@pytest.mark.parametrize("read", READS)
def test_a_message_that_was_changed_in_the_history_is_found_before_it_is_sent(
    read: Callable[[History], Any],
) -> None:
    """However it is read, with its place and both texts."""
    history = talk()
    history[1]["content"][0]["text"] = "Rain in Berlin?"
    with pytest.raises(
        HistoryChangedError, match=r"^messages\[1\]\.content\[0\]\.text was changed after"
    ) as caught:
        read(history)
    error = caught.value
    assert (error.index, error.path) == (1, "messages[1].content[0].text")
    assert (error.old, error.new) == ("'Rain in Bonn?'", "'Rain in Berlin?'")
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("change", "path", "old", "new"),
    [
        (lambda h: h[0].pop("role"), "messages[0].role", "'system'", "absent"),
        (lambda h: h[0].update(name="x"), "messages[0].name", "absent", "'x'"),
        (lambda h: h[1]["content"].append("x"), "messages[1].content[1]", "absent", "'x'"),
        (lambda h: h[2].update(content=0), "messages[2].content", "'null'", "'0'"),
        (lambda h: h[0].update(content=True), "messages[0].content", "'Be brief.'", "'true'"),
    ],
)
def test_the_field_that_was_changed_is_named(
    change: Callable[[History], Any], path: str, old: str, new: str
) -> None:
    """Also one that is gone or new."""
    history = talk()
    change(history)
    with pytest.raises(HistoryChangedError) as caught:
        history.check()
    assert (caught.value.path, caught.value.old, caught.value.new) == (path, old, new)


def test_keys_that_were_put_in_another_order_in_the_history_are_found_too() -> None:
    """Their bytes are other bytes."""
    history = talk()
    history[0]["role"] = history[0].pop("role")
    with pytest.raises(HistoryChangedError, match=r"messages\[0\] was written otherwise"):
        history.check()


EDITS: list[Callable[[History], Any]] = [
    lambda h: h.pop(),
    lambda h: h.pop(0),
    lambda h: h.insert(1, {"role": "user"}),
    lambda h: h.remove(h[1]),
    lambda h: h.clear(),
    lambda h: h.sort(key=str),
    lambda h: h.reverse(),
    lambda h: h.__delitem__(0),
    lambda h: h.__delitem__(slice(0, 2)),
    lambda h: h.__setitem__(-1, {"role": "user"}),
    lambda h: h.__setitem__(0, h[0]),
    lambda h: h.__setitem__(slice(0, 1), []),
    lambda h: h.__imul__(2),
]


@pytest.mark.parametrize("edit", EDITS)
def test_edits_are_refused_at_once_and_change_nothing(edit: Callable[[History], Any]) -> None:
    """All by which a list can change."""
    history = talk()
    with pytest.raises(HistoryChangedError, match=r"^messages\[\d\]"):
        edit(history)
    assert history == talk() and history.messages == talk().messages


def test_every_method_by_which_a_list_can_change_is_accounted_for() -> None:
    """One that a new Python adds to lists fails here."""
    reads = {"copy", "count", "index"}
    changes = {name for name in vars(list) if not name.startswith("_")} - reads
    changes |= {"__setitem__", "__delitem__", "__iadd__", "__imul__"}
    assert changes - set(vars(History)) == set()


def test_an_assignment_names_the_field_that_would_change() -> None:
    """As the whole message is given."""
    with pytest.raises(HistoryChangedError) as caught:
        talk()[0] = {"role": "system", "content": "Be long."}
    assert (caught.value.path, caught.value.new) == ("messages[0].content", "'Be long.'")


def test_a_whole_list_is_taken_where_it_begins_with_what_was_sent() -> None:
    """The rest is appended."""
    history = append_only()
    sent = talk().messages
    for length in (1, 3, 3):
        history.extend_to(sent[:length])
        assert history.messages == sent[:length]


@pytest.mark.parametrize(
    ("edit", "index", "path"),
    [
        (lambda m: m.pop(), 2, "messages[2]"),
        (lambda m: m.pop(0), 0, "messages[0].role"),
        (lambda m: m[1]["content"][0].update(text="…"), 1, "messages[1].content[0].text"),
        (
            lambda m: m[2]["tool_calls"][0]["function"].update(arguments='{"a": 1}'),
            2,
            "messages[2].tool_calls[0].function.arguments",
        ),
        (lambda m: m.insert(0, {"role": "system", "content": "Hi"}), 0, "messages[0].content"),
    ],
)
def test_a_whole_list_that_rewrites_what_was_sent_is_refused(
    edit: Callable[[Any], Any], index: int, path: str
) -> None:
    """The first message and field are named, and nothing is appended."""
    history = talk()
    new = [*history.messages, {"role": "user", "content": "And now?"}]
    if path == "messages[2]":
        new.pop()
    edit(new)
    with pytest.raises(HistoryChangedError) as caught:
        history.extend_to(new)
    assert (caught.value.index, caught.value.path) == (index, path)
    assert history.messages == talk().messages


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_same_messages_in_other_bytes_stay_as_they_were_first_sent(
    messages: list[Any], rng: random.Random
) -> None:
    """The first bytes win here too."""
    history = append_only(messages)
    history.extend_to([*(shuffled(message, rng) for message in messages), {"role": "user"}])
    assert json.dumps(history) == json.dumps([*messages, {"role": "user"}])


@given(st.lists(OBJECTS, max_size=4), st.lists(OBJECTS, max_size=4))
def test_a_whole_list_is_refused_exactly_where_it_does_not_begin_with_the_old_one(
    old: list[Any], new: list[Any]
) -> None:
    """And the message that is named is the first that differs."""
    texts = [list(map(canonical_json, side)) for side in (old, new)]
    first = next((i for i in range(len(old)) if i >= len(new) or texts[0][i] != texts[1][i]), None)
    history = append_only(old)
    if first is None:
        history.extend_to(new)
        assert list(map(canonical_json, history)) == texts[1]
        return
    with pytest.raises(HistoryChangedError) as caught:
        history.extend_to(new)
    assert caught.value.index == first and caught.value.path.startswith(f"messages[{first}]")


def test_snippets_of_long_texts_are_cut_around_the_difference() -> None:
    """A page of text is no error message."""
    history = append_only([{"role": "user", "content": "a" * 500 + "b" + "c" * 500}])
    with pytest.raises(HistoryChangedError) as caught:
        history.extend_to([{"role": "user", "content": "a" * 500 + "x" + "c" * 500}])
    assert caught.value.old == "…'" + "a" * 20 + "b" + "c" * 39 + "'…"
    assert caught.value.new == "…'" + "a" * 20 + "x" + "c" * 39 + "'…"


@pytest.mark.parametrize(
    ("messages", "error", "words"),
    [
        (["hi"], TypeError, r"messages\[1\] is of type str; a message is an object"),
        ([{}, {"content": object()}], TypeError, r"messages\[2\]\.content is of type object"),
        ([{"content": float("inf")}], ValueError, r"messages\[1\]\.content is inf"),
    ],
)
def test_what_is_no_message_is_refused_and_nothing_is_appended(
    messages: list[Any], error: type[Exception], words: str
) -> None:
    """Not even the good ones before it."""
    history = append_only([{"role": "system"}])
    with pytest.raises(error, match=words):
        history.extend(messages)
    assert history.messages == [{"role": "system"}]


def client_that_hears(bodies: list[Any]) -> openai.OpenAI:
    """An OpenAI client whose server keeps the bodies it gets and always says "No."."""

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "No."}}
        return httpx.Response(
            200,
            json={"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]},
        )

    # The SDK takes the client of httpx, and since version 3 that of its successor too.
    http_client: Any = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(
        api_key="k",
        base_url="http://localhost/v1",
        http_client=http_client,
        max_retries=0,
    )


def test_the_openai_client_sends_a_history_and_its_replies_can_be_appended() -> None:
    """Each request begins with the messages of the one before, byte for byte."""
    bodies: list[Any] = []
    with client_that_hears(bodies) as client:
        history = append_only([{"role": "user", "content": "Rain?"}])
        for _ in range(2):
            reply = client.chat.completions.create(model="m", messages=history, tools=stable_tools(TOOLS[:1]))  # type: ignore[arg-type]
            history.append(reply.choices[0].message)
            history.append({"role": "user", "content": "Sure?"})
    first, second = (json.dumps(body["messages"]) for body in bodies)
    assert second.startswith(first.removesuffix("]"))
    assert bodies[1]["messages"][1] == {"content": "No.", "role": "assistant"}


def test_objects_of_sdks_are_taken_wherever_they_stand() -> None:
    """As the SDKs send them: without what was not set."""
    message = ChatCompletionMessage(role="assistant", content="No.")
    assert append_only([message]).messages == [{"role": "assistant", "content": "No."}]
    assert canonical_json([message]) == '[{"content":"No.","role":"assistant"}]'


# ---------------------------------------------------------------------------------------------------------------------
# The page


def test_the_examples_of_the_docs_say_what_they_show() -> None:
    """Run in their order; the client's server is the one above."""
    page = DOCS.read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 6 and all(block.startswith(">>> ") for block in blocks)
    with client_that_hears([]) as client:
        test = doctest.DocTestParser().get_doctest(
            "\n".join(blocks), {"client": client}, "prompts.md", str(DOCS), 0
        )
        assert {
            name
            for name in ("canonical_json", "frozen_json", "stable_tools", "append_only")
            if name not in page
        } == set()
        report: list[str] = []
        results = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert results.attempted >= 20 and results.failed == 0, "".join(report)


def test_the_module_needs_nothing_of_the_package() -> None:
    """Whoever only writes prompts loads no server."""
    source = Path(prompts.__file__).read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))
    assert imported <= set(sys.stdlib_module_names)
