"""The one place where concrete classes are put together.

Decides nothing else: settings go in, an engine or an application comes out. OpenVINO is loaded only here,
when an engine is built.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from anaphora.cache.events import CacheListeners
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.manager import KVManager
from anaphora.cache.pins import pinnable_pages
from anaphora.config import (
    EngineConfig,
    ExplainConfig,
    HelperConfig,
    KVLayout,
    ModelConfig,
    RecordingConfig,
    ServerConfig,
    check_can_record,
    check_hash_strength,
)
from anaphora.engine.async_engine import AsyncEngine
from anaphora.engine.clock import MonotonicClock
from anaphora.engine.core import EngineCore
from anaphora.engine.hash_choice import choose_hash_algorithm
from anaphora.engine.line_file import LineFile
from anaphora.engine.protocols import Clock, Runner
from anaphora.engine.protocols import Tokenizer as AnyTokenizer
from anaphora.errors import ModelError
from anaphora.explain.ghosts import Ghosts
from anaphora.explain.history import History, HistoryLimits
from anaphora.explain.records import HitLaw
from anaphora.explain.watch import AdmissionWatch
from anaphora.metrics.counters import ExplainMemory, Metrics, RequestCounts
from anaphora.metrics.exposition import exposition
from anaphora.models.cache_folder import cache_folder
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.models.pull import PullProgress, ignore_progress
from anaphora.models.resolve import ModelSource, resolve
from anaphora.models.tokenizer import Tokenizer
from anaphora.scheduler.events import SchedulerListener, SchedulerListeners
from anaphora.scheduler.scheduler import Scheduler
from anaphora.server.app import create_app
from anaphora.server.explainer import Explainer
from anaphora.server.prompt_records import BodyRenderer, served_body
from anaphora.server.rebuilt_records import Reading
from anaphora.server.stats_log import StatsLog
from anaphora.sim.recording import BlockNames, FinishedTurn, LineWriter, RequestRecorder
from anaphora.sim.trace import RecordedEngine

if TYPE_CHECKING:
    from anaphora.runner.openvino.loader import LoadedRunner
    from anaphora.runner.openvino.runner import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run: its runner, its tokenizer, and what there is to say of it."""

    runner: Runner
    tokenizer: AnyTokenizer
    renderer: ChatRenderer | None
    name: str
    sampling: Mapping[str, Any]
    runner_name: str
    precision: str
    max_model_len: int
    fingerprint: bytes
    page_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine and everything a server or a script needs around it."""

    config: EngineConfig
    model: LoadedModel
    served_models: tuple[str, ...]
    core: EngineCore
    manager: KVManager
    scheduler: Scheduler
    metrics: Metrics
    explainer: Explainer | None
    clock: Clock
    recording: LineFile[FinishedTurn] | None = None

    @property
    def layout(self) -> KVLayout:
        """How the K/V memory is divided."""
        return self.manager.layout


def load_model(
    config: EngineConfig, *, progress: PullProgress = ignore_progress, sampler: "Sampler | None" = None
) -> LoadedModel:
    """Find, convert and compile a model; raises ModelError, ConfigError or NotEnoughMemoryError.

    `sampler` stands in for the usual one, for those who want to see the logits.
    """
    from anaphora.runner.openvino.loader import load_runner
    from anaphora.sampling.host import sample

    source = resolve(config.model.model, progress=progress)
    loaded = load_runner(
        source.path,
        cache_folder=cache_folder(),
        model_config=config.model,
        cache_config=config.cache,
        sampler=sampler or sample,
    )
    return describe(source, loaded, config.model)


def describe(source: ModelSource, loaded: "LoadedRunner", config: ModelConfig) -> LoadedModel:
    """Put the tokenizer and the chat template around a loaded runner; raises ModelError when they do not fit it."""
    facts = loaded.facts
    tokenizer = Tokenizer(loaded.tokenizer, vocab_size=facts.vocab_size, eos_token_ids=facts.eos_token_ids)
    if tokenizer.vocab_size > facts.vocab_size:
        raise ModelError(
            f"the tokenizer of {source.name} knows {tokenizer.vocab_size:,} tokens, "
            f"but the model only {facts.vocab_size:,}; its files do not belong together"
        )
    return LoadedModel(
        runner=loaded.runner,
        tokenizer=tokenizer,
        renderer=make_renderer(config, tokenizer),
        name=source.name,
        sampling=source.sampling if config.generation_config == "auto" else {},
        runner_name=f"openvino, {facts.num_threads} threads",
        precision=f"{facts.inference_precision}, K/V {facts.kv_precision}",
        max_model_len=facts.max_model_len,
        fingerprint=facts.fingerprint,
        page_bytes=facts.bytes_per_page,
    )


def make_renderer(config: ModelConfig, tokenizer: Tokenizer) -> ChatRenderer | None:
    """Return the renderer of `--chat-template`, else of the model's own template, or None if there is neither."""
    template = make_template(config.chat_template, tokenizer)
    return None if template is None else ChatRenderer(template, tokenizer)


def make_template(chat_template: Path | None, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the template of a file, else the model's own, or None if there is neither."""
    if chat_template is not None:
        return ChatTemplate.from_file(chat_template, special_tokens=tokenizer.template_tokens)
    if tokenizer.chat_template is not None:
        return ChatTemplate(tokenizer.chat_template, special_tokens=tokenizer.template_tokens)
    return None


def body_renderer(
    model: str | None, chat_template: Path | None, *, progress: PullProgress = ignore_progress
) -> BodyRenderer:
    """Return what makes prompts of request bodies, from a model's tokenizer alone: no weights are loaded.

    Raises ModelError or ConfigError.
    """
    from anaphora.runner.openvino.loader import load_tokenizer

    folder = Path(model).expanduser() if model else None
    has_tokenizer = folder is not None and (folder / "openvino_tokenizer.xml").is_file()
    path = folder if folder and has_tokenizer else resolve(model, progress=progress).path
    tokenizer = Tokenizer(load_tokenizer(path, cache_folder()))
    return BodyRenderer(make_template(chat_template, tokenizer), tokenizer)


def build_engine(
    config: EngineConfig,
    *,
    model: LoadedModel | None = None,
    explain: ExplainConfig | None = None,
    progress: PullProgress = ignore_progress,
    recording: RecordingConfig | None = None,
) -> Engine:
    """Return an engine; the model of the settings is loaded unless one is handed in.

    It has an explainer if `explain` asks for one. Raises ConfigError when it is to be recorded and cannot be.
    """
    check_can_record(recording, config.cache)
    hash_algorithm = choose_hash_algorithm(config.cache.prefix_caching_hash_algo, os.environ)
    model = model or load_model(config, progress=progress)
    served = config.model.served_model_name or (model.name,)
    clock, layout = MonotonicClock(), model.runner.layout
    # The listeners need what they listen to: the gauges are read through these two, set below.
    metrics = Metrics(
        model_name=served[0],
        max_model_len=model.max_model_len,
        cache=config.cache,
        layout=layout,
        read_pages=lambda: manager.pool.usage(),  # noqa: PLW0108 - there is no manager yet
        read_pinned_pages=lambda: manager.pool.num_pinned_pages,
        read_requests=lambda: RequestCounts(
            scheduler.num_running, scheduler.num_waiting - scheduler.num_deferred, scheduler.num_deferred
        ),
        read_explain_memory=lambda: explain_memory(ghosts, history),
    )
    ghosts, history, explainer = Ghosts(0), None, None
    if explain is not None and explain.explain_requests:
        ghosts = Ghosts(explain.explain_ghosts)
        history = History(
            HistoryLimits(explain.explain_requests, explain.explain_memory, float(explain.explain_ttl_s))
        )
        explainer = make_explainer(config, model, history, metrics)
    watches = (
        []
        if explainer is None
        else [
            AdmissionWatch(
                ghosts,
                explainer.note,
                block_size=layout.block_size,
                exact_reuse=config.cache.exact_reuse,
                is_caching=config.cache.enable_prefix_caching,
                find_block=lambda digest: manager.pool.index.get(digest),  # noqa: PLW0108 - there is no manager yet
                find_owner=lambda digest: manager.pending.owner(digest),  # noqa: PLW0108 - as above
            )
        ]
    )
    manager = KVManager(
        layout,
        CacheListeners([metrics, *watches]),
        enable_prefix_caching=config.cache.enable_prefix_caching,
        exact_reuse=config.cache.exact_reuse,
        policy=make_policy(config.cache.eviction_policy, layout),
        max_pinned_pages=pinnable_pages(layout, config.cache.max_pinned_share, model.max_model_len),
        hash_algorithm=hash_algorithm,
        partial_block_reuse=config.cache.partial_block_reuse,
    )
    listeners: list[SchedulerListener] = [metrics, *watches]
    lines = None
    if recording is not None:
        lines = record_lines(recording, config, manager, model.max_model_len, clock)
        listeners.append(RequestRecorder(lambda request_id: manager.table(request_id).chain, lines.put))
    scheduler = Scheduler(
        config.scheduler,
        manager,
        model_fingerprint=model.fingerprint,
        max_model_len=model.max_model_len,
        exact_reuse=config.cache.exact_reuse,
        listener=SchedulerListeners(listeners),
    )
    core = EngineCore(scheduler, model.runner, model.tokenizer, clock, seed=config.model.seed)
    return Engine(
        config=config,
        model=model,
        served_models=served,
        core=core,
        manager=manager,
        scheduler=scheduler,
        metrics=metrics,
        explainer=explainer,
        clock=clock,
        recording=lines,
    )


def make_explainer(config: EngineConfig, model: LoadedModel, history: History, metrics: Metrics) -> Explainer:
    """Return what says why the prompts of a model were not reused."""
    layout = model.runner.layout
    bodies = BodyRenderer(None if model.renderer is None else model.renderer.template, model.tokenizer)
    return Explainer(
        history,
        Reading(body=served_body, prompt=bodies.rebuilt, render=bodies),
        HitLaw(layout.block_size, layout.min_prefill_tokens),
        count_missed=metrics.count_missed,
        count_failure=metrics.count_explain_failure,
        is_lru=config.cache.eviction_policy == "lru",
        coalesce_deadline_ms=config.scheduler.coalesce_deadline_ms,
    )


def explain_memory(ghosts: Ghosts, history: History | None) -> ExplainMemory:
    """Return what is remembered for explanations, and nothing where there are none."""
    if history is None:
        return ExplainMemory()
    return ExplainMemory(
        {"requests": len(history), "bytes": history.size_bytes, "ghosts": len(ghosts)},
        {"requests": history.num_forgotten, "ghosts": ghosts.num_forgotten},
    )


def record_lines(
    recording: RecordingConfig, config: EngineConfig, manager: KVManager, max_model_len: int, clock: Clock
) -> LineFile[FinishedTurn]:
    """Return the file that requests are recorded in; raises ConfigError when it cannot be made."""
    engine = RecordedEngine(
        layout=manager.layout,
        scheduler=config.scheduler,
        max_model_len=max_model_len,
        eviction_policy=config.cache.eviction_policy,
        exact_reuse=config.cache.exact_reuse,
        partial_block_reuse=config.cache.partial_block_reuse,
        max_pinned_pages=manager.pool.max_pinned_pages,
    )
    return LineFile(recording.path, LineWriter(engine, BlockNames(recording.key), clock.now()).line)


def async_engine(engine: Engine) -> AsyncEngine:
    """Put an engine into its own thread; the thread is not started."""
    return AsyncEngine(
        engine.core,
        engine.model.tokenizer,
        engine.clock,
        max_model_len=engine.scheduler.max_model_len,
        max_pinnable_tokens=engine.manager.max_pinnable_tokens,
        metrics_text=lambda: exposition(engine.metrics.snapshot()),
    )


def build_app(
    engine: Engine,
    web: ServerConfig,
    *,
    strict_fields: bool = False,
    helpers: HelperConfig | None = None,
    log_stats_s: float | None = None,
) -> Starlette:
    """Return the HTTP application of an engine, which runs for as long as the application does.

    Every `log_stats_s` seconds it says in the log what it did, unless that is nothing.
    Raises ConfigError when its callers would not be kept apart, or when the helpers need earlier requests and the
    engine remembers none.
    """
    check_hash_strength(engine.config.cache, web)
    client = async_engine(engine)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        explainer = engine.explainer
        client.start()
        if explainer is not None:
            explainer.start()
        looking = None
        if log_stats_s is not None:
            stats_log = StatsLog(engine.metrics.snapshot, engine.clock.now)
            looking = asyncio.ensure_future(stats_log.run(log_stats_s))
        try:
            yield
        finally:
            if looking is not None:
                looking.cancel()
            await client.stop()
            if explainer is not None:
                await asyncio.to_thread(explainer.stop)
            if engine.recording:
                engine.recording.close()

    return create_app(
        client,
        web,
        served_models=engine.served_models,
        renderer=engine.model.renderer,
        default_sampling=engine.model.sampling,
        has_priorities=engine.config.scheduler.scheduling_policy == "priority",
        count_unknown_field=engine.metrics.count_unknown_field,
        count_unplaced_mark=engine.metrics.count_unplaced_mark,
        strict_fields=strict_fields,
        explainer=engine.explainer,
        helpers=helpers,
        lifespan=lifespan,
    )
