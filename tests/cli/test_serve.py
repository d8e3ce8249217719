"""The flags of `anaphora serve`, and the screen at its start."""

import argparse
from pathlib import Path

import pytest

from anaphora.cli import serve
from anaphora.cli.helper_flags import helper_config
from anaphora.config import CacheConfig, EngineConfig, HelperConfig, RecordingConfig, ServerConfig
from anaphora.errors import ConfigError

FACTS = {
    "url": "http://127.0.0.1:8000",
    "model": ["a", "b"],
    "runner": "openvino, 2 threads",
    "precision": "bfloat16, K/V bf16",
    "max_model_len": 8192,
    "page_size": 32,
    "block_size": 16,
    "blocks_per_page": 2,
    "num_pages": 999,
    "kv_tokens": 31968,
    "kv_bytes": 2**30,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 512,
    "scheduling_policy": "fcfs",
    "coalesce_deadline_ms": 60_000,
    "admission_lookahead": 8,
    "admission_max_passes": 4,
    "default_sampling": {"temperature": 0.2},
    "prefix_caching": True,
    "exact_reuse": False,
    "eviction_policy": "lru",
    "max_pinned_share": 0.25,
    "max_pinned_pages": 200,
    "min_prefill_tokens": 2,
    "helpers": [],
    "record": None,
}


def options(*argv: str) -> argparse.Namespace:
    """Parse a command line."""
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    return parser.parse_args(argv)


def test_no_flags_are_the_defaults_of_the_settings() -> None:
    """The command line invents none of its own."""
    assert serve.engine_config(options()) == EngineConfig()
    assert serve.server_config(options()) == ServerConfig()


def test_a_line_for_vllm_mostly_works() -> None:
    """The spelling is vLLM's."""
    line = (
        "m.gguf --host 0.0.0.0 --port 9 --api-key one two --served-model-name x y --max-model-len 4k --max-num-seqs 4 "
        "--max-num-batched-tokens 64 --block-size 32 --no-enable-prefix-caching --prefix-caching-hash-algo sha256 "
        "--kv-cache-memory-bytes 1G --num-pages 50 --dtype float32 --seed 7 --enable-force-include-usage "
        "--no-scheduler-reserve-full-isl --watermark 0.05 --enable-prompt-tokens-details --generation-config vllm "
        "--scheduling-policy priority --coalesce-deadline-ms 2k --admission-lookahead 0 --admission-max-passes 3"
    )
    parsed = options(*line.split())
    engine, web = serve.engine_config(parsed), serve.server_config(parsed)
    assert (engine.model.model, engine.model.served_model_name) == ("m.gguf", ("x", "y"))
    assert (engine.model.max_model_len, engine.model.dtype, engine.model.seed) == (4000, "float32", 7)
    assert engine.model.generation_config == "vllm"
    assert (engine.cache.enable_prefix_caching, engine.cache.block_size) == (False, 32)
    assert (engine.cache.kv_cache_memory_bytes, engine.cache.num_pages) == (2**30, 50)
    assert (engine.scheduler.max_num_seqs, engine.scheduler.max_num_batched_tokens) == (4, 64)
    assert (engine.scheduler.scheduler_reserve_full_isl, engine.scheduler.watermark) == (False, 0.05)
    assert (engine.scheduler.scheduling_policy, engine.scheduler.coalesce_deadline_ms) == ("priority", 2000)
    assert (engine.scheduler.admission_lookahead, engine.scheduler.admission_max_passes) == (0, 3)
    assert (web.host, web.port, web.api_keys, web.enable_force_include_usage) == (
        "0.0.0.0",
        9,
        ("one", "two"),
        True,
    )


def test_the_api_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key on the command line can be read by others on the machine."""
    monkeypatch.setenv("ANAPHORA_API_KEY", "secret")
    assert serve.server_config(options()).api_keys == ("secret",)
    assert serve.server_config(options("--api-key", "other")).api_keys == ("other",)


def test_the_start_screen_says_what_can_be_reused() -> None:
    """And which pages there are."""
    screen = serve.start_screen(FACTS)
    assert "a prompt can reuse at most floor((L-1)/16)*16 tokens" in screen
    assert "999 of 32 tokens, 2 blocks of 16 each" in screen
    assert "31,968 tokens in 1.00 GiB" in screen
    assert "temperature 0.2" in screen


def test_the_start_screen_says_when_caching_is_off() -> None:
    """Instead of the law; and then there is nothing to wait for."""
    screen = serve.start_screen({**FACTS, "prefix_caching": False, "default_sampling": {}})
    assert "off: every prompt is computed in full" in screen
    assert "off: nobody waits for blocks" in screen
    assert "floor" not in screen


def test_the_start_screen_says_who_goes_first_and_who_waits() -> None:
    screen = serve.start_screen(FACTS)
    assert "by arrival; behind a request that does not fit 8 are tried, and 4 may pass it" in screen
    assert "on: a request waits up to 60,000 ms for blocks that another one computes" in screen
    changed = {"scheduling_policy": "priority", "admission_lookahead": 0, "coalesce_deadline_ms": 0}
    screen = serve.start_screen({**FACTS, **changed})
    assert "by priority, then by arrival; nobody passes a request that does not fit" in screen
    assert "off: nobody waits for blocks" in screen


@pytest.mark.parametrize(
    "flag, value, words",
    [
        ("--scheduling-policy", "lifo", "choose from"),
        ("--coalesce-deadline-ms", "-1", "below 0"),
        ("--coalesce-deadline-ms", "soon", "not a number"),
        ("--admission-lookahead", "-1", "below 0"),
        ("--admission-max-passes", "1.5", "not a whole number"),
    ],
)
def test_a_bad_value_ends_the_start_with_the_name_of_its_flag(
    flag: str, value: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(f"{flag}={value}")
    error = capsys.readouterr().err
    assert flag in error and words in error


@pytest.mark.parametrize(
    "name", ["coalesce_deadline_ms", "admission_lookahead", "admission_max_passes", "scheduling_policy"]
)
def test_a_bad_setting_of_the_scheduler_is_refused_by_its_flag(name: str) -> None:
    """Also when it does not come from a command line."""
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is"):
        EngineConfig.from_mapping({name: -1})


@pytest.mark.parametrize("needs_key", [False, True])
def test_the_curl_line_can_be_pasted(*, needs_key: bool) -> None:
    """With a place for the key if one is needed."""
    line = serve.curl_line(FACTS, needs_key=needs_key)
    assert line.startswith("curl http://127.0.0.1:8000/v1/chat/completions")
    assert ("Authorization" in line) is needs_key


def test_operators_are_warned_of_what_they_may_not_know() -> None:
    """Open to others without a key; keys without a lasting secret; a hash that can be made to collide."""
    assert "xxhash" in serve.warnings(ServerConfig(), CacheConfig(prefix_caching_hash_algo="xxhash"))[0]
    assert serve.warnings(ServerConfig(), CacheConfig()) == []
    assert "without an API key" in serve.warnings(ServerConfig(host="0.0.0.0"), CacheConfig())[0]
    assert "--tenant-salt-secret-file" in serve.warnings(ServerConfig(api_keys=("k",)), CacheConfig())[0]
    assert serve.warnings(ServerConfig(api_keys=("k",), tenant_salt_secret=bytes(16)), CacheConfig()) == []


def test_helpers_are_off_unless_asked_for() -> None:
    """And one flag turns one of them on."""
    assert helper_config(options()) == HelperConfig()
    assert HelperConfig().flags == ()
    for flag in ("--strip-client-stamp", "--sort-tools", "--stable-history", "--splice-generated-tokens"):
        assert helper_config(options(flag)).flags == (flag,)


def test_the_start_screen_lists_helpers_that_are_on() -> None:
    """And has no line for them otherwise."""
    assert "helpers" not in serve.start_screen(FACTS)
    screen = serve.start_screen({**FACTS, "helpers": ["--sort-tools", "--stable-history"]})
    assert "        helpers  --sort-tools, --stable-history\n" in screen


def test_a_helper_without_what_it_needs_ends_the_start_before_a_model_is_loaded() -> None:
    """The flags contradict each other, whatever the model."""
    with pytest.raises(ConfigError, match=r"--stable-history continues .* --explain-requests is 0"):
        serve.run(options("no-such-model", "--port", "0", "--stable-history", "--explain-requests", "0"))


def test_what_is_recorded_where_and_under_which_key(tmp_path: Path) -> None:
    """Nothing is recorded unless somebody asks."""
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef\n")
    target = tmp_path / "requests.jsonl"
    assert serve.recording_config(options()) is None
    found = serve.recording_config(options("--record", str(target), "--record-key-file", str(key)))
    assert found == RecordingConfig(path=target, key=b"0123456789abcdef")
    assert "0123456789" not in repr(found)
    assert serve.recording_config(options("--record", str(target))) == RecordingConfig(path=target)


def test_a_recording_that_cannot_be_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_bytes(b"0123")
    target = str(tmp_path / "new")
    for argv, message in (
        (["--record", str(short)], "exists already"),
        (["--record-key-file", str(short)], "nothing is recorded"),
        (["--record", target, "--record-key-file", str(short)], "holds 4 bytes, but must hold at least 16"),
        (["--record", target, "--record-key-file", target], "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message):
            serve.recording_config(options(*argv))


def test_the_start_screen_says_where_requests_are_recorded() -> None:
    assert "recording" not in serve.start_screen(FACTS)
    assert "in requests.jsonl" in serve.start_screen(FACTS | {"record": "requests.jsonl"})
