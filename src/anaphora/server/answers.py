"""The shapes of the OpenAI API's answers, whole and in chunks.

Pure: outputs of the engine in, plain JSON values out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from anaphora.request import RequestOutput, Usage

Json = dict[str, Any]


def usage_object(usage: Usage) -> Json:
    """Return the usage of a call; counts of 0 are sent as 0."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
            "created_cache_tokens": usage.cache_write_tokens,
        },
    }


def cache_headers(usage: Usage) -> dict[str, str]:
    """Return the headline of the cache, for clients that drop unknown fields."""
    return {"x-anaphora-cache": f"hit={usage.cached_tokens}; of={usage.prompt_tokens}"}


@dataclass(slots=True)
class Transcript:
    """All that one sequence has said."""

    text: str = ""
    ending: Json = field(default_factory=dict)

    def add(self, output: RequestOutput) -> None:
        """Append what one step added."""
        self.text += output.text
        self.ending = _ending(output)


def _ending(output: RequestOutput) -> Json:
    reason = None if output.finish_reason is None else output.finish_reason.value
    return {"finish_reason": reason, "stop_reason": output.stop_reason}


class Shape(Protocol):
    """How one endpoint's answers look; `index` is that of the choice."""

    id_prefix: ClassVar[str]
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a whole choice."""
        ...

    def opening(self, index: int) -> list[Json]:
        """Return the choices of the chunks that precede all outputs."""
        ...

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return the choices of the chunks for one output; none while it says nothing."""
        ...


class ChatShape:
    """Answers of /v1/chat/completions."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a choice with its message."""
        message = {"role": "assistant", "content": transcript.text, "refusal": None}
        return {"index": index, "message": message, "logprobs": None, **transcript.ending}

    def opening(self, index: int) -> list[Json]:
        """Return the chunk that names the role."""
        return [_chat_chunk(index, {"role": "assistant", "content": ""})]

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return a chunk with the content, if there is any, and one for the end, if it is there."""
        chunks = [_chat_chunk(index, {"content": output.text})] if output.text else []
        if output.finish_reason is not None:
            chunks.append(_chat_chunk(index, {}) | _ending(output))
        return chunks


def _chat_chunk(index: int, delta: Json) -> Json:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """Answers of /v1/completions, n for each prompt; `echo` holds the prompts' texts if they are to be repeated."""

    id_prefix: ClassVar[str] = "cmpl-"
    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    n: int = 1
    echo: Sequence[str] | None = None

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a choice with its text."""
        echo = "" if self.echo is None else self.echo[index // self.n]
        return {"index": index, "text": echo + transcript.text, "logprobs": None, **transcript.ending}

    def opening(self, index: int) -> list[Json]:
        """Return a chunk with the prompt's text, if it was asked for."""
        if self.echo is None:
            return []
        ending = {"finish_reason": None, "stop_reason": None}
        return [{"index": index, "text": self.echo[index // self.n], "logprobs": None, **ending}]

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return one chunk with the text and the end, or none."""
        if not output.text and output.finish_reason is None:
            return []
        return [{"index": index, "text": output.text, "logprobs": None, **_ending(output)}]
