"""The unmodified openai client against a real server on a loopback port, with a scripted engine behind it."""

import asyncio
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from anaphora.config import ServerConfig
from anaphora.engine.protocols import GenerateInput
from anaphora.errors import ContextLengthError
from tests.server.fakes import MODEL, WAIT_S, FakeEngine, Live, Say, live, make_app

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def script(request: GenerateInput) -> Say:
    """What the engine does goes by what it is asked."""
    text = bytes(token_id for token_id in request.prompt_token_ids if token_id < 256)
    if b"too long" in text:
        return Say(fail_at=0, error=ContextLengthError("needs more pages than there are", param="messages"))
    if b"break" in text:
        return Say(fail_at=2)
    return Say(cached_tokens=16, cache_write_tokens=0)


@pytest.fixture(scope="module")
def server() -> Iterator[Live]:
    """One server for all tests of this file."""
    with live(make_app(FakeEngine(script), ServerConfig(api_keys=("key",)))) as running:
        yield running


@pytest.fixture
def client(server: Live) -> Iterator[openai.OpenAI]:
    """The client as its documentation sets it up."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0, timeout=WAIT_S) as made:
        yield made


def test_a_chat_has_typed_usage_and_a_request_id(client: openai.OpenAI) -> None:
    """cached_tokens arrives in the field of the SDK's own type."""
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    assert answer.choices[0].message.content == "Hello, world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 16
    assert answer.usage.prompt_tokens_details.cache_write_tokens == 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 3
    assert answer._request_id is not None and answer._request_id.startswith("req-")


def test_a_conversation_with_tools_is_sent_as_the_sdk_types_it(client: openai.OpenAI) -> None:
    """Tools, a call and its result; the answer is text and no call."""
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[
            *MESSAGES,
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "42"},
        ],
        tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        tool_choice="auto",
        parallel_tool_calls=False,
    )
    assert answer.choices[0].message.content == "Hello, world"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"


def test_a_chat_stream_ends_with_usage(client: openai.OpenAI) -> None:
    """The text is whole, and the last chunk has no choices."""
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello, world"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage is not None and last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens == 16


def test_log_probabilities_have_the_types_of_the_sdk(client: openai.OpenAI) -> None:
    """Whole and streamed, in chats and completions."""
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=1)
    assert answer.choices[0].logprobs is not None and answer.choices[0].logprobs.content is not None
    first = answer.choices[0].logprobs.content[0]
    assert (first.token, first.logprob, first.bytes, first.top_logprobs[0].token) == ("A", -1.0, [65], "a")
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, logprobs=True, stream=True)
    told = [chunk.choices[0].logprobs for chunk in stream]
    tokens = [entry.token for logprobs in told if logprobs for entry in logprobs.content or ()]
    assert tokens == [entry.token for entry in answer.choices[0].logprobs.content]
    completion = client.completions.create(model=MODEL, prompt=[104, 105], logprobs=1, echo=True)
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None and logprobs.token_logprobs is not None
    assert (logprobs.tokens, logprobs.text_offset) == (["h", "i", "A", "B", "C"], [0, 1, 2, 3, 4])
    assert logprobs.token_logprobs[1:] == [-2.0, -1.0, -1.0, -1.0]
    assert logprobs.top_logprobs is not None and logprobs.top_logprobs[4] == {"a": -0.25, "C": -1.0}


def test_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    """Two prompts, two answers each."""
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], n=2)
    assert [choice.text for choice in answer.choices] == ["Hello, world"] * 4
    assert answer.usage is not None and answer.usage.completion_tokens == 12
    texts = ["", ""]
    for chunk in client.completions.create(model=MODEL, prompt=[[1], [2]], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == ["Hello, world", "Hello, world"]


def test_the_stream_helper_of_the_client_works(client: openai.OpenAI) -> None:
    """It puts the chunks together and is strict about their shape."""
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "Hello, world"


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    """Slash in the name included."""
    assert [model.id for model in client.models.list()] == [MODEL, "small"]
    assert client.models.retrieve(MODEL).id == MODEL


def test_fields_beyond_the_sdk_go_through_extra_body(client: openai.OpenAI) -> None:
    """vLLM's way to send them."""
    extra = {"top_k": 5, "cache_salt": "s", "ignore_eos": True}
    assert client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=extra).choices


def test_errors_raise_the_right_classes(client: openai.OpenAI, server: Live) -> None:
    """With message, field, code and request id."""
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=3)
    assert bad.value.param == "temperature"
    assert bad.value.type == "invalid_request_error"
    assert bad.value.request_id is not None
    with pytest.raises(openai.BadRequestError) as long:
        client.completions.create(model=MODEL, prompt="x" * 300)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
    stranger = client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_a_request_the_engine_refuses_is_a_400_even_when_streamed(client: openai.OpenAI) -> None:
    """The SDK raises when the stream is made, not somewhere in its middle."""
    with pytest.raises(openai.BadRequestError, match="more pages"):
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "too long"}], stream=True
        )


def test_an_error_within_a_stream_raises(client: openai.OpenAI) -> None:
    """After the text that came before it."""
    texts = []
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "break"}], stream=True
    )
    with pytest.raises(openai.APIError, match="internal error"):
        for chunk in stream:
            texts.append(chunk.choices[0].delta.content)
    assert texts == ["", "Hello", ", "]


def test_the_async_client_works_the_same(server: Live) -> None:
    """Ten at once, half of them streamed."""

    async def one(client: openai.AsyncOpenAI, is_streamed: bool) -> str:
        if not is_streamed:
            answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
            return answer.choices[0].message.content or ""
        text = ""
        async for chunk in await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    async def ten() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="key", max_retries=0, timeout=WAIT_S
        ) as client:
            return await asyncio.gather(*(one(client, i % 2 == 0) for i in range(10)))

    assert asyncio.run(ten()) == ["Hello, world"] * 10
