"""The engine as the event loop sees it: submit a prompt, iterate its outputs, close to abort.

The only place where the engine's thread touches asyncio: one call into the loop per step.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from anaphora.engine.core import EngineCore
from anaphora.engine.loop import Command, EngineLoop
from anaphora.engine.protocols import Clock, GenerateInput, Tokenizer
from anaphora.errors import EngineDeadError, InvalidRequestError, RequestError
from anaphora.ids import RequestId, TokenId
from anaphora.request import RequestOutput
from anaphora.scheduler.probe import Probe

STALL_LIMIT_S = 120.0
"""A step that runs longer than this counts as hung."""

Answer = TypeVar("Answer")
_Stream = asyncio.Queue[RequestOutput | Exception]


class AsyncEngine:
    """Runs an EngineCore in its own thread for one event loop. Satisfies `EngineClient`."""

    def __init__(
        self,
        core: EngineCore,
        tokenizer: Tokenizer,
        clock: Clock,
        *,
        max_model_len: int,
        max_pinnable_tokens: int,
        metrics_text: Callable[[], str],
    ) -> None:
        self.tokenizer = tokenizer
        self.max_model_len = max_model_len
        self.max_pinnable_tokens = max_pinnable_tokens
        self.metrics_text = metrics_text
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = EngineLoop(core, clock, deliver=self._deliver, fail=self._fail)
        self._streams: dict[RequestId, _Stream] = {}
        self._answers: set[asyncio.Future[Any]] = set()
        self._error: str | None = None

    def start(self) -> None:
        """Start the engine's thread; outputs go to the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """End the engine's thread after its current step; requests that still run fail."""
        self._thread.stop()
        await asyncio.to_thread(self._thread.join)
        self._fail_all("the server has stopped")

    @property
    def failure(self) -> str | None:
        """Why the engine can no longer step, or None while it can."""
        if self._error is None and not self._thread.is_alive:
            return "the engine does not run"
        if self._error is None and self._thread.step_age_s() > STALL_LIMIT_S:
            return f"the engine's step has been running for over {STALL_LIMIT_S:.0f} s"
        return self._error

    async def generate(self, request: GenerateInput) -> AsyncGenerator[RequestOutput, None]:
        """Run one prompt; see EngineClient."""
        if self.failure:
            raise EngineDeadError(self.failure)
        if request.request_id in self._streams:
            raise InvalidRequestError(
                f"request id {request.request_id!r} is in use; send another", param="request_id"
            )
        stream: _Stream = asyncio.Queue()
        self._streams[request.request_id] = stream
        self._thread.call(self._adder(request, self._clock.now()))
        num_live = request.params.n
        try:
            while num_live:
                output = await stream.get()
                if isinstance(output, Exception):
                    num_live = 0
                    raise output
                num_live -= output.finish_reason is not None
                yield output
        finally:
            self._streams.pop(request.request_id, None)
            if num_live:
                self._thread.call(lambda core: _abort(core, request.request_id))

    def _adder(self, request: GenerateInput, arrival_time: float) -> Command:
        def add(core: EngineCore) -> None:
            try:
                core.add(request, arrival_time)
            except RequestError as error:
                self._call_in_loop(partial(self._put, request.request_id, error))

        return add

    async def reset_prefix_cache(self, *, reset_running_requests: bool = False) -> bool:
        """Forget every cached block; see EngineClient."""
        return await self._ask(
            lambda core: core.reset_prefix_cache(reset_running_requests=reset_running_requests)
        )

    async def probe(
        self, token_ids: Sequence[TokenId], tenant_salt: bytes | None, cache_salt: str | None
    ) -> Probe:
        """Return how much of a prompt is cached now; see EngineClient."""
        return await self._ask(lambda core: core.probe(token_ids, tenant_salt, cache_salt))

    async def _ask(self, question: Callable[[EngineCore], Answer]) -> Answer:
        """Return what the core answers between two steps, or raise the RequestError that it raises."""
        if self.failure:
            raise EngineDeadError(self.failure)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def ask(core: EngineCore) -> None:
            try:
                settle = partial(answer.set_result, question(core))
            except RequestError as error:
                settle = partial(answer.set_exception, error)
            self._call_in_loop(lambda: None if answer.done() else settle())

        self._answers.add(answer)
        self._thread.call(ask)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _deliver(self, outputs: Sequence[RequestOutput]) -> None:
        self._call_in_loop(lambda: self._put_all(outputs))

    def _put_all(self, outputs: Sequence[RequestOutput]) -> None:
        for output in outputs:
            self._put(output.request_id, output)

    def _put(self, request_id: RequestId, item: RequestOutput | Exception) -> None:
        # A request whose client has gone has no stream any more; its abort is under way.
        if stream := self._streams.get(request_id):
            stream.put_nowait(item)

    def _fail(self, error: BaseException) -> None:
        message = f"the engine has failed: {type(error).__name__}: {error}"
        self._error = message
        self._call_in_loop(lambda: self._fail_all(message))

    def _fail_all(self, message: str) -> None:
        self._error = message
        for request_id in list(self._streams):
            self._put(request_id, EngineDeadError(message))
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(EngineDeadError(message))


def _abort(core: EngineCore, request_id: RequestId) -> None:
    core.abort(request_id)
