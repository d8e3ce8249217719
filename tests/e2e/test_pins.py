"""Marked, warmed and pinned prompts, from the HTTP request to the pages: everything real but the model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from anaphora.config import KVLayout, ServerConfig
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.app import create_app
from tests.engine.support import SmallEngine, async_engine, small_engine
from tests.fakes import ByteTokenizer
from tests.models import templates

LAYOUT = KVLayout(4, 8, 33, 2)  # 32 usable pages of two blocks; a token is a byte, or a piece of markup
FIRST_PIN = list(range(64))


@dataclass(frozen=True)
class Site:
    """A server, its engine, and a client."""

    engine: SmallEngine
    client: httpx.AsyncClient

    async def post(self, path: str, **body: Any) -> httpx.Response:
        """Send a body."""
        return await self.client.post(path, json=body)

    async def ask(self, prompt: list[int], **body: Any) -> dict[str, Any]:
        """Complete a prompt of token ids."""
        answer = await self.post("/v1/completions", prompt=prompt, **body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def cached(self, prompt: list[int]) -> int:
        """Return how many tokens of a prompt are found."""
        answer = await self.ask(prompt, max_tokens=1)
        number: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return number

    async def flood(self) -> None:
        """Fill the whole pool with other prompts, twice."""
        for number in range(8):
            await self.ask([100 + number] * 120, max_tokens=0)


@asynccontextmanager
async def site(config: ServerConfig | None = None, **headers: str) -> AsyncIterator[Site]:
    """Run a server whose pool lets eight pages, 64 tokens, be pinned."""
    small = small_engine(layout=LAYOUT, max_pinned_pages=8)
    engine = async_engine(small)
    renderer = ChatRenderer(ChatTemplate(templates.CHATML), ByteTokenizer())
    app = create_app(engine, config or ServerConfig(), served_models=["m"], renderer=renderer)
    engine.start()
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        try:
            yield Site(small, client)
        finally:
            await engine.stop()
            small.scheduler.check_invariants()
            assert small.manager.pool.usage().used == 0


def run(story: Callable[[Site], Awaitable[None]]) -> None:
    """Tell a story of one server."""

    async def tell() -> None:
        async with site() as made:
            await story(made)

    asyncio.run(tell())


@pytest.mark.parametrize("stream", [False, True])
def test_a_warm_up_answers_with_nothing_and_the_next_request_finds_its_prompt(stream: bool) -> None:
    """Streamed: the role, the end, the usage."""

    async def story(site: Site) -> None:
        body = {"messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 0, "temperature": 0}
        options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer = await site.post("/v1/chat/completions", **body, **options)
        if stream:
            frames = answer.text.split("\n\n")
            assert ['"role":"assistant"' in frames[0], '"finish_reason":"length"' in frames[1]] == [
                True,
                True,
            ]
            assert '"completion_tokens":0' in frames[2] and frames[3] == "data: [DONE]"
        else:
            choice = answer.json()["choices"][0]
            assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
            assert answer.json()["usage"]["completion_tokens"] == 0
        again = (await site.post("/v1/chat/completions", **body)).json()["usage"]
        details = again["prompt_tokens_details"]
        # All but the last tokens, two of which at least are computed.
        assert details["cached_tokens"] == (again["prompt_tokens"] - 2) // 4 * 4
        assert details["cache_write_tokens"] == 0

    run(story)


def test_a_completion_without_tokens_may_echo_its_prompt() -> None:
    """The old way to ask for a prompt and nothing else."""

    async def story(site: Site) -> None:
        answer = await site.post("/v1/completions", prompt="hello", max_tokens=0, echo=True)
        assert answer.json()["choices"][0]["text"] == "hello"

    run(story)


def test_a_marked_beginning_outlives_a_flood_and_an_unmarked_one_does_not() -> None:
    """The system message is marked; what follows it is not, and goes."""

    async def story(site: Site) -> None:
        async def chat(content: Any, question: str) -> int:
            messages = [{"role": "system", "content": content}, {"role": "user", "content": question}]
            answer = await site.post("/v1/chat/completions", messages=messages, max_tokens=1)
            number: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            return number

        text = "Be kind to all who ask you something now."  # ends in the last block of a page
        marked = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        num_marked = len("_system\n" + text) // 4 * 4
        assert await chat(marked, "Who are you, then?") == 0
        assert site.engine.manager.pool.num_pinned_pages == -(-num_marked // 8)
        await site.flood()
        assert await chat(text, "Who are you, then?") == num_marked
        site.engine.clock.advance(301.0)
        await site.flood()
        assert await chat(text, "Who are you, then?") == 0
        assert site.engine.manager.pool.num_pinned_pages == 0

    run(story)


def test_a_pinned_prompt_outlives_a_flood_until_its_hour_has_passed() -> None:
    async def story(site: Site) -> None:
        answer = await site.post("/v1/cache/pin", prompt=FIRST_PIN[:50], ttl="1h")
        assert answer.status_code == 200
        numbers = {name: answer.json()[name] for name in ("prompt_tokens", "pinned_tokens", "cached_tokens")}
        assert numbers == {"prompt_tokens": 50, "pinned_tokens": 48, "cached_tokens": 0}
        site.engine.clock.advance(3500.0)
        await site.flood()
        again = (await site.post("/v1/cache/pin", prompt=FIRST_PIN[:50])).json()
        assert (again["pinned_tokens"], again["cached_tokens"]) == (48, 48)
        site.engine.clock.advance(101.0)  # the hour is over, but not the five minutes of the second pin
        await site.flood()
        assert await site.cached(FIRST_PIN[:50]) == 48
        site.engine.clock.advance(200.0)
        await site.flood()
        assert await site.cached(FIRST_PIN[:50]) == 0

    run(story)


def test_a_pin_beside_which_another_has_no_room_is_a_conflict_until_it_lapses() -> None:
    """The second prompt is computed and cached all the same, and its blocks may go."""

    async def story(site: Site) -> None:
        assert (await site.post("/v1/cache/pin", prompt=FIRST_PIN)).json()["pinned_tokens"] == 64
        second = [99] * 30
        refused = await site.post("/v1/cache/pin", prompt=second)
        assert (refused.status_code, refused.json()["error"]["type"]) == (409, "conflict_error")
        assert await site.cached(second) == 28
        # A mark that is refused is no error: it is a hint.
        await site.ask(second, max_tokens=1, cache_control={"type": "ephemeral"})
        assert site.engine.manager.pool.num_pinned_pages == 8
        site.engine.clock.advance(301.0)
        assert (await site.post("/v1/cache/pin", prompt=second)).json()["pinned_tokens"] == 28

    run(story)


def test_a_prompt_that_is_over_the_limit_alone_is_refused_at_once() -> None:
    """67 tokens have 64 in full blocks, which is the limit; 68 have 68."""

    async def story(site: Site) -> None:
        refused = await site.post("/v1/cache/pin", prompt=[1] * 68)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "prompt")
        assert site.engine.runner.num_computed_tokens == 0
        assert (await site.post("/v1/cache/pin", prompt=[1] * 67)).json()["pinned_tokens"] == 64

    run(story)


def test_a_tenants_pin_is_found_by_that_tenant_only() -> None:
    """And whoever pins the same prompt in another cache computes it anew."""

    async def story() -> None:
        config = ServerConfig(api_keys=("alpha", "beta"), admin_api_key="admin")
        async with site(config) as made:
            admin = {"authorization": "Bearer admin"}
            body = {"prompt": FIRST_PIN[:24]}
            for tenant, cached in (("alpha", 0), ("alpha", 20), ("beta", 0)):
                headers = {**admin, "x-anaphora-tenant-key": tenant}
                answer = await made.client.post("/v1/cache/pin", json=body, headers=headers)
                assert (answer.json()["cached_tokens"], answer.json()["pinned_tokens"]) == (cached, 24)
            answer = await made.client.post(
                "/v1/completions",
                json=body | {"max_tokens": 1, "cache_salt": "mine"},
                headers={"authorization": "Bearer alpha"},
            )
            assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    asyncio.run(story())
