"""Why prompts were not reused, from the HTTP request to the answer: everything real but the model."""

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from anaphora.assemble import Engine, LoadedModel, build_app, build_engine
from anaphora.config import EngineConfig, ExplainConfig, KVLayout, ServerConfig
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from tests.e2e.test_whole import metrics
from tests.fake_runner import FakeRunner
from tests.fakes import ByteTokenizer
from tests.models import templates
from tests.server.fakes import events, live

LAYOUT = KVLayout(8, 8, 600, 2)
TENANTS = ServerConfig(api_keys=("alpha", "beta"))
RULES = "Be kind to all who ask you something. It is {} now. Never lend anybody the key of the lighthouse."
HEADER = re.compile(r"hit=(\d+); of=(\d+)(?:; cause=(\w+))?")


@dataclass(frozen=True)
class Site:
    """A server, its engine, and a client."""

    engine: Engine
    client: httpx.AsyncClient

    async def post(self, path: str, key: str = "alpha", **body: Any) -> httpx.Response:
        """Send a body."""
        return await self.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})

    async def get(self, path: str, key: str = "alpha") -> httpx.Response:
        """Ask for something."""
        return await self.client.get(path, headers={"authorization": f"Bearer {key}"})

    async def complete(self, prompt: Any, key: str = "alpha", **body: Any) -> httpx.Response:
        """Complete a prompt."""
        return await self.post(
            "/v1/completions", key, prompt=prompt, **{"max_tokens": 1, "temperature": 0, **body}
        )

    async def chat(self, time: str = "14:02:31", key: str = "alpha", **body: Any) -> httpx.Response:
        """Ask the same question under rules that hold a clock."""
        messages = [
            {"role": "system", "content": RULES.format(time)},
            {"role": "user", "content": "Who are you, and since when are you here?"},
        ]
        return await self.post(
            "/v1/chat/completions", key, **{"messages": messages, "max_tokens": 1, "temperature": 0, **body}
        )

    async def metrics(self) -> dict[str, float]:
        """Return the metrics."""
        return metrics((await self.get("/metrics")).text)


def make(explain: ExplainConfig | None, **settings: Any) -> Engine:
    model = LoadedModel(
        runner=FakeRunner(LAYOUT),
        tokenizer=ByteTokenizer(),
        renderer=ChatRenderer(ChatTemplate(templates.CHATML), ByteTokenizer()),
        name="fake",
        sampling={},
        runner_name="fake",
        precision="none",
        max_model_len=1000,
        fingerprint=bytes(32),
        page_bytes=1,
    )
    return build_engine(EngineConfig.from_mapping(settings), model=model, explain=explain)


@asynccontextmanager
async def site(
    explain: ExplainConfig | None = None, config: ServerConfig = TENANTS, **settings: Any
) -> AsyncIterator[Site]:
    """Run a server with its whole lifespan."""
    engine = make(explain or ExplainConfig(), **settings)
    app = build_app(engine, config)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30) as client,
    ):
        yield Site(engine, client)
    engine.scheduler.check_invariants()
    assert engine.metrics.snapshot().num_explain_failures == 0


def run(story: Callable[[Site], Awaitable[None]], *args: Any, **options: Any) -> None:
    """Tell a story of one server."""

    async def tell() -> None:
        async with site(*args, **options) as made:
            await story(made)

    asyncio.run(tell())


def header(response: httpx.Response) -> tuple[int, int, str | None]:
    """Return hit, prompt and cause of the header."""
    assert response.status_code == 200, response.text
    found = HEADER.fullmatch(response.headers["x-anaphora-cache"])
    assert found, response.headers
    return int(found[1]), int(found[2]), found[3]


@pytest.mark.parametrize("extra", [{}, {"n": 2}, {"stream": True}, {"stream": True, "n": 2}])
def test_every_answer_names_its_cause_in_its_head(extra: dict[str, Any]) -> None:
    """Before the first byte of a stream, too."""

    async def story(site: Site) -> None:
        assert header(await site.chat(**extra))[2] == "never_seen"
        hit, of, cause = header(await site.chat("14:02:58", **extra))
        assert (hit, cause) == (56, "volatile_value")
        assert 0 < hit < of
        assert header(await site.chat("14:02:58", **extra))[2] in {"ok_partial", "architecture"}

    run(story)


def test_for_several_prompts_the_head_names_the_first_cause_that_can_be_mended() -> None:
    async def story(site: Site) -> None:
        text = RULES.format("14:02:31") + " Who are you?"
        await site.complete(text)
        answer = await site.complete(["A new one.", text.replace(":31", ":58")], anaphora={"explain": True})
        hit, of, cause = header(answer)
        assert cause == "volatile_value"
        given = answer.json()["anaphora"]
        assert given["explanation"]["cause"] == "volatile_value"
        assert [one["cause"] for one in given["explanations"]] == ["never_seen", "volatile_value"]
        assert sum(one["reused_tokens"] for one in given["explanations"]) == hit
        assert sum(one["prompt_tokens"] for one in given["explanations"]) == of
        ids = [one["request_id"] for one in given["explanations"]]
        assert ids == [f"{answer.json()['id']}-0", f"{answer.json()['id']}-1"]

    run(story)


@pytest.mark.parametrize("stream", [False, True])
def test_the_explanation_comes_with_the_answer_when_asked_for(stream: bool) -> None:
    """Streamed: in the closing chunk, which has no choices. It is that of the endpoint."""

    async def story(site: Site) -> None:
        await site.chat()
        answer = await site.chat("14:02:58", stream=stream, anaphora={"explain": True})
        if stream:
            frames = events(answer)
            assert frames[-1] == "[DONE]"
            assert frames[-2]["choices"] == []
            assert [frame for frame in frames[:-2] if "anaphora" in frame] == []
            body = frames[-2]
        else:
            body = answer.json()
        found = body["anaphora"]["explanation"]
        assert (found["old"], found["new"], found["path"]) == ("14:02:31", "14:02:58", "messages[0].content")
        assert sum(found["uncached"].values()) == found["prompt_tokens"] - found["reused_tokens"]
        assert (found["reused_tokens"], found["prompt_tokens"], found["cause"]) == header(answer)
        assert (await site.get(f"/v1/cache/requests/{body['id']}")).json() == found

    run(story)


def test_who_does_not_ask_gets_no_explanation() -> None:
    async def story(site: Site) -> None:
        bodies: list[dict[str, Any]] = [
            {},
            {"anaphora": {}},
            {"anaphora": None},
            {"anaphora": {"explain": False}},
        ]
        for given in bodies:
            answer = await site.chat(**given)
            assert answer.status_code == 200
            assert "anaphora" not in answer.json()
        refused = await site.chat(anaphora={"explain": 1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "anaphora.explain")

    run(story)


def test_the_list_shows_the_latest_first_without_any_text() -> None:
    async def story(site: Site) -> None:
        first, second = [(await site.chat(time)).json()["id"] for time in ("14:02:31", "14:02:58")]
        listed = await site.get("/v1/cache/requests")
        assert [one["request_id"] for one in listed.json()["data"]] == [second, first]
        newest = listed.json()["data"][0]
        assert (newest["cause"], newest["compared_with"]) == ("volatile_value", first)
        assert sum(newest["uncached"].values()) == newest["prompt_tokens"] - newest["reused_tokens"]
        assert "14:02" not in listed.text
        assert "kind" not in listed.text
        assert len((await site.get("/v1/cache/requests?limit=1")).json()["data"]) == 1
        for limit in ("0", "-1", "x", "10001", "1" * 400, "\u0663"):
            refused = await site.get(f"/v1/cache/requests?limit={limit}")
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "limit")

    run(story)


def test_one_request_can_be_compared_with_another() -> None:
    async def story(site: Site) -> None:
        ids = [(await site.chat(time)).json()["id"] for time in ("09:00:01", "14:02:31", "14:02:58")]
        usual = (await site.get(f"/v1/cache/requests/{ids[2]}")).json()
        named = (await site.get(f"/v1/cache/requests/{ids[2]}?against={ids[0]}")).json()
        assert (named["old"], named["new"], named["compared_with"]) == ("09:00:01", "14:02:58", ids[0])
        assert named["uncached"] == usual["uncached"]

    run(story)


def test_an_unknown_a_foreign_and_a_forgotten_request_give_the_same_answer() -> None:
    async def story(site: Site) -> None:
        forgotten = (await site.complete("forgotten")).json()["id"]
        foreign = (await site.complete("foreign", "beta")).json()["id"]
        own = (await site.complete("own")).json()["id"]
        assert (await site.get(f"/v1/cache/requests/{foreign}", "beta")).status_code == 200
        answers = set()
        for name in (forgotten, foreign, "cmpl-" + "0" * 32):
            for path in (f"/v1/cache/requests/{name}", f"/v1/cache/requests/{own}?against={name}"):
                answer = await site.get(path)
                head = {
                    k: v for k, v in answer.headers.items() if k not in {"x-request-id", "content-length"}
                }
                answers.add((answer.status_code, answer.text.replace(name, "…"), tuple(head.items())))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 404

    run(story, ExplainConfig(explain_requests=2))


def test_another_tenant_is_never_named_and_nothing_of_it_shows() -> None:
    """The same prompt, evictions by the other one, its ids and its words."""

    async def story(site: Site) -> None:
        secret = "the secret harbour plan of beta, word by word and line by line" * 2
        theirs = (await site.complete(secret, "beta")).json()["id"]
        own = await site.complete(secret, anaphora={"explain": True})
        assert header(own)[::2] == (0, "never_seen")
        assert own.json()["anaphora"]["explanation"]["compared_with"] is None
        for number in range(60):
            await site.complete(f"{number} " + "flood " * 40, "beta", max_tokens=1)
        again = await site.complete(secret, anaphora={"explain": True})
        told = again.json()["anaphora"]["explanation"]
        assert told["cause"] == "evicted"
        assert "another tenant" in told["advice"]
        assert theirs not in again.text
        assert not re.search(r"cmpl-[0-9a-f]{32}", told["advice"])
        listed = await site.get("/v1/cache/requests")
        assert len(listed.json()["data"]) == 2
        assert theirs not in listed.text
        probed = await site.post("/v1/cache/probe", prompt="0 " + "flood " * 40)
        assert probed.json()["cached_tokens"] == 0

    run(story)


def test_an_own_request_that_took_the_room_is_named() -> None:
    async def story(site: Site) -> None:
        text = "the same words again and again, as often as you like" * 2
        await site.complete(text)
        ids = [(await site.complete(f"{number} " + "flood " * 40)).json()["id"] for number in range(60)]
        told = (await site.complete(text, anaphora={"explain": True})).json()["anaphora"]["explanation"]
        assert (told["cause"], told["certainty"]) == ("evicted", "known")
        assert any(name in told["advice"] for name in ids)
        assert "would have kept them" in told["advice"]

    run(story)


@pytest.mark.parametrize("salt", [None, "narrow"])
def test_a_probe_tells_what_the_next_request_finds_and_changes_nothing(salt: str | None) -> None:
    async def story(site: Site) -> None:
        rng = random.Random(1)
        stem = "".join(rng.choices("abcdef", k=90))
        for _ in range(12):
            prompt = stem[: rng.randint(1, 90)] + rng.choice(["", "x", "yz"])
            before = site.engine.manager.pool.free_order(), await site.metrics()
            probed = (await site.post("/v1/cache/probe", prompt=prompt, cache_salt=salt)).json()
            twice = (await site.post("/v1/cache/probe", prompt=prompt, cache_salt=salt)).json()
            assert probed == twice
            assert (site.engine.manager.pool.free_order(), await site.metrics()) == before
            hit, of, _ = header(await site.complete(prompt, cache_salt=salt))
            assert (probed["cached_tokens"], probed["prompt_tokens"]) == (hit, of)
            assert probed["cached_tokens"] <= probed["best_possible_reuse"] < max(1, of)
            best = (await site.post("/v1/cache/probe", prompt=prompt, cache_salt=salt)).json()
            assert best["cached_tokens"] == best["best_possible_reuse"]
        foreign = (await site.post("/v1/cache/probe", "beta", prompt=stem, cache_salt=salt)).json()
        assert foreign["cached_tokens"] == 0

    run(story)


def test_a_chat_can_be_probed_as_it_would_be_sent() -> None:
    async def story(site: Site) -> None:
        messages = [{"role": "user", "content": "Who are you, and since when are you here?"}]
        empty = (await site.post("/v1/cache/probe", messages=messages)).json()
        assert (empty["object"], empty["cached_tokens"], empty["block_size"]) == ("cache.probe", 0, 8)
        await site.post("/v1/chat/completions", messages=messages, max_tokens=1)
        probed = (await site.post("/v1/cache/probe", messages=messages)).json()
        assert probed["cached_tokens"] == probed["best_possible_reuse"] > 0
        shorter = (await site.post("/v1/cache/probe", messages=messages, add_generation_prompt=False)).json()
        assert shorter["prompt_tokens"] < probed["prompt_tokens"]
        assert shorter["cached_tokens"] > 0
        for wrong in (
            {},
            {"prompt": "a", "messages": messages},
            {"prompt": ["a", "b"]},
            {"prompt": "a", "cache_salt": ""},
        ):
            assert (await site.post("/v1/cache/probe", **wrong)).status_code == 400

    run(story)


def test_a_server_that_remembers_nothing_says_so() -> None:
    """It answers as ever, without a cause."""

    async def story(site: Site) -> None:
        assert header(await site.chat())[2] is None
        for answer in (
            await site.chat(anaphora={"explain": True}),
            await site.get("/v1/cache/requests"),
            await site.get("/v1/cache/requests/cmpl-1"),
        ):
            assert answer.status_code == 400
            assert "--explain-requests" in answer.json()["error"]["message"]
        assert (await site.post("/v1/cache/probe", prompt="a b c d e f g")).status_code == 200

    run(story, ExplainConfig(explain_requests=0))


def test_a_server_without_memory_for_texts_counts_and_shows_none() -> None:
    async def story(site: Site) -> None:
        await site.chat()
        answer = await site.chat("14:02:58", anaphora={"explain": True})
        told = answer.json()["anaphora"]["explanation"]
        assert sum(told["uncached"].values()) == told["prompt_tokens"] - told["reused_tokens"]
        assert (told["old"], told["new"]) == (None, None)
        assert told["reused_tokens"] > 0
        assert (told["cause"], told["certainty"]) == (
            "ok_partial",
            "inferred",
        )  # it was seen, by whom is unknown
        other = (
            await site.complete("Something else altogether, and long enough.", anaphora={"explain": True})
        ).json()
        found = other["anaphora"]["explanation"]
        assert (found["cause"], found["certainty"]) == ("never_seen", "inferred")
        assert "14:02" not in str(told)
        found = await site.get(f"/v1/cache/requests/{answer.json()['id']}")
        assert found.json()["uncached"] == told["uncached"]

    run(story, ExplainConfig(explain_memory=0))


def test_the_totals_are_the_sums_of_the_verdicts() -> None:
    async def story(site: Site) -> None:
        for number in range(6):
            await site.chat(f"14:02:3{number}")
        await site.complete("to be scored", echo=True, logprobs=1)
        seen = await site.metrics()
        name = "anaphora:prefix_cache_miss_tokens_total"
        causes = {key: value for key, value in seen.items() if key.startswith(name)}
        bypassed = sum(value for key, value in causes.items() if 'cause="bypassed"' in key)
        assert bypassed == len("to be scored")
        missed = sum(causes.values()) - bypassed
        assert missed == seen["vllm:prefix_cache_queries_total"] - seen["vllm:prefix_cache_hits_total"]
        assert seen['anaphora:explain_remembered{what="requests"}'] == 7
        assert seen["anaphora:explain_failures_total"] == 0

    run(story)


def test_an_unknown_field_is_reported_once_although_bodies_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its count is how often it was sent."""

    async def story(site: Site) -> None:
        messages = [{"role": "user", "content": "Who are you, and since when are you here?", "mood": "gay"}]
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                answer = await site.chat(messages=messages, anaphora={"explain": True, "why": 1}, zeal=3)
                await site.get(f"/v1/cache/requests/{answer.json()['id']}")
        seen = await site.metrics()
        for field in ("messages[].mood", "anaphora.why", "zeal"):
            assert sum(repr(field) in record.getMessage() for record in caplog.records) == 1
            assert seen[f'anaphora:unknown_request_fields_total{{field="{field}"}}'] == 2

    run(story)


def test_a_pin_has_a_verdict_like_others() -> None:
    async def story(site: Site) -> None:
        body = {"prompt": "a prompt that is to be kept for a while"}
        admin = {"authorization": "Bearer admin", "x-anaphora-tenant-key": "alpha"}
        pin = await site.client.post("/v1/cache/pin", json=body, headers=admin)
        assert header(pin)[2] == "never_seen"
        (listed,) = (await site.get("/v1/cache/requests")).json()["data"]
        assert listed["request_id"].startswith("pin-")
        assert (await site.get(f"/v1/cache/requests/{listed['request_id']}")).json()["cause"] == "never_seen"

    run(story, config=ServerConfig(api_keys=("alpha",), admin_api_key="admin"))


def test_fifty_clients_at_once_get_the_verdict_of_their_own_request() -> None:
    """And the books of all of them add up."""

    async def story(site: Site) -> None:
        rng = random.Random(2)

        async def client(number: int) -> None:
            key = rng.choice(["alpha", "beta"])
            prompt = "abcdefgh" * rng.randint(1, 12) + str(number)
            stream = number % 3 == 0
            answer = await site.complete(prompt, key, max_tokens=3, stream=stream, anaphora={"explain": True})
            hit, of, cause = header(answer)
            body = events(answer)[-2] if stream else answer.json()
            told = body["anaphora"]["explanation"]
            assert (told["request_id"], of) == (body["id"], len(prompt))
            assert (told["reused_tokens"], told["cause"]) == (hit, cause)
            assert sum(told["uncached"].values()) == of - hit

        await asyncio.gather(*(client(number) for number in range(50)))
        listed = [(await site.get("/v1/cache/requests", key)).json()["data"] for key in ("alpha", "beta")]
        assert sum(map(len, listed)) == 50
        ids = [{one["request_id"] for one in each} for each in listed]
        assert not ids[0] & ids[1]
        for each, own in zip(listed, ids, strict=True):
            assert {one["compared_with"] for one in each} - {None} <= own

    run(story)


def test_clients_that_leave_while_they_wait_leave_nothing_behind() -> None:
    """Over a real socket; the books of all that were admitted add up."""
    engine = make(ExplainConfig())
    assert engine.explainer is not None
    with live(build_app(engine, ServerConfig())) as server:

        async def crowd() -> None:
            rng = random.Random(3)
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:

                async def one(number: int) -> None:
                    body = {
                        "prompt": "abcdefgh" * rng.randint(1, 60) + str(number),
                        "max_tokens": 40,
                        "stream": number % 2,
                    }
                    body["stream"] = bool(body["stream"])
                    request = client.post("/v1/completions", json=body)
                    try:
                        await asyncio.wait_for(request, rng.uniform(0.001, 0.2))
                    except TimeoutError:
                        pass

                for start in range(0, 60, 12):
                    await asyncio.gather(*(one(number) for number in range(start, start + 12)))
                await client.post("/reset_prefix_cache?reset_running_requests=true")
                seen = metrics((await client.get("/metrics")).text)
                listed = (await client.get("/v1/cache/requests?limit=1000")).json()["data"]
                assert all(
                    sum(e["uncached"].values()) == e["prompt_tokens"] - e["reused_tokens"] for e in listed
                )
                name = "anaphora:prefix_cache_miss_tokens_total"
                missed = sum(v for k, v in seen.items() if k.startswith(name) and "bypassed" not in k)
                assert (
                    missed == seen["vllm:prefix_cache_queries_total"] - seen["vllm:prefix_cache_hits_total"]
                )
                assert seen["anaphora:explain_failures_total"] == 0

        asyncio.run(crowd())
    assert engine.explainer._drafts == {}
    assert engine.explainer._verdicts == {}
