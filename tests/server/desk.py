"""Requests through the real scheduler, cache, watch and explainer, stepped by hand: all but HTTP and the weights."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from anaphora.cache.events import CacheListeners
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.page import Block
from anaphora.cache.pool import PageUsage
from anaphora.config import CacheConfig, KVLayout
from anaphora.explain.bodies import bypass_of
from anaphora.explain.ghosts import Ghosts
from anaphora.explain.history import History, HistoryLimits, Remembered
from anaphora.explain.records import Explanation, HitLaw
from anaphora.explain.watch import AdmissionWatch
from anaphora.ids import RequestId, TokenId
from anaphora.metrics.counters import Metrics, MetricsSnapshot, RequestCounts
from anaphora.models.chat_renderer import ChatRenderer
from anaphora.models.chat_template import ChatTemplate
from anaphora.request import Request, SamplingParams
from anaphora.scheduler.events import SchedulerListeners
from anaphora.server.explainer import Draft, Explainer
from anaphora.server.fields import ReportedFields
from anaphora.server.messages import check_messages
from anaphora.server.prompt_records import BodyRenderer, TextTokenizer, served_body
from anaphora.server.prompts import Prompt
from anaphora.server.rebuilt_records import Reading
from anaphora.server.tools import check_tools
from tests.explain.word_tokenizer import WordTokenizer
from tests.scheduler.story import SchedulerStory

LIMITS = HistoryLimits(max_requests=1000, max_bytes=1 << 24, max_age_s=3600.0)
NOTHING = SamplingParams(max_tokens=0)


class Desk:
    """One server's worth of parts; `wall` is its time of day."""

    def __init__(
        self,
        layout: KVLayout,
        template: ChatTemplate | None = None,
        tokenizer: TextTokenizer | None = None,
        *,
        limits: HistoryLimits = LIMITS,
        num_ghosts: int = 1000,
        caching: bool = True,
        exact_reuse: bool = False,
        wait_s: float = 30.0,
        let_step_begin: Callable[[], None] = lambda: None,
        **options: Any,
    ) -> None:
        self.tokenizer: TextTokenizer = tokenizer or WordTokenizer()
        self.template = template
        self.ghosts, self.history = Ghosts(num_ghosts), History(limits)
        bodies = BodyRenderer(template, self.tokenizer)
        self.wall = 1_000.0
        self.metrics = Metrics(
            model_name="m",
            max_model_len=1 << 20,
            cache=CacheConfig(
                enable_prefix_caching=caching, exact_reuse=exact_reuse, block_size=layout.block_size
            ),
            layout=layout,
            read_pages=lambda: PageUsage(0, 0, 0),
            read_pinned_pages=lambda: 0,
            read_requests=lambda: RequestCounts(0, 0),
        )
        self.explainer = Explainer(
            self.history,
            Reading(body=served_body, prompt=bodies.rebuilt, render=bodies),
            HitLaw(layout.block_size, layout.min_prefill_tokens),
            count_missed=self.metrics.count_missed,
            count_failure=self.metrics.count_explain_failure,
            is_lru=options.get("eviction", "lru") == "lru",
            coalesce_deadline_ms=options.get("coalesce_ms", 60_000),
            wall_time=lambda: self.wall,
            wait_s=wait_s,
            let_step_begin=let_step_begin,
        )
        self.watch = AdmissionWatch(
            self.ghosts,
            self.explainer.note,
            block_size=layout.block_size,
            exact_reuse=exact_reuse,
            is_caching=caching,
            find_block=self._find_block,
            find_owner=self._find_owner,
        )
        self.story = SchedulerStory(
            layout,
            caching=caching,
            exact_reuse=exact_reuse,
            listener=SchedulerListeners([self.metrics, self.watch]),
            cache_listener=CacheListeners([self.metrics, self.watch]),
            **options,
        )

    def _find_block(self, digest: BlockDigest) -> Block | None:
        return self.story.manager.pool.index.get(digest)

    def _find_owner(self, digest: BlockDigest) -> RequestId | None:
        return self.story.manager.pending.owner(digest)

    def __enter__(self) -> Self:
        """Start the explainer."""
        self.explainer.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Take in all notes, and end."""
        self.explainer.stop()

    # Requests.

    def arrive(
        self, name: str, tokens: Sequence[int], params: SamplingParams = NOTHING, **options: Any
    ) -> Request:
        """Queue token ids without a body."""
        return self.story.add(name, list(tokens), params, **options)

    def read(self, body: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a body, made as the server makes it."""
        if (given := body.get("prompt")) is not None:
            if not isinstance(given, str):
                return Prompt("prompt", [TokenId(token) for token in given])
            wants = body.get("add_special_tokens", True)
            return Prompt("prompt", self.tokenizer.encode(given, add_special_tokens=wants), given)
        assert self.template is not None, "a chat needs a template"
        token_ids, spans = ChatRenderer(self.template, self.tokenizer).render(
            check_messages(body["messages"], ReportedFields()),
            tools=check_tools(body.get("tools"), ReportedFields()),
            add_generation_prompt=body.get("add_generation_prompt", True),
        )
        return Prompt("messages", token_ids, spans=spans)

    def ask(
        self, name: str, body: Mapping[str, Any], params: SamplingParams = NOTHING, **options: Any
    ) -> Explanation:
        """Run one request to its end and return the verdict that its answer would carry."""
        prompt = self.read(body)
        draft = Draft(source=prompt.own_source(body), spans=prompt.part_spans)
        self.explainer.expect(name, draft)
        is_scored = bypass_of(body) is not None
        options = {"skip_reading_cache": is_scored, "cache_salt": body.get("cache_salt")} | options
        self.story.add(name, list(prompt.token_ids), params, **options)
        self.story.run()
        found = asyncio.run(self.explainer.verdict(name))
        self.explainer.dismiss(name)
        assert found is not None, f"{name} got no verdict"
        return found

    # Answers.

    def explain(self, name: str, tenant_salt: bytes | None = None, against: str | None = None) -> Explanation:
        """Return the whole explanation of a request."""
        return asyncio.run(self.explainer.explanation(name, tenant_salt, against))

    def remembered(self, tenant_salt: bytes | None = None, limit: int = 1000) -> list[Remembered]:
        """Return a tenant's requests, the latest first."""
        return asyncio.run(self.explainer.requests(tenant_salt, limit))

    def counted(self) -> MetricsSnapshot:
        """Return the metrics once all notes are taken in."""
        asyncio.run(self.explainer.settle())
        return self.metrics.snapshot()
