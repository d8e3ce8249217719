"""One call answered, whole or as a stream."""

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from starlette.responses import Response
from starlette.types import Receive

from anaphora.server.answers import Shape, Transcript, usage_object
from anaphora.server.bodies import StreamOptions
from anaphora.server.explained import Explained, cache_headers
from anaphora.server.generation import Books, Generation, IndexedOutput
from anaphora.server.logprobs import Json
from anaphora.server.serving import Serving
from anaphora.server.sse import DONE, EventStream, frame, run_while_wanted
from anaphora.server.wire_errors import json_response, log_if_ours

NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Exchange:
    """A call on its way through the engine, the shape its answer takes, and what it says of the cache."""

    serving: Serving
    generation: Generation
    shape: Shape
    model: str
    books: Books
    explained: Explained
    created: int = field(default_factory=lambda: int(time.time()))

    async def answer(self, receive: Receive) -> Response:
        """Wait for all sequences and answer in one piece; a client that goes away ends them."""
        with self.explained:
            collected = await run_while_wanted(self._collect(), receive, self.serving.stopping)
            await self.explained.settle()
        transcripts = self.shape.pick(collected)
        choices = [self.shape.choice(index, transcript) for index, transcript in enumerate(transcripts)]
        usage = usage_object(self.books.total)
        envelope = self._envelope(self.shape.object, choices)
        content = envelope | {"usage": usage} | self.shape.additions(transcripts)
        content |= await self.explained.fields()
        return json_response(content, headers=cache_headers(self.books.total, self.explained.headline))

    async def _collect(self) -> list[Transcript]:
        transcripts = [Transcript() for _ in range(self.generation.num_sequences)]
        async with aclosing(self._outputs()) as outputs:
            async for index, output in outputs:
                transcripts[index].add(output)
        return transcripts

    async def _outputs(self) -> AsyncGenerator[IndexedOutput, None]:
        """Yield what the engine says, keeping the books."""
        async with aclosing(self.generation.run(self.serving.engine)) as outputs:
            async for index, output in outputs:
                self.books.record(index, output.usage)
                yield index, output

    def stream(self, options: StreamOptions, request_id: str) -> EventStream:
        """Answer in chunks as they come."""
        return EventStream(
            self._events(options),
            self._stream_headers,
            self.serving.stopping,
            lambda error: log_if_ours(error, request_id),
        )

    def _stream_headers(self) -> dict[str, str]:
        if not self.books.is_complete:
            return {}
        return cache_headers(self.books.total, self.explained.headline)

    async def _events(self, options: StreamOptions) -> AsyncGenerator[bytes, None]:
        """Yield the frames of wire contract 4.3, those of one step together."""
        opening = [
            choice for index in range(self.generation.num_sequences) for choice in self.shape.opening(index)
        ]
        with self.explained:
            async with aclosing(self._outputs()) as outputs:
                async for index, output in outputs:
                    if self.books.is_complete:
                        await self.explained.settle()
                    choices, opening = opening + self.shape.chunks(index, output), []
                    if choices:
                        yield b"".join(self._chunk([choice], options) for choice in choices)
        fields = await self.explained.fields()
        if options.include_usage or fields:
            yield self._chunk([], options, fields)
        yield DONE

    def _chunk(
        self, choices: list[Json], options: StreamOptions, fields: Mapping[str, Any] = NOTHING
    ) -> bytes:
        """Return a frame; the one without choices closes the stream and carries the usage and what else was asked."""
        chunk = {**self._envelope(self.shape.chunk_object, choices), **fields}
        if options.include_usage:
            is_counted = options.continuous_usage_stats or not choices
            chunk["usage"] = usage_object(self.books.total) if is_counted else None
        return frame(chunk)

    def _envelope(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.generation.call_id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": choices,
        }
