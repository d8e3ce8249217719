"""The engine for scripts: what `LLM.chat` makes of tools, on the demo model."""

from pathlib import Path
from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.llm import LLM
from anaphora.request import SamplingParams
from tests.models import templates

pytestmark = pytest.mark.model

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "get_weather", "description": "Knows it."}}
USER = {"role": "user", "content": "Weather?"}
SHORT = SamplingParams(max_tokens=4, temperature=0.0)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """The demo model with a template that renders tools."""
    path: Path = tmp_path_factory.mktemp("templates") / "tools.jinja"
    path.write_text(templates.QWEN25, "utf-8")
    return LLM(chat_template=path, num_pages=40, max_model_len=1024)


def test_tools_are_in_the_prompt_of_each_conversation(llm: LLM) -> None:
    """One description of a tool, two conversations that share it."""
    completions = llm.chat(
        [[USER], [USER, {"role": "assistant", "content": "Wet."}, USER]], SHORT, tools=[TOOL]
    )
    for completion in completions:
        prompt = llm.engine.model.tokenizer.decode(completion.prompt_token_ids, skip_special_tokens=False)
        assert (
            '{"type": "function", "function": {"name": "get_weather", "description": "Knows it."}}' in prompt
        )
    plain = llm.chat([USER], SHORT)[0]
    assert plain.prompt_tokens < completions[0].prompt_tokens


def test_a_wrong_tool_is_named_by_its_path(llm: LLM) -> None:
    """An unknown field too: a script has nobody who reads a log."""
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]\.function\.name is null"):
        llm.chat([USER], SHORT, tools=[{"type": "function", "function": {}}])
    with pytest.raises(InvalidRequestError, match=r"tools\[\]\.x is no known field"):
        llm.chat([USER], SHORT, tools=[{**TOOL, "x": 1}])


def test_the_demo_models_own_template_renders_no_tools() -> None:
    """Which is said, instead of an answer that ignores them."""
    llm = LLM(num_pages=40, max_model_len=1024)
    with pytest.raises(InvalidRequestError, match="--chat-template"):
        llm.chat([USER], SHORT, tools=[TOOL])
