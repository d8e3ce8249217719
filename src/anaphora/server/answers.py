"""The shapes of the OpenAI API's answers, whole and in chunks.

Pure: outputs of the engine in, plain JSON values out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from anaphora.ids import TokenId
from anaphora.request import RequestOutput, TokenLogprobs, Usage
from anaphora.server.logprobs import AskedLogprobs, CompletionLogprobs, Json, joined


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


@dataclass(slots=True)
class Transcript:
    """All that one sequence has said, and what was found about its tokens."""

    text: str = ""
    ending: Json = field(default_factory=dict)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: Sequence[TokenLogprobs] | None = None

    @property
    def mean_logprob(self) -> float:
        """The mean log probability of its tokens; 0 without any."""
        return sum(entry.logprob for entry in self.logprobs) / max(1, len(self.logprobs))

    def add(self, output: RequestOutput) -> None:
        """Append what one step added."""
        self.text += output.text
        self.ending = _ending(output)
        self.logprobs += output.logprobs
        if output.prompt_logprobs is not None:
            self.prompt_logprobs = output.prompt_logprobs


def _ending(output: RequestOutput) -> Json:
    reason = None if output.finish_reason is None else output.finish_reason.value
    return {"finish_reason": reason, "stop_reason": output.stop_reason}


class Shape(Protocol):
    """How one endpoint's answers look; `index` is that of the choice."""

    id_prefix: ClassVar[str]
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def pick(self, transcripts: Sequence[Transcript]) -> Sequence[Transcript]:
        """Return those that become choices, in their order."""
        ...

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a whole choice."""
        ...

    def additions(self, transcripts: Sequence[Transcript]) -> Json:
        """Return what else a whole answer carries beside its choices."""
        ...

    def opening(self, index: int) -> list[Json]:
        """Return the choices of the chunks that precede all outputs."""
        ...

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return the choices of the chunks for one output; none while it says nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ChatShape:
    """Answers of /v1/chat/completions."""

    id_prefix: ClassVar[str] = "chatcmpl-"
    object: ClassVar[str] = "chat.completion"
    chunk_object: ClassVar[str] = "chat.completion.chunk"

    asked: AskedLogprobs

    def pick(self, transcripts: Sequence[Transcript]) -> Sequence[Transcript]:
        """Return all of them."""
        return transcripts

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a choice with its message."""
        message = {"role": "assistant", "content": transcript.text, "refusal": None}
        logprobs = self.asked.chat(transcript.logprobs)
        return {"index": index, "message": message, "logprobs": logprobs, **transcript.ending}

    def additions(self, transcripts: Sequence[Transcript]) -> Json:
        """Return the log probabilities of the prompt, if they were asked for."""
        found = self.asked.prompt(transcripts[0].prompt_logprobs)
        return {} if found is None else {"prompt_logprobs": found}

    def opening(self, index: int) -> list[Json]:
        """Return the chunk that names the role."""
        return [_chat_chunk(index, {"role": "assistant", "content": ""}, None)]

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return a chunk with the content and its log probabilities, if there are any, and one for the end."""
        logprobs = self.asked.chat(output.logprobs) if output.logprobs else None
        chunks = [_chat_chunk(index, {"content": output.text}, logprobs)] if output.text or logprobs else []
        if output.finish_reason is not None:
            chunks.append(_chat_chunk(index, {}, None) | _ending(output))
        return chunks


def _chat_chunk(index: int, delta: Json, logprobs: Json | None) -> Json:
    return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt that is to be repeated: its text, and its first token, which nothing predicts."""

    text: str
    first: TokenId


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """Answers of /v1/completions, n for each prompt, the likeliest of `best_of`.

    `echoes` holds the prompts if they are to be repeated.
    """

    id_prefix: ClassVar[str] = "cmpl-"
    object: ClassVar[str] = "text_completion"
    chunk_object: ClassVar[str] = "text_completion"

    asked: AskedLogprobs
    n: int = 1
    best_of: int = 1
    echoes: Sequence[Echo] | None = None
    _logs: dict[int, CompletionLogprobs] = field(default_factory=dict, init=False)  # of a stream

    def pick(self, transcripts: Sequence[Transcript]) -> Sequence[Transcript]:
        """Return the n with the highest mean log probability of each prompt, the best first."""
        if self.best_of == self.n:
            return transcripts
        picked: list[Transcript] = []
        for begin in range(0, len(transcripts), self.best_of):
            ranked = sorted(transcripts[begin : begin + self.best_of], key=lambda t: -t.mean_logprob)
            picked += ranked[: self.n]
        return picked

    def choice(self, index: int, transcript: Transcript) -> Json:
        """Return a choice with its text."""
        echo = self._echo(index)
        choice = {
            "index": index,
            "text": (echo.text if echo else "") + transcript.text,
            "logprobs": self._whole_logprobs(echo, transcript),
            **transcript.ending,
        }
        found = self.asked.prompt(transcript.prompt_logprobs)
        return choice if found is None else choice | {"prompt_logprobs": found}

    def additions(self, transcripts: Sequence[Transcript]) -> Json:
        """Return nothing: all is in the choices."""
        return {}

    def opening(self, index: int) -> list[Json]:
        """Return a chunk with the prompt's text, if it is to be repeated without log probabilities."""
        echo = self._echo(index)
        return [] if echo is None or self.asked.num_top is not None else [_echo_chunk(index, echo, None)]

    def chunks(self, index: int, output: RequestOutput) -> list[Json]:
        """Return one chunk with the text, its log probabilities and the end, or none.

        Before the first one the prompt is repeated, if that takes log probabilities which come with the output.
        """
        chunks, logprobs, echo = [], None, self._echo(index)
        if self.asked.num_top is not None:
            log = self._log(index)
            if echo and output.prompt_logprobs is not None:
                said = log.echo(echo.text, echo.first, output.prompt_logprobs)
                chunks.append(_echo_chunk(index, echo, said))
            logprobs = log.outputs(output.logprobs) if output.logprobs else None
        if output.text or logprobs or output.finish_reason is not None:
            chunks.append({"index": index, "text": output.text, "logprobs": logprobs, **_ending(output)})
        return chunks

    def _log(self, index: int) -> CompletionLogprobs:
        if index not in self._logs:
            self._logs[index] = CompletionLogprobs(self.asked)
        return self._logs[index]

    def _echo(self, index: int) -> Echo | None:
        return None if self.echoes is None else self.echoes[index // self.n]

    def _whole_logprobs(self, echo: Echo | None, transcript: Transcript) -> Json | None:
        if self.asked.num_top is None:
            return None
        log, parts = CompletionLogprobs(self.asked), []
        if echo and transcript.prompt_logprobs is not None:
            parts.append(log.echo(echo.text, echo.first, transcript.prompt_logprobs))
        return joined([*parts, log.outputs(transcript.logprobs)])


def _echo_chunk(index: int, echo: Echo, logprobs: Json | None) -> Json:
    ending = {"finish_reason": None, "stop_reason": None}
    return {"index": index, "text": echo.text, "logprobs": logprobs, **ending}
