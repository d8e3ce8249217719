"""Everything but the weights: HTTP, engine, scheduler and cache, with a FakeRunner below."""

import asyncio
import logging
import random
import re
from collections import Counter
from threading import Event
from typing import Any

import httpx
import pytest

from anaphora.assemble import Engine, LoadedModel, build_app, build_engine
from anaphora.config import EngineConfig, ExplainConfig, KVLayout, ServerConfig
from anaphora.server import stats_log
from tests.fake_runner import FakeRunner
from tests.fakes import ByteTokenizer
from tests.server.fakes import WAIT_S, live

LAYOUT = KVLayout(16, 32, 64, 2)


def make_engine(
    layout: KVLayout = LAYOUT, max_model_len: int = 512, explain: ExplainConfig | None = None, **settings: Any
) -> Engine:
    """Return an engine whose texts depend on the K/V it really reads."""
    model = LoadedModel(
        runner=FakeRunner(layout),
        tokenizer=ByteTokenizer(),
        renderer=None,
        name="fake",
        sampling={},
        runner_name="fake",
        precision="none",
        max_model_len=max_model_len,
        fingerprint=bytes(32),
        page_bytes=1,
    )
    return build_engine(EngineConfig.from_mapping(settings), model=model, explain=explain)


def metrics(text: str) -> dict[str, float]:
    """Return every sample without the labels all of them share."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = [line.rpartition(" ")[::2] for line in lines]
    shared = r'engine="0",?|model_name="fake",|,?model_name="fake"'
    return {re.sub(shared, "", name).replace("{}", ""): float(value) for name, value in pairs}


class Notice(logging.Handler):
    """Notices the first line of a log."""

    def __init__(self) -> None:
        super().__init__()
        self.was_written = Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.was_written.set()


@pytest.mark.parametrize("log_stats_s", [None, 0.001])
def test_the_log_says_what_was_done_if_asked_to(
    log_stats_s: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, stats_log.__name__)
    notice = Notice()
    stats_log.logger.addHandler(notice)
    try:
        with live(build_app(make_engine(), ServerConfig(), log_stats_s=log_stats_s)) as server:
            body = {"prompt": "abcdefgh" * 9, "max_tokens": 2}
            assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=WAIT_S).status_code == 200
            if log_stats_s is not None:
                assert notice.was_written.wait(WAIT_S)
    finally:
        stats_log.logger.removeHandler(notice)
    said = [message for message in caplog.messages if "Prefix cache hit rate" in message]
    assert bool(said) is (log_stats_s is not None)


class Crowd:
    """Two hundred clients, a third of whom go away in the middle of their streams."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rng = random.Random(3)
        self.heads = ["".join(self.rng.choices("abcdefgh", k=100)) for _ in range(4)]
        self.endings: Counter[str] = Counter()
        self.usages: list[dict[str, int]] = []

    async def client(self, http: httpx.AsyncClient, *, leaves: bool) -> None:
        """Send one prompt; leave after a few lines, or read to the end."""
        prompt = self.rng.choice(self.heads)[: self.rng.randrange(101)] + str(self.rng.random())
        body = {
            "prompt": prompt,
            "max_tokens": 60 if leaves else self.rng.randrange(1, 12),
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        async with http.stream("POST", f"{self.url}/v1/completions", json=body) as response:
            assert response.status_code == 200
            num_lines = 0
            async for line in response.aiter_lines():
                num_lines += 1
                if leaves and num_lines == 3:
                    break
                if '"usage":{' in line:
                    self.usages.append(httpx.Response(200, content=line[6:]).json()["usage"])
        self.endings["left" if leaves else "stayed"] += 1

    async def run(self) -> None:
        """Let all of them come, twenty at a time."""
        gate = asyncio.Semaphore(20)
        async with httpx.AsyncClient(timeout=WAIT_S, limits=httpx.Limits(max_connections=25)) as http:

            async def enter(number: int) -> None:
                async with gate:
                    await self.client(http, leaves=number % 3 == 0)

            await asyncio.gather(*(enter(number) for number in range(200)))


def settled(url: str) -> dict[str, float]:
    """Return the metrics once the engine has heard of everybody who left."""
    assert httpx.post(f"{url}/reset_prefix_cache?reset_running_requests=true", timeout=WAIT_S).json()[
        "success"
    ]
    return metrics(httpx.get(f"{url}/metrics", timeout=WAIT_S).text)


def test_two_hundred_clients_a_third_of_whom_leave_leak_nothing_and_the_books_add_up() -> None:
    """Pages, prompts by source, hits and queries, endings."""
    engine = make_engine()
    with live(build_app(engine, ServerConfig())) as server:
        crowd = Crowd(server.url)
        asyncio.run(crowd.run())
        seen = settled(server.url)
    engine.scheduler.check_invariants()
    assert crowd.endings == {"left": 67, "stayed": 133}
    assert seen['anaphora:pages{state="used"}'] == 0
    assert engine.manager.pool.usage() == (0, 0, LAYOUT.num_usable_pages)
    computed = seen['vllm:prompt_tokens_by_source_total{source="local_compute"}']
    reused = seen['vllm:prompt_tokens_by_source_total{source="local_cache_hit"}']
    assert computed + reused == seen["vllm:prompt_tokens_total"]
    assert seen["vllm:prefix_cache_hits_total"] <= seen["vllm:prefix_cache_queries_total"]
    endings = {name: value for name, value in seen.items() if name.startswith("vllm:request_success_total")}
    assert sum(endings.values()) == 200
    assert endings['vllm:request_success_total{finished_reason="length"}'] >= 133
    for usage in crowd.usages:
        details = usage["prompt_tokens_details"]
        assert 0 <= details["cached_tokens"] < usage["prompt_tokens"]  # type: ignore[index]


def test_n_answers_share_one_prefill_over_http() -> None:
    """50 tokens and n of 4: 50 computed in all, nothing reported as cached."""
    engine = make_engine()
    with live(build_app(engine, ServerConfig())) as server:
        body = {"prompt": "x" * 50, "n": 4, "max_tokens": 3, "temperature": 0, "ignore_eos": True}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=WAIT_S).json()
    assert len(answer["choices"]) == 4
    assert len({choice["text"] for choice in answer["choices"]}) == 1
    assert answer["usage"]["prompt_tokens"] == 50
    assert answer["usage"]["completion_tokens"] == 12
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert engine.metrics.snapshot().prompt_tokens_computed == 50


def test_identical_prompts_at_once_compute_one_prompt() -> None:
    """Eight clients, 300 tokens each: one prompt, and at most two blocks for each of the others."""
    engine = make_engine()

    async def ask(url: str) -> list[int]:
        body = {"prompt": "y" * 300, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
        async with httpx.AsyncClient(timeout=WAIT_S) as http:
            answers = await asyncio.gather(*(http.post(f"{url}/v1/completions", json=body) for _ in range(8)))
        return [answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]

    with live(build_app(engine, ServerConfig())) as server:
        cached = sorted(asyncio.run(ask(server.url)))
    assert cached == [0] + [288] * 7
    assert engine.metrics.snapshot().prompt_tokens_computed == 300 + 7 * 12
