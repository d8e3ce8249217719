"""`anaphora serve [MODEL]`: the flags, the screen at the start, and the server's life."""

import argparse
import gc
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anaphora.assemble import Engine, build_app, build_engine
from anaphora.cli.helper_flags import add_helper_flags, helper_config
from anaphora.cli.numbers import count
from anaphora.cli.progress import pull_progress
from anaphora.cli.remote import API_KEY_VARIABLE
from anaphora.config import (
    DTYPES,
    EVICTION_POLICIES,
    GENERATION_CONFIGS,
    HASH_ALGORITHMS,
    SCHEDULING_POLICIES,
    CacheConfig,
    EngineConfig,
    ExplainConfig,
    HelperConfig,
    ModelConfig,
    RecordingConfig,
    SchedulerConfig,
    ServerConfig,
    check_can_record,
    check_hash_strength,
    check_helpers,
)
from anaphora.errors import ConfigError
from anaphora.server import stats_log
from anaphora.server.serve import bind, serve
from anaphora.server.tenants import exposure_warning

NAME = "serve"
SUMMARY = "serve a model over the OpenAI-compatible API"
EXAMPLE = "anaphora serve --port 8000 --max-num-seqs 16"

_MODEL, _CACHE, _SCHEDULER, _SERVER = ModelConfig(), CacheConfig(), SchedulerConfig(), ServerConfig()
_EXPLAIN = ExplainConfig()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; where vLLM has a flag, this is its spelling."""
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a registry name, a .gguf file or an OpenVINO folder; default: the demo model",
    )
    _add_server_flags(parser.add_argument_group("server"))
    _add_model_flags(parser.add_argument_group("model"))
    _add_cache_flags(parser.add_argument_group("prefix cache"))
    _add_scheduler_flags(parser.add_argument_group("scheduler"))
    _add_explain_flags(parser.add_argument_group("explanations"))
    _add_log_flags(parser.add_argument_group("log and recording"))
    add_helper_flags(parser.add_argument_group("helpers", "changes to chats that let more of them be reused"))


def _add_server_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default=_SERVER.host, help="address to listen on (default: %(default)s)")
    group.add_argument(
        "--port", type=int, default=_SERVER.port, help="port; 0 takes a free one (default: %(default)s)"
    )
    group.add_argument(
        "--api-key",
        action="extend",
        nargs="+",
        metavar="KEY",
        help=f"keys that clients must send, one of them each; default: ${API_KEY_VARIABLE}, else none",
    )
    group.add_argument(
        "--admin-api-key", metavar="KEY", help="key for the endpoints that clear the cache or pin prompts"
    )
    group.add_argument(
        "--tenant-salt-secret-file",
        type=Path,
        metavar="FILE",
        help="secret that parts the cache entries of API keys; default: a random one for this start",
    )
    group.add_argument(
        "--max-body-bytes", type=count, default=_SERVER.max_body_bytes, help="largest request body"
    )
    group.add_argument(
        "--strict-fields", action="store_true", help="refuse request fields that nobody defines"
    )
    group.add_argument(
        "--enable-force-include-usage", action="store_true", help="send the usage chunk on every stream"
    )
    group.add_argument(
        "--enable-prompt-tokens-details",
        action="store_true",
        help="accepted for vLLM's sake: cached tokens are always sent",
    )
    group.add_argument("--json", action="store_true", help="print the start screen as one JSON object")


def _add_log_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--disable-log-stats",
        action="store_true",
        help="do not log throughput and hit rate every ten seconds of work",
    )
    group.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write one line for each request, without text or tokens, for `anaphora simulate FILE`",
    )
    group.add_argument(
        "--record-key-file",
        type=Path,
        metavar="FILE",
        help="secret with which --record names blocks (HMAC-SHA256), so that nobody can test guesses at a prompt",
    )


def _add_model_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="names that requests may use; default: the model's own",
    )
    group.add_argument(
        "--dtype", choices=DTYPES, default=_MODEL.dtype, help="precision (default: %(default)s)"
    )
    group.add_argument(
        "--max-model-len", type=count, help="most tokens of prompt and outputs; default: the model's"
    )
    group.add_argument(
        "--chat-template", type=Path, metavar="FILE", help="Jinja template instead of the model's own"
    )
    group.add_argument(
        "--generation-config",
        choices=GENERATION_CONFIGS,
        default=_MODEL.generation_config,
        help="sampling where a request says nothing: auto is the model's own, vllm the API's (default: %(default)s)",
    )
    group.add_argument(
        "--seed", type=int, default=_MODEL.seed, help="seeds requests that bring none (default: %(default)s)"
    )


def _add_cache_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="reuse cached prefixes",
    )
    group.add_argument(
        "--prefix-caching-hash-algo",
        choices=HASH_ALGORITHMS,
        default=_CACHE.prefix_caching_hash_algo,
        help="digest of blocks (default: %(default)s)",
    )
    group.add_argument(
        "--allow-weak-hash",
        action="store_true",
        help="let an xxhash algorithm serve several API keys, though it does not resist collisions",
    )
    group.add_argument(
        "--block-size",
        type=count,
        default=_CACHE.block_size,
        help="tokens per hashed block (default: %(default)s)",
    )
    group.add_argument(
        "--partial-block-reuse",
        type=count,
        default=_CACHE.partial_block_reuse,
        metavar="N",
        help="also reuse N or more leading tokens of a block of which the rest differs; 0 is never",
    )
    group.add_argument(
        "--kv-cache-memory-bytes", type=count, metavar="BYTES", help="memory for K/V, such as 4G"
    )
    group.add_argument(
        "--num-pages", type=count, help="pages of K/V, the null page included; wins over the memory"
    )
    group.add_argument(
        "--exact-reuse",
        action="store_true",
        help="reuse only what a prefill wrote: texts never depend on the cache",
    )
    group.add_argument(
        "--eviction-policy",
        choices=EVICTION_POLICIES,
        default=_CACHE.eviction_policy,
        help="which idle cached pages go first (default: %(default)s)",
    )
    group.add_argument(
        "--max-pinned-share",
        type=float,
        default=_CACHE.max_pinned_share,
        metavar="SHARE",
        help="largest share of the pages that requests may pin (default: %(default)s)",
    )


def _add_scheduler_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--max-num-seqs",
        type=count,
        default=_SCHEDULER.max_num_seqs,
        help="most requests at once (default: %(default)s)",
    )
    group.add_argument(
        "--max-num-batched-tokens",
        type=count,
        default=_SCHEDULER.max_num_batched_tokens,
        help="most tokens in a step (default: %(default)s)",
    )
    group.add_argument(
        "--long-prefill-token-threshold",
        type=count,
        default=_SCHEDULER.long_prefill_token_threshold,
        help="most tokens of one prefill in a step; 0 is no limit (default: %(default)s)",
    )
    group.add_argument(
        "--scheduler-reserve-full-isl",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="admit a prompt only when all of it fits",
    )
    group.add_argument(
        "--watermark", type=float, default=_SCHEDULER.watermark, help="share of pages kept free at admission"
    )
    group.add_argument(
        "--scheduling-policy",
        choices=SCHEDULING_POLICIES,
        default=_SCHEDULER.scheduling_policy,
        help="who goes first: fcfs by arrival, priority by the requests' priority, lower first (default: %(default)s)",
    )
    group.add_argument(
        "--coalesce-deadline-ms",
        type=count,
        default=_SCHEDULER.coalesce_deadline_ms,
        metavar="MS",
        help="longest wait for blocks that another request computes; 0 is never (default: %(default)s)",
    )
    group.add_argument(
        "--admission-lookahead",
        type=count,
        default=_SCHEDULER.admission_lookahead,
        metavar="N",
        help="how many are tried behind a request that does not fit; 0 is none (default: %(default)s)",
    )
    group.add_argument(
        "--admission-max-passes",
        type=count,
        default=_SCHEDULER.admission_max_passes,
        metavar="N",
        help="how many may pass a request that does not fit before it is next (default: %(default)s)",
    )


def _add_explain_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--explain-requests",
        type=count,
        default=_EXPLAIN.explain_requests,
        metavar="N",
        help="how many requests are remembered to say why they missed; 0 is none (default: %(default)s)",
    )
    group.add_argument(
        "--explain-memory",
        type=count,
        default=_EXPLAIN.explain_memory,
        metavar="BYTES",
        help="memory for their token ids; 0 keeps digests and counts only (default: %(default)s)",
    )
    group.add_argument(
        "--explain-ttl-s",
        type=count,
        default=_EXPLAIN.explain_ttl_s,
        metavar="S",
        help="for how long a request is remembered (default: %(default)s)",
    )
    group.add_argument(
        "--explain-ghosts",
        type=count,
        default=_EXPLAIN.explain_ghosts,
        metavar="N",
        help="how many evicted blocks are remembered (default: %(default)s)",
    )


def explain_config(options: argparse.Namespace) -> ExplainConfig:
    """Return from the flags how much is remembered."""
    return ExplainConfig(
        explain_requests=options.explain_requests,
        explain_memory=options.explain_memory,
        explain_ttl_s=options.explain_ttl_s,
        explain_ghosts=options.explain_ghosts,
    )


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Return the engine's settings from the flags."""
    return EngineConfig(
        model=ModelConfig(
            model=options.model,
            served_model_name=tuple(options.served_model_name or ()),
            dtype=options.dtype,
            max_model_len=options.max_model_len,
            chat_template=options.chat_template,
            generation_config=options.generation_config,
            seed=options.seed,
        ),
        cache=CacheConfig(
            enable_prefix_caching=options.enable_prefix_caching,
            block_size=options.block_size,
            prefix_caching_hash_algo=options.prefix_caching_hash_algo,
            allow_weak_hash=options.allow_weak_hash,
            exact_reuse=options.exact_reuse,
            partial_block_reuse=options.partial_block_reuse,
            eviction_policy=options.eviction_policy,
            max_pinned_share=options.max_pinned_share,
            num_pages=options.num_pages,
            kv_cache_memory_bytes=options.kv_cache_memory_bytes,
        ),
        scheduler=SchedulerConfig(
            max_num_seqs=options.max_num_seqs,
            max_num_batched_tokens=options.max_num_batched_tokens,
            long_prefill_token_threshold=options.long_prefill_token_threshold,
            scheduler_reserve_full_isl=options.scheduler_reserve_full_isl,
            watermark=options.watermark,
            scheduling_policy=options.scheduling_policy,
            coalesce_deadline_ms=options.coalesce_deadline_ms,
            admission_lookahead=options.admission_lookahead,
            admission_max_passes=options.admission_max_passes,
        ),
    )


def server_config(options: argparse.Namespace) -> ServerConfig:
    """Return the server's settings from the flags and the environment."""
    keys = options.api_key or [key for key in [os.environ.get(API_KEY_VARIABLE)] if key]
    return ServerConfig(
        host=options.host,
        port=options.port,
        api_keys=tuple(keys),
        admin_api_key=options.admin_api_key,
        tenant_salt_secret=_read_secret("--tenant-salt-secret-file", options.tenant_salt_secret_file),
        max_body_bytes=options.max_body_bytes,
        enable_force_include_usage=options.enable_force_include_usage,
    )


def recording_config(options: argparse.Namespace) -> RecordingConfig | None:
    """Return what is to be recorded where, or None; raises ConfigError for a file that is there already."""
    if options.record is None:
        if options.record_key_file is not None:
            raise ConfigError("--record-key-file is given, but nothing is recorded; give --record FILE too")
        return None
    if options.record.exists():
        raise ConfigError(f"--record {options.record} exists already; choose another file, or move it away")
    key = _read_secret("--record-key-file", options.record_key_file)
    return RecordingConfig(path=options.record, key=key)


def _read_secret(flag: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{flag} {path} cannot be read: {error.strerror}") from error
    if len(secret) < 16:
        raise ConfigError(f"{flag} {path} holds {len(secret)} bytes, but must hold at least 16")
    return secret


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    # asyncio warns of every chunk that is written before a client's going away is noticed.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    logging.getLogger(stats_log.__name__).setLevel(logging.INFO)
    config, web = engine_config(options), server_config(options)
    explain, helpers = explain_config(options), helper_config(options)
    # Before a model is fetched for nothing.
    check_hash_strength(config.cache, web)
    check_helpers(helpers, num_requests=explain.explain_requests, num_bytes=explain.explain_memory)
    recording = recording_config(options)
    check_can_record(recording, config.cache)
    sock = bind(web.host, web.port)
    try:
        with pull_progress(config.model.model or "the demo model") as progress:
            engine = build_engine(config, explain=explain, progress=progress, recording=recording)
        app = build_app(
            engine,
            web,
            strict_fields=options.strict_fields,
            helpers=helpers,
            log_stats_s=None if options.disable_log_stats else stats_log.INTERVAL_S,
        )
        # What was built lives as long as the process: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        facts = start_facts(engine, helpers, *sock.getsockname()[:2])
        serve(app, sock, on_ready=lambda: _announce(facts, config.cache, web, as_json=options.json))
    finally:
        sock.close()
    return 0


def start_facts(engine: Engine, helpers: HelperConfig, host: str, port: int) -> dict[str, Any]:
    """Return what the start screen says."""
    layout = engine.layout
    return {
        "url": f"http://{f'[{host}]' if ':' in host else host}:{port}",
        "model": list(engine.served_models),
        "runner": engine.model.runner_name,
        "precision": engine.model.precision,
        "max_model_len": engine.scheduler.max_model_len,
        "page_size": layout.page_size,
        "block_size": layout.block_size,
        "blocks_per_page": layout.blocks_per_page,
        "num_pages": layout.num_usable_pages,
        "kv_tokens": layout.num_usable_pages * layout.page_size,
        "kv_bytes": layout.num_pages * engine.model.page_bytes,
        "default_sampling": dict(engine.model.sampling),
        "max_num_seqs": engine.config.scheduler.max_num_seqs,
        "max_num_batched_tokens": engine.config.scheduler.max_num_batched_tokens,
        "scheduling_policy": engine.config.scheduler.scheduling_policy,
        "coalesce_deadline_ms": engine.config.scheduler.coalesce_deadline_ms,
        "admission_lookahead": engine.config.scheduler.admission_lookahead,
        "admission_max_passes": engine.config.scheduler.admission_max_passes,
        "prefix_caching": engine.config.cache.enable_prefix_caching,
        "prefix_caching_hash_algo": engine.config.cache.prefix_caching_hash_algo,
        "exact_reuse": engine.config.cache.exact_reuse,
        "eviction_policy": engine.config.cache.eviction_policy,
        "max_pinned_share": engine.config.cache.max_pinned_share,
        "max_pinned_pages": engine.manager.pool.max_pinned_pages,
        "min_prefill_tokens": layout.min_prefill_tokens,
        "helpers": list(helpers.flags),
        "record": str(engine.recording.path) if engine.recording else None,
    }


def start_screen(facts: dict[str, Any]) -> str:
    """Return the facts as one screen for people."""
    size, least = facts["block_size"], facts["min_prefill_tokens"]
    one_token = " (one block less when a single token would remain)" if least > 1 else ""
    caching = (
        f"on: a prompt can reuse at most floor((L-1)/{size})*{size} tokens{one_token}"
        if facts["prefix_caching"]
        else "off: every prompt is computed in full"
    )
    wanted, granted = int(facts["max_pinned_share"] * facts["num_pages"]), facts["max_pinned_pages"]
    pins = f"at most {granted:,} pages" + (
        f" instead of {wanted:,}: one request of full length needs the rest" if granted < wanted else ""
    )
    rows = [
        ("model", ", ".join(facts["model"])),
        ("runner", f"{facts['runner']}, {facts['precision']}"),
        ("context", f"{facts['max_model_len']:,} tokens"),
        (
            "pages",
            f"{facts['num_pages']:,} of {facts['page_size']} tokens, {facts['blocks_per_page']} blocks of {size} each",
        ),
        ("K/V", f"{facts['kv_tokens']:,} tokens in {facts['kv_bytes'] / 2**30:.2f} GiB"),
        ("steps", f"{facts['max_num_batched_tokens']:,} tokens, {facts['max_num_seqs']} requests at once"),
        ("order", _order_line(facts)),
        ("prefix caching", caching),
        ("coalescing", _coalescing_line(facts)),
        (
            "exact reuse",
            "on: only what a prefill wrote" if facts["exact_reuse"] else "off: replies are reused as written",
        ),
        ("sampling", _sampling_line(facts["default_sampling"])),
        ("eviction", facts["eviction_policy"]),
        ("pinned", pins),
        *([("helpers", ", ".join(facts["helpers"]))] if facts["helpers"] else []),
        *(
            [("recording", f"every request, without its text, in {facts['record']}")]
            if facts["record"]
            else []
        ),
        ("listening", facts["url"]),
    ]
    return "\n".join(f"{name:>15}  {value}" for name, value in rows)


def _order_line(facts: dict[str, Any]) -> str:
    first = "by priority, then by arrival" if facts["scheduling_policy"] == "priority" else "by arrival"
    lookahead, passes = facts["admission_lookahead"], facts["admission_max_passes"]
    if not lookahead or not passes:
        return f"{first}; nobody passes a request that does not fit"
    return f"{first}; behind a request that does not fit {lookahead} are tried, and {passes} may pass it"


def _coalescing_line(facts: dict[str, Any]) -> str:
    deadline_ms = facts["coalesce_deadline_ms"]
    if not deadline_ms or not facts["prefix_caching"]:
        return "off: nobody waits for blocks that another request computes"
    return f"on: a request waits up to {deadline_ms:,} ms for blocks that another one computes"


def _sampling_line(values: dict[str, float]) -> str:
    recommended = ", ".join(f"{name} {value:g}" for name, value in values.items())
    return f"{recommended} where a request says nothing" if recommended else "the API's defaults"


def curl_line(facts: dict[str, Any], *, needs_key: bool) -> str:
    """Return a command that asks the server a first question."""
    body = {
        "model": facts["model"][0],
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
    }
    key = " -H 'Authorization: Bearer YOUR_KEY'" if needs_key else ""
    return f"curl {facts['url']}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{json.dumps(body)}'"


def _announce(facts: dict[str, Any], cache: CacheConfig, web: ServerConfig, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts), flush=True)
    else:
        print(
            start_screen(facts),
            "",
            "try it:",
            curl_line(facts, needs_key=bool(web.api_keys)),
            sep="\n",
            flush=True,
        )
    for warning in warnings(web, cache):
        print(f"warning: {warning}", file=sys.stderr, flush=True)


def warnings(web: ServerConfig, cache: CacheConfig) -> Sequence[str]:
    """Return what an operator should know about who can reach the cache."""
    found = [warning for warning in [exposure_warning(web), hash_warning(cache)] if warning]
    if web.api_keys and web.tenant_salt_secret is None:
        found.append(
            "no --tenant-salt-secret-file: API keys are parted by a random secret that changes at each start"
        )
    return found


def hash_warning(cache: CacheConfig) -> str | None:
    """Return what an operator should know when the digests of blocks do not resist collisions, else None."""
    if not cache.has_weak_hash:
        return None
    return (
        f"--prefix-caching-hash-algo {cache.prefix_caching_hash_algo} does not resist collisions: a caller could craft "
        "prompts that keep another's out of the cache (what is found is still compared token by token); "
        "without PYTHONHASHSEED its digests change at each start"
    )
