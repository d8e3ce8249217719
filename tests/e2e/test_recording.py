"""`anaphora serve --record`, whole: HTTP traffic with evictions, recorded, and played again."""

import asyncio
import json
import random
import stat
from pathlib import Path

import httpx
import pytest

from anaphora.assemble import LoadedModel, build_app, build_engine
from anaphora.cli.main import main
from anaphora.cli.trace_files import ReadOptions, read_trace
from anaphora.config import EngineConfig, KVLayout, RecordingConfig, ServerConfig
from anaphora.errors import ConfigError
from anaphora.sim.chats import Tokenize
from anaphora.sim.steps import StepReplay, departures
from tests.fake_runner import FakeRunner
from tests.fakes import ByteTokenizer
from tests.server.fakes import live

LAYOUT = KVLayout(16, 32, 20, 2)
KEY = b"k" * 32


def model() -> LoadedModel:
    return LoadedModel(
        runner=FakeRunner(LAYOUT),
        tokenizer=ByteTokenizer(),
        renderer=None,
        name="fake",
        sampling={},
        runner_name="fake",
        precision="none",
        max_model_len=256,
        fingerprint=bytes(32),
        page_bytes=1,
    )


def no_tokenizer() -> Tokenize:
    raise AssertionError("a recording needs none")


async def send(http: httpx.AsyncClient, draw: random.Random, number: int, heads: list[str]) -> None:
    """One client of sixty; every seventh leaves before the end."""
    body = {
        "prompt": draw.choice(heads)[: draw.randrange(20, 150)] + f"secret {number}",
        "max_tokens": draw.randrange(1, 30),
        "ignore_eos": True,
        "stream": True,
        "n": 2 if number % 9 == 0 else 1,
    }
    await asyncio.sleep(draw.random() / 5)
    async with http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200
        num_lines = 0
        async for _ in response.aiter_lines():
            num_lines += 1
            if number % 7 == 0 and num_lines > 4:
                return


async def traffic(url: str) -> None:
    draw = random.Random(4)
    heads = ["".join(draw.choices("abcdefgh", k=150)) for _ in range(6)]
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        await asyncio.gather(*(send(http, draw, number, heads) for number in range(60)))


def record(path: Path) -> None:
    engine = build_engine(
        EngineConfig.from_mapping({"max_num_seqs": 6, "max_num_batched_tokens": 64}),
        model=model(),
        recording=RecordingConfig(path=path, key=KEY),
    )
    with live(build_app(engine, ServerConfig())) as server:
        asyncio.run(traffic(server.url))
    assert engine.metrics.snapshot().num_page_evictions > 0


def test_a_recorded_server_is_repeated_block_for_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    record(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "secret" not in path.read_text()
    trace = read_trace(path, ReadOptions(), no_tokenizer)
    assert len(trace.requests) == 60
    assert len(trace.forks) == 7
    assert sum(trace.recorded_tokens or ()) > 0
    assert departures(StepReplay(trace).run()) == []

    assert main(["simulate", str(path), "--verify"]) == 0
    assert "67 of 67 requests reuse exactly the blocks" in capsys.readouterr().out
    assert main(["simulate", str(path), "--json", "--policy", "lru"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["recorded"]["hit_rate_all"] > 0
    assert [point["pages"] for point in found["curve"] if point["policy"] == "lru"] == [9, 19, 38, 76, 152]


def test_nothing_can_be_recorded_without_a_cache(tmp_path: Path) -> None:
    recording = RecordingConfig(path=tmp_path / "f")
    with pytest.raises(ConfigError, match="prefix caching is off"):
        build_engine(
            EngineConfig.from_mapping({"enable_prefix_caching": False}), model=model(), recording=recording
        )
    assert not recording.path.exists()
