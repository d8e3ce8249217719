"""A whole server that says what a test wants it to say, and a tokenizer that cuts one text in several ways."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from anaphora.assemble import Engine, LoadedModel, build_app, build_engine
from anaphora.config import EngineConfig, ExplainConfig, HelperConfig, KVLayout, ServerConfig
from anaphora.ids import RequestId, TokenId
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.scheduler.plan import ScheduledChunk
from tests.fake_runner import FakeRunner
from tests.fakes import ByteTokenizer
from tests.server.fakes import WAIT_S, live

LAYOUT = KVLayout(16, 32, 64, 2)


class PairTokenizer(ByteTokenizer):
    """Bytes, but "ab" is one token where a text is encoded; a model may still write "a" and "b"."""

    PAIR = 256 + len(ByteTokenizer.SPECIALS)

    @property
    def vocab_size(self) -> int:
        return self.PAIR + 1

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[TokenId]:
        token_ids: list[TokenId] = []
        for token_id in super().encode(text, add_special_tokens=add_special_tokens):
            if token_ids and (token_ids[-1], token_id) == (97, 98):
                token_ids[-1] = self.PAIR
            else:
                token_ids.append(token_id)
        return token_ids

    def token_bytes(self, token_id: TokenId) -> bytes:
        return b"ab" if token_id == self.PAIR else super().token_bytes(token_id)


class Speaker(FakeRunner):
    """Gives the n-th request the n-th reply, byte by byte, and then the end token."""

    def __init__(self, layout: KVLayout, replies: Sequence[str]) -> None:
        super().__init__(layout)
        self._replies = iter(replies)
        self._said: dict[RequestId, Iterator[int]] = {}

    def _choose(self, chunk: ScheduledChunk, request_id: RequestId) -> int:
        if request_id not in self._said:
            self._said[request_id] = iter(
                [*next(self._replies).encode(), ByteTokenizer.special_id("<|eos|>")]
            )
        return next(self._said[request_id])


class Talk:
    """A server in which chats are held; `key` is the API key they are held with."""

    def __init__(self, url: str, engine: Engine) -> None:
        self.url = url
        self.engine = engine

    def post(self, path: str, key: str | None = None, **body: Any) -> dict[str, Any]:
        """Send a body and return the answer."""
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        response = httpx.post(self.url + path, json=body, headers=headers, timeout=WAIT_S)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = json.loads(response.text)
        return answer

    def say(self, messages: Sequence[dict[str, Any]], key: str | None = None, **body: Any) -> "Answer":
        """Hold one turn of a chat."""
        answer = self.post(
            "/v1/chat/completions",
            key,
            messages=list(messages),
            temperature=0,
            anaphora={"explain": True},
            **body,
        )
        return Answer(answer)

    def tokens(self, messages: Sequence[dict[str, Any]], key: str | None = None, **body: Any) -> list[int]:
        """Return the prompt that these messages would be."""
        token_ids: list[int] = self.post("/tokenize", key, messages=list(messages), **body)["tokens"]
        return token_ids


class Answer:
    """What came back of a chat."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.text: str = answer["choices"][0]["message"]["content"]
        self.num_prompt: int = answer["usage"]["prompt_tokens"]
        self.num_cached: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.verdict: dict[str, Any] = answer["anaphora"]["explanation"]

    @property
    def message(self) -> dict[str, Any]:
        """The reply as it comes back in the next turn."""
        return {"role": "assistant", "content": self.text}


def user(text: str) -> dict[str, Any]:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def make_engine(
    replies: Sequence[str],
    template: str,
    *,
    explain: ExplainConfig | None = None,
    max_model_len: int = 1024,
    **settings: Any,
) -> Engine:
    """Return an engine that speaks the replies."""
    tokenizer = PairTokenizer()
    model = LoadedModel(
        runner=Speaker(LAYOUT, replies),
        tokenizer=tokenizer,
        renderer=ChatRenderer(ChatTemplate(template), tokenizer),
        name="fake",
        sampling={},
        runner_name="fake",
        precision="none",
        max_model_len=max_model_len,
        fingerprint=bytes(32),
        page_bytes=1,
    )
    return build_engine(EngineConfig.from_mapping(settings), model=model, explain=explain or ExplainConfig())


@contextmanager
def talk(
    helpers: HelperConfig | None,
    replies: Sequence[str],
    template: str,
    web: ServerConfig | None = None,
    **settings: Any,
) -> Iterator[Talk]:
    """Serve such an engine."""
    engine = make_engine(replies, template, **settings)
    with live(build_app(engine, web or ServerConfig(), helpers=helpers)) as server:
        yield Talk(server.url, engine)
