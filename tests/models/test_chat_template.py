"""Messages → text: what templates are given, and what happens when they do not like it."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from anaphora.errors import ConfigError, InvalidRequestError, ModelError
from anaphora.models.chat_template import ChatTemplate
from tests.models import templates

MARKUP = {"bos_token": "<s>", "eos_token": "</s>"}


def make(source: str) -> ChatTemplate:
    return ChatTemplate(source, special_tokens=MARKUP, now=lambda: datetime(2026, 11, 29, 14, 2))  # noqa: DTZ001 - local time, as templates print it


def text(source: str, *messages: dict[str, Any], **options: Any) -> str:
    return make(source).render(messages, **options).text


def message(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


# ---------------------------------------------------------------------------------------------------------------------
# Rendering


def test_the_demo_models_prompt_is_exact() -> None:
    """With the system prompt it adds by itself, and the invitation to answer."""
    assert text(templates.SMOLLM2, message("user", "Hi")) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_no_generation_prompt_when_not_asked_for() -> None:
    """As `add_generation_prompt: false` on the wire."""
    assert (
        text(templates.CHATML, message("user", "Hi"), add_generation_prompt=False)
        == "<|im_start|>user\nHi<|im_end|>\n"
    )


def test_templates_know_special_tokens_and_the_clock() -> None:
    """`bos_token` and `strftime_now`, which prints local time."""
    assert text(templates.LLAMA3, message("user", " Hi ")).startswith(
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 29 Nov 2026\n\n<|eot_id|>"
    )


def test_names_that_are_not_given_are_undefined_and_print_nothing() -> None:
    """A model without a begin token, for example; `tools` and `documents` are None, as Hugging Face gives them."""
    template = ChatTemplate("{{ bos_token }}{{ tools is none }}{{ documents is none }}{{ x is defined }}")
    assert template.render([]).text == "TrueTrueFalse"


def test_template_kwargs_and_tools_reach_the_template() -> None:
    """But none of them replaces the messages."""
    source = "{{ enable_thinking }}{{ tools | length }}{{ messages | length }}{{ tools[0].function.name }}"
    options = {"enable_thinking": False, "messages": "x"}
    tools = [{"type": "function", "function": {"name": "f"}}] * 2
    chat = make(source).render([message("user", "a")], tools=tools, template_kwargs=options)
    assert chat.text == "False21f"


def test_text_parts_are_joined_with_nothing_between_them() -> None:
    """What a client cuts into parts is one text; other fields of a part are hints that do not reach the prompt."""
    parts = [
        {"type": "text", "text": "a"},
        {"type": "input_text", "text": " b", "cache_control": {"type": "ephemeral"}},
        {"type": "refusal", "refusal": "c"},
        "d",
    ]
    assert (
        text(templates.CHATML, message("user", parts), add_generation_prompt=False)
        == "<|im_start|>user\na bcd<|im_end|>\n"
    )


def test_a_template_that_takes_lists_only_is_given_lists() -> None:
    """Found out when it is made; a string would be rendered as its characters, or not at all."""
    assert (
        text(templates.PARTS_ONLY, message("user", "Hi"), message("user", ["a", "b"])) == "user:Hi\nuser:ab\n"
    )


def test_no_content_beside_tool_calls_is_an_empty_text() -> None:
    """`null` and a missing content too."""
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    source = "{% for m in messages %}[{{ m.content }}]{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}"
    for said in ({"role": "assistant", "tool_calls": [call]}, message("assistant", None, tool_calls=[call])):
        assert text(source, said) == "[]f"


def test_the_arguments_of_tool_calls_are_objects_to_the_template() -> None:
    """On the wire they are JSON in a string; `tojson` of that would escape it once more."""
    source = "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    call = {"function": {"name": "f", "arguments": '{"b": 1, "a": "é"}'}}
    assert text(source, message("assistant", None, tool_calls=[call])) == '{"b": 1, "a": "é"}'
    assert call["function"]["arguments"] == '{"b": 1, "a": "é"}'


def test_a_developer_is_the_system_to_templates_that_do_not_know_the_role() -> None:
    """A template whose source says "developer" is given that role."""
    said = message("developer", "Be brief.")
    assert (
        text(templates.CHATML, said, add_generation_prompt=False)
        == "<|im_start|>system\nBe brief.<|im_end|>\n"
    )
    assert text("{# developer #}" + templates.CHATML, said).startswith("<|im_start|>developer\n")


def test_messages_are_not_changed_by_rendering() -> None:
    """The caller keeps them, for its records."""
    messages = [message("user", [{"type": "text", "text": "a"}])]
    make(templates.CHATML).render(messages)
    assert messages == [message("user", [{"type": "text", "text": "a"}])]


# ---------------------------------------------------------------------------------------------------------------------
# Refusals


@pytest.mark.parametrize(
    "content, param, complaint",
    [
        (
            [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}],
            "messages[0].content[1]",
            "'image_url', but this model reads text only",
        ),
        (
            [{"type": "input_audio"}],
            "messages[0].content[0]",
            "'input_audio', but this model reads text only",
        ),
        ([{"text": "a"}], "messages[0].content[0]", "of type None"),
        ([{"type": []}], "messages[0].content[0]", r"of type \[\]"),
        ([7], "messages[0].content[0]", "of type 'int'"),
        (
            [{"type": "text", "text": 7}],
            "messages[0].content[0]",
            r"messages\[0\]\.content\[0\]\.text must be a string",
        ),
        (7, "messages[0].content", "is of type int, but must be a string or a list of parts"),
        (
            "a\ud800",
            "messages[0].content",
            r"messages\[0\]\.content holds the lone surrogate U\+D800 at character 1",
        ),
        (["é\udcff"], "messages[0].content[0]", r"U\+DCFF at character 1"),
    ],
)
def test_a_content_that_is_no_text_is_refused_by_its_path(content: Any, param: str, complaint: str) -> None:
    """The path is in the message and in `param`."""
    with pytest.raises(InvalidRequestError, match=complaint) as caught:
        text(templates.CHATML, message("user", content))
    assert caught.value.param == param


def test_arguments_that_are_no_json_are_refused_by_their_path() -> None:
    """The template could not read them."""
    call = {"function": {"name": "f", "arguments": "{"}}
    with pytest.raises(
        InvalidRequestError, match=r"messages\[0\]\.tool_calls\[0\]\.function\.arguments is not JSON"
    ) as caught:
        text(templates.CHATML, message("assistant", None, tool_calls=[call]))
    assert caught.value.param == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize(
    "source, complaint",
    [
        (templates.GEMMA, "the chat template refuses these messages: System role not supported$"),
        ("{{ messages[0].tool.name }}", "'dict object' has no attribute 'tool'"),
        ("{{ messages.append(1) }}", "not safely callable|unsafe|is not safe"),
        ("{{ 'a' + messages }}", "can only concatenate str"),
        ("{{ messages[0].content | int + 1 // 0 }}", "division"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_whatever_the_template_has_against_the_messages_is_the_callers_error(
    source: str, complaint: str
) -> None:
    """The template's own words, as a 400."""
    with pytest.raises(InvalidRequestError, match=complaint) as caught:
        text(source, message("system", "x"))
    assert caught.value.param == "messages"


def test_a_model_with_a_broken_template_does_not_start() -> None:
    """The line is named."""
    with pytest.raises(
        ModelError, match=r"^the model's chat template is wrong in line 2: Encountered unknown tag 'endfor'"
    ):
        make("a\n{% endfor %}")


def test_a_template_file_is_read(tmp_path: Path) -> None:
    """In place of the model's own."""
    path = tmp_path / "mine.jinja"
    path.write_text(templates.CHATML, "utf-8")
    assert (
        ChatTemplate.from_file(path)
        .render([message("user", "é")])
        .text.startswith("<|im_start|>user\né<|im_end|>")
    )


@pytest.mark.parametrize(
    "data, complaint",
    [
        (None, "cannot be read: No such file or directory"),
        (b"a\n\n{{ x", "is wrong in line 3: unexpected end of template"),
        (b"\xff", "is not UTF-8 text"),
    ],
)
def test_a_template_file_that_cannot_be_used_is_a_wrong_setting(
    data: bytes | None, complaint: str, tmp_path: Path
) -> None:
    """File, and line if there is one, are named."""
    path = tmp_path / "mine.jinja"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ConfigError, match=f"^--chat-template .*mine.jinja {complaint}"):
        ChatTemplate.from_file(path)
