"""Logs that hold text: request bodies of the OpenAI API, and conversations in the form of ShareGPT.

Whoever reads them hands in what makes tokens of a body. Nothing of the text is kept: blocks are hashed as the engine
would, and numbered.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anaphora.cache.chain import BlockChain
from anaphora.cache.hashing import Namespace
from anaphora.errors import InvalidRequestError, TraceError
from anaphora.ids import TokenId
from anaphora.sim.trace import Trace, TraceRequest
from anaphora.sim.trace_lines import BlockNumbers, Entry, by_arrival, finite

Tokenize = Callable[[Entry], Sequence[TokenId]]
"""Makes the tokens of a request's body; raises InvalidRequestError."""

PROMPT_FIELDS = frozenset({"messages", "prompt", "input"})
_WRAPPERS = ("body", "request")
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}


def holds_text(entry: Entry) -> bool:
    """Whether an entry is a request body, a wrapped one, or a conversation."""
    return "conversations" in entry or body_of(entry) is not None


def body_of(entry: Entry) -> Entry | None:
    """Return the request body that an entry of a log is or wraps, or None."""
    for candidate in (entry, *(entry.get(wrapper) for wrapper in _WRAPPERS)):
        if isinstance(candidate, dict) and PROMPT_FIELDS & candidate.keys():
            return candidate
    return None


class TextReader:
    """Reads request logs and conversations; one conversation becomes a request for each of its replies."""

    def __init__(
        self, tokenize: Tokenize, *, block_size: int, page_size: int, min_prefill_tokens: int
    ) -> None:
        self._tokenize = tokenize
        self._block_size, self._page_size = block_size, page_size
        self._min_prefill_tokens = min_prefill_tokens
        self._numbers = BlockNumbers()
        self._requests: list[TraceRequest] = []
        self._is_conversations = False

    def add(self, where: str, entry: Entry) -> None:
        """Take in one entry; raises TraceError."""
        if "conversations" in entry:
            self._is_conversations = True
            for body, reply in _turns(where, entry["conversations"]):
                answer = self._tokens(where, {"prompt": reply, "add_special_tokens": False})
                self._add(where, body, len(answer), None)
            return
        asked = body_of(entry)
        if asked is None:
            raise TraceError(f"{where} holds neither messages nor a prompt")
        self._add(where, asked, _num_outputs(entry), _arrival(where, entry))

    def _add(self, where: str, body: Entry, num_outputs: int, arrival_s: float | None) -> None:
        tokens = self._tokens(where, body)
        if not tokens:
            raise TraceError(f"{where} has an empty prompt")
        salt = body.get("cache_salt")
        if not isinstance(salt, str | None):
            raise TraceError(f"{where}: cache_salt is {salt!r:.40}, but must be a text")
        namespace = Namespace(model_fingerprint=str(body.get("model")).encode(), cache_salt=salt)
        chain = BlockChain(namespace, self._block_size, tokens)
        block_ids = self._numbers(where, [digest.hex() for digest in chain.digests])
        self._requests.append(TraceRequest(len(tokens), num_outputs, block_ids, arrival_s))

    def _tokens(self, where: str, body: Entry) -> Sequence[TokenId]:
        try:
            return self._tokenize(body)
        except InvalidRequestError as error:
            raise TraceError(f"{where}: {error}") from error

    def trace(self, error: str | None) -> Trace:
        """Return what was read."""
        return Trace(
            format="ShareGPT" if self._is_conversations else "request log",
            block_size=self._block_size,
            requests=by_arrival(self._requests),
            counts_tail=False,
            page_size=self._page_size,
            min_prefill_tokens=self._min_prefill_tokens,
            error=error,
            notes=("conversations one after another, in the order of the file",)
            if self._is_conversations
            else (),
        )


def _turns(where: str, conversation: Any) -> Iterator[tuple[Entry, str]]:
    """Yield, for each reply of a conversation, the body that asked for it and the reply."""
    if not isinstance(conversation, list):
        raise TraceError(f"{where}: conversations is {conversation!r:.40}, but must be a list")
    messages: list[Entry] = []
    for turn in conversation:
        is_turn = isinstance(turn, dict) and isinstance(turn.get("value"), str)
        role = _ROLES.get(str(turn.get("from"))) if is_turn else None
        if role is None:
            raise TraceError(f"{where}: {turn!r:.60} is no turn of a human, a gpt or a system")
        if role == "assistant" and messages:
            yield {"messages": list(messages)}, turn["value"]
        messages.append({"role": role, "content": turn["value"]})


def _num_outputs(entry: Entry) -> int:
    """Return how many tokens were answered, as far as the log says: 0 where it does not."""
    answer = entry.get("response")
    usage = (answer if isinstance(answer, dict) else entry).get("usage")
    number = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if isinstance(number, bool) or not isinstance(number, int):
        return 0
    return max(0, number)


def _arrival(where: str, entry: Entry) -> float | None:
    """Return the time of arrival in seconds, or None when the log does not say."""
    value = entry.get("timestamp", entry.get("created"))
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TraceError(f"{where}: the time is {value!r:.40}, but must be a number of seconds")
    return finite(where, "the time", value)
