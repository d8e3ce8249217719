"""A body without its texts, and back."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.errors import RequestError
from anaphora.explain.skeleton import Known, Lost, Place, Written, digest_of, pack, size_bytes, unpack
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.fields import ReportedFields
from anaphora.server.messages import check_messages
from anaphora.server.tools import check_tools
from tests.models import templates

SOURCES = {**templates.ALL, **templates.WITH_TOOLS}
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "  ",
            "\n",
            "a",
            ' "quoted" \\ ',
            "tab\there",
            "é\u0301",
            "\u2028",
            "\U0001f600",
            "<|im_end|>",
            "<think>x</think>y",
        ]
    ),
    st.text(alphabet="ab \n", max_size=40),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant"]), "content": TEXTS}, optional={"name": TEXTS}
    ),
    min_size=1,
    max_size=4,
)
TOOLS = st.lists(
    st.builds(
        lambda name, description, properties: {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {"type": "object", "properties": properties},
            },
        },
        st.sampled_from(["search", "user", "x"]),
        TEXTS,
        st.dictionaries(st.text(max_size=5), JSON, max_size=2),
    ),
    max_size=2,
)


@cache
def template(name: str) -> ChatTemplate:
    return ChatTemplate(SOURCES[name], special_tokens={"bos_token": "<s>", "eos_token": "</s>"})


def rendered(name: str, body: dict[str, Any]) -> str | None:
    """Return the prompt of a body, None if the template or the server refuses it."""
    try:
        messages = check_messages(body["messages"], ReportedFields())
        tools = check_tools(body.get("tools"), ReportedFields())
        return template(name).render(messages, tools=tools).text
    except RequestError:
        return None


def knowing(value: Any) -> Known:
    """Return what is known beside a prompt that shows all texts of a value."""
    prompt = "\n".join(every_text(value))
    known = Known()
    known.take(pack(value, prompt), prompt)
    return known


def every_text(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in every_text(item)]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(SOURCES)), MESSAGES, st.none() | TOOLS)
def test_what_a_template_shows_comes_back_and_what_it_does_not_show_comes_back_as_a_name(
    name: str, messages: list[Any], tools: list[Any] | None
) -> None:
    """And wherever the other texts are known, everything comes back."""
    body = {"messages": messages} if tools is None else {"messages": messages, "tools": tools}
    prompt = rendered(name, body)
    if prompt is None:
        return
    packed = pack(body, prompt)
    assert unpack(packed, prompt, knowing(body)) == body
    assert_like(packed, unpack(packed, prompt), body)


def assert_like(packed: Any, found: Any, value: Any) -> None:
    """Equal, but for texts that are lost."""
    if isinstance(packed, Written):
        assert_like(packed.value, json.loads(found), json.loads(value))
    elif isinstance(packed, Lost):
        assert f"[text {digest_of(value)}]" in found or packed.middle or found == value
    elif isinstance(value, dict):
        assert list(found) == list(value)
        for name in value:
            assert_like(packed[name], found[name], value[name])
    elif isinstance(value, list):
        assert len(found) == len(value)
        for each in zip(packed, found, value, strict=True):
            assert_like(*each)
    else:
        assert found == value
        assert type(found) is type(value)


@given(JSON, st.text(max_size=60))
def test_any_json_survives_beside_any_prompt(value: Any, prompt: str) -> None:
    packed = pack(value, prompt)
    assert unpack(packed, prompt, knowing(value)) == value
    assert size_bytes(packed) > 0


@given(st.lists(st.text(alphabet="XYZ", min_size=3, max_size=30), min_size=1, max_size=4), st.booleans())
def test_no_text_stays_in_the_skeleton(given: list[str], is_shown: bool) -> None:
    """Neither one that the prompt shows nor one that it does not."""
    prompt = "\n".join(given) if is_shown else given[0][1:]
    kept = repr(pack({"messages": [{"role": "user", "content": text} for text in given]}, prompt))
    for text in given:
        for start in range(len(text) - 2):
            assert text[start : start + 3] not in kept


def test_a_word_of_the_api_is_kept_and_the_same_field_with_a_callers_words_is_not() -> None:
    """A schema may call anything a type, an id or a model."""
    packed = pack({"type": "function", "properties": {"type": "my secret", "id": "007", "model": "bond"}}, "")
    assert packed["type"] == "function"
    assert [type(packed["properties"][name]) for name in ("type", "id", "model")] == [Lost, Lost, Lost]


def test_a_trimmed_text_keeps_its_white_space() -> None:
    packed = pack(" \n what?\t", "<user>what?<end>")
    assert packed == Place(6, 11, " \n ", "\t")
    assert unpack(packed, "<user>what?<end>") == " \n what?\t"


def test_a_text_inside_json_is_read_out_of_it() -> None:
    prompt = json.dumps({"description": 'say "hi"\n'}, ensure_ascii=False)
    packed = pack('say "hi"\nand', prompt.replace('\\n"', '\\nand"'))
    assert packed.is_escaped
    assert unpack(packed, prompt.replace('\\n"', '\\nand"')) == 'say "hi"\nand'


@pytest.mark.parametrize("options", [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
def test_arguments_that_a_template_writes_its_own_way_come_back_as_they_were(options: dict[str, Any]) -> None:
    """Only the values are shown."""
    text = json.dumps({"städte": ["Wien", "Łódź"], "limit": 3, "exact": None}, **options)
    prompt = "<parameter=städte>Wien, Łódź</parameter><parameter=limit>3</parameter>"
    packed = pack(text, prompt)
    assert unpack(packed, prompt) == text
    assert "Wien" not in repr(packed)


def test_a_text_that_two_prompts_show_differently_is_the_same_text_for_both() -> None:
    """One shows its beginning by chance, the other its end."""
    text, known = "an old miller sings loudly at night", Known()
    prompts = ["an old miller sat", "and sings loudly at night"]
    packed = [pack(text, prompt) for prompt in prompts]
    for each, prompt in zip(packed, prompts, strict=True):
        known.take(each, prompt)
    first, second = (unpack(each, prompt, known) for each, prompt in zip(packed, prompts, strict=True))
    assert first == second


def test_a_lone_surrogate_is_a_text_like_others() -> None:
    packed = pack(["\ud800", "\udfff"], "prompt")
    assert packed[0] != packed[1]
    assert unpack(packed, "prompt", knowing(["\ud800", "\udfff"])) == ["\ud800", "\udfff"]


def test_of_a_text_that_is_shown_in_part_the_part_comes_back() -> None:
    """The thought is left out; a template that cuts at its end still can."""
    text = "<think>\nfirst I add\n</think>\n\nThe sum is four."
    prompt = "<assistant>\nThe sum is four.<end>"
    found = unpack(pack(text, prompt), prompt)
    assert found == f"<think>\n[text {digest_of('first I add')}]\n</think>\n\nThe sum is four."
    assert "first" not in repr(pack(text, prompt))


def test_two_lost_texts_differ_in_their_names_and_the_same_one_does_not() -> None:
    first, second, again = unpack(pack(["one text", "another", "one text"], ""), "")
    assert first == again != second


def test_names_of_texts_look_like_no_value_that_changes() -> None:
    """No digit, and no letter of a hexadecimal number."""
    assert not set(digest_of("x")) & set("0123456789abcdef")


@pytest.mark.timeout(60)
def test_a_body_of_many_texts_that_are_not_shown_is_packed_in_bounded_time() -> None:
    """A megabyte of prompt, thirty thousand texts."""
    value = [f"text number {number}" for number in range(30_000)]
    packed = pack(value, "a" * 1_000_000)
    assert all(isinstance(item, Lost) for item in packed)
