"""A run of the real scheduler and cache on a FakeRunner, recorded on the way, and read back as a trace."""

from collections.abc import Sequence

from anaphora.cache.chain import BlockChain
from anaphora.cache.events import CacheListener
from anaphora.cache.eviction.policies import make_policy
from anaphora.cache.hashing import BlockDigest
from anaphora.cache.manager import KVManager
from anaphora.cache.page import Page
from anaphora.config import EvictionPolicyName, KVLayout, SchedulerConfig
from anaphora.ids import RequestId
from anaphora.request import Request, SamplingParams
from anaphora.scheduler.events import SchedulerListener, SchedulerListeners
from anaphora.scheduler.scheduler import Scheduler
from anaphora.sim.recording import BlockNames, LineWriter, RequestRecorder
from anaphora.sim.trace import RecordedEngine, Trace
from anaphora.sim.trace_lines import RecordingReader, entries
from tests.fake_runner import FakeRunner


class EvictionLog(CacheListener):
    """Notes which page lost how many blocks, and which pages published how many, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def blocks_published(self, chain: BlockChain, block_indices: Sequence[int]) -> None:
        self.events.append(("published", len(block_indices)))

    def page_evicted(self, page: Page, digests: Sequence[BlockDigest]) -> None:
        self.events.append((f"page {page.page_id}", len(digests)))


class Reuse(SchedulerListener):
    """Notes what each request reused, without the recorder's help."""

    def __init__(self) -> None:
        self.cached_tokens: dict[str, int] = {}

    def request_admitted(self, request: Request, now: float) -> None:
        self.cached_tokens[request.request_id] = request.num_cached_tokens or 0


class RecordedRun:
    """Requests come between steps; `lines` is what `anaphora serve --record` would have written."""

    def __init__(
        self,
        layout: KVLayout,
        *,
        config: SchedulerConfig | None = None,
        policy: EvictionPolicyName = "lru",
        exact_reuse: bool = False,
        key: bytes | None = None,
    ) -> None:
        self.log, self.reuse = EvictionLog(), Reuse()
        config = config or SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=16)
        max_model_len = layout.num_usable_pages * layout.page_size
        self.manager = KVManager(
            layout, self.log, policy=make_policy(policy, layout), exact_reuse=exact_reuse
        )
        self.engine = RecordedEngine(
            layout=layout,
            scheduler=config,
            max_model_len=max_model_len,
            eviction_policy=policy,
            exact_reuse=exact_reuse,
            partial_block_reuse=0,
            max_pinned_pages=0,
        )
        writer = LineWriter(self.engine, BlockNames(key), start_s=0.0)
        self.lines: list[str] = []
        recorder = RequestRecorder(
            lambda request_id: self.manager.table(request_id).chain,
            lambda finished: self.lines.append(writer.line(finished)),
        )
        self.scheduler = Scheduler(
            config,
            self.manager,
            model_fingerprint=bytes(32),
            max_model_len=max_model_len,
            exact_reuse=exact_reuse,
            listener=SchedulerListeners([recorder, self.reuse]),
        )
        self.runner = FakeRunner(layout)
        self.now = 0.0

    def add(
        self,
        name: str,
        tokens: Sequence[int],
        max_tokens: int = 3,
        n: int = 1,
        *,
        cache_salt: str | None = None,
        prompt_logprobs: int | None = None,
    ) -> list[Request]:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, prompt_logprobs=prompt_logprobs)
        requests = [
            Request(
                request_id=RequestId(name + "'" * index),
                token_ids=list(tokens),
                params=params,
                seed=index,
                arrival_time=self.now,
                cache_salt=cache_salt,
                skip_reading_cache=prompt_logprobs is not None,
            )
            for index in range(n)
        ]
        self.scheduler.add(requests[0], requests[1:])
        return requests

    def step(self) -> None:
        self.now += 0.25
        plan = self.scheduler.plan(self.now)
        if not plan.is_empty:
            self.scheduler.commit(plan, self.runner.run(plan), self.now)

    def run(self) -> None:
        for _ in range(10_000):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("still at work")

    def abort(self, name: str) -> None:
        self.scheduler.abort(RequestId(name), self.now)

    def trace(self) -> Trace:
        reader = RecordingReader(None)
        for where, entry in entries(self.lines):
            reader.add(where, entry)
        return reader.trace(None)
