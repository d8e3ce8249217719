"""A template that would leave something out of the prompt without a word is told on."""

from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.models.chat_template import ChatTemplate
from tests.models import templates

TOOLS = [{"type": "function", "function": {"name": "f", "description": "Knows.", "parameters": {}}}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER: dict[str, Any] = {"role": "user", "content": "Hi"}
CALLING: dict[str, Any] = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "1", "content": "rain"}
# Shows what users and assistants say, and nothing else.
DEAF = (
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{{ m.content }};{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    "source, messages, tools, param, what",
    [
        (templates.SMOLLM2, [USER], TOOLS, "tools", "tools"),
        (templates.CHATML, [USER], TOOLS, "tools", "tools"),
        (templates.DEEPSEEK, [USER], TOOLS, "tools", "tools"),
        (templates.SMOLLM2, [USER, CALLING], None, "messages[1].tool_calls", "tool calls"),
        (templates.SMOLLM2, [USER, CALLING, RESULT], None, "messages[1].tool_calls", "tool calls"),
        (DEAF, [USER, RESULT], None, "messages[1]", "results of tools"),
        # It says that there are tools, but not which.
        (
            "{% if tools %}You have tools. {% endif %}{{ messages[0].content }}",
            [USER],
            TOOLS,
            "tools",
            "tools",
        ),
        # Nothing has a place here, so that looking for places alone would prove nothing.
        ("{{ messages[0].content | upper }}", [USER], TOOLS, "tools", "tools"),
    ],
)
def test_what_the_template_does_not_show_is_refused(
    source: str, messages: Any, tools: Any, param: str, what: str
) -> None:
    """The field and the way out are named."""
    with pytest.raises(InvalidRequestError) as caught:
        ChatTemplate(source).render(messages, tools=tools)
    assert caught.value.param == param
    assert str(caught.value) == (
        f"the chat template renders no {what}, so the model would not see {param}; start the server with a template "
        f"that does (--chat-template FILE), or send the conversation without {what}"
    )


@pytest.mark.parametrize(
    "source, messages, tools",
    [
        (templates.QWEN25, [USER, CALLING, RESULT], TOOLS),
        (templates.QWEN25, [USER], []),
        (templates.SMOLLM2, [USER], []),
        (templates.SMOLLM2, [USER, RESULT], None),  # like any other role
        (DEAF, [USER, {**RESULT, "content": " "}], None),  # there is nothing to show
        # Neither has a place that is certain.
        ("{{ tools | tojson | upper }}{{ tools[0].function.name }}", [USER], TOOLS),
        (
            "{% for m in messages %}{{ m.content | upper }}{{ m.content | reverse }}{{ m.content }}{% endfor %}",
            [RESULT],
            None,
        ),
        ("{{ messages[0].tool_calls | tojson }}{{ messages[0].tool_calls | tojson }}", [CALLING], None),
        # It looks at names, and has something against any other.
        (
            "{% if tools[0].function.name != 'f' %}{{ raise_exception('f!') }}{% endif %}{{ messages[0].content }}",
            [USER],
            TOOLS,
        ),
    ],
)
def test_what_it_shows_somehow_is_not(source: str, messages: Any, tools: Any) -> None:
    """Even where it has no place that could be told."""
    ChatTemplate(source).render(messages, tools=tools)
