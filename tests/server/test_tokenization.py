"""/tokenize and /detokenize."""

from typing import Any

import pytest

from tests.server.fakes import FakeEngine, call, make_app


def tokenize(**body: Any) -> Any:
    """Return the answer of /tokenize."""
    response = call(make_app(), "POST", "/tokenize", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_prompt_is_tokenised_as_completions_see_it() -> None:
    """With special tokens unless told otherwise; the length counts them."""
    assert tokenize(prompt="ab") == {
        "count": 3,
        "max_model_len": 200,
        "tokens": [256, 97, 98],
        "token_strs": None,
    }
    assert tokenize(prompt="ab", add_special_tokens=False)["tokens"] == [97, 98]
    assert tokenize(prompt="", add_special_tokens=False)["count"] == 0


@pytest.mark.parametrize(
    "add_generation_prompt, text", [(True, b"<user>hi<assistant>"), (False, b"<user>hi")]
)
def test_messages_are_tokenised_as_chats_see_them(add_generation_prompt: bool, text: bytes) -> None:
    """Through the same template."""
    messages = [{"role": "user", "content": "hi"}]
    body = tokenize(messages=messages, add_generation_prompt=add_generation_prompt, add_special_tokens=False)
    assert bytes(body["tokens"]) == text


def test_a_prompt_longer_than_the_context_can_be_counted() -> None:
    """That is what counting is for."""
    assert tokenize(prompt="x" * 1000)["count"] == 1001


@pytest.mark.parametrize(
    "path, body, param",
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt"),
        ("/tokenize", {"prompt": [1]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        (
            "/tokenize",
            {"messages": [{"role": "user", "content": "b"}], "add_special_tokens": True},
            "add_special_tokens",
        ),
        ("/tokenize", {"prompt": "a", "return_token_strs": True}, "return_token_strs"),
        (
            "/tokenize",
            {"messages": [{"role": "user", "content": "b"}], "chat_template": "x"},
            "chat_template",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/detokenize", {"tokens": [1, 258]}, "tokens[1]"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
    ],
)
def test_bad_input_names_its_field(path: str, body: dict[str, Any], param: str) -> None:
    """As on the generating endpoints."""
    response = call(make_app(), "POST", path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("text", ["", "hello", "größer \N{GRINNING FACE}"])
def test_detokenize_gives_back_what_tokenize_took(text: str) -> None:
    """Markup included."""
    tokens = tokenize(prompt=text)["tokens"]
    response = call(make_app(FakeEngine()), "POST", "/detokenize", json={"tokens": tokens, "model": "small"})
    assert response.json() == {"prompt": f"<bos>{text}"}
