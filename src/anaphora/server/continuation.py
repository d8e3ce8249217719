"""Continues the prompts of earlier requests: a reply that comes back as history keeps the tokens it was generated
with, and if asked for, history keeps the text it was rendered as.

Knows conversations by digests alone; token ids come from what explanations remember of the same tenant.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from anaphora.config import HelperConfig
from anaphora.engine.protocols import Tokenizer
from anaphora.errors import RequestError
from anaphora.explain.alignment import common_length
from anaphora.explain.bodies import canonical, message_key, tool_key
from anaphora.explain.history import EarlierTurn, Scope
from anaphora.ids import TokenId
from anaphora.models.spans import CharSpan, SpanMap, spans_in_tokens, token_char_starts
from anaphora.server.explainer import Explainer
from anaphora.server.helpers import Messages, Tools
from anaphora.server.messages import PART_TEXTS
from anaphora.server.prompts import LONG_TEXT_CHARS, Prompt

MAX_EARLIER = 4
"""So many earlier requests are compared with a prompt at most."""

_REPLY_FIELDS = frozenset(
    {
        "role",
        "content",
        "annotations",
        "reasoning",
        "reasoning_content",
        "cache_control",
        "prompt_cache_breakpoint",
    }
)
_END_OF_THOUGHT = "</think>"


class _Past(NamedTuple):
    """What an earlier request and its reply, the message of this number, came to; its prompt ends at `prompt_end`."""

    message: int
    token_ids: list[TokenId]
    text: str
    prompt_end: int
    num_reply_tokens: int
    parts: tuple[CharSpan, ...]


class _Draft(NamedTuple):
    """A text to be put in place of the rendered one: it begins with the past, `tail` follows."""

    text: str
    tail: str
    parts: Sequence[CharSpan]


class Continuation:
    """Goes on from earlier requests of the same scope, where the settings ask for it."""

    def __init__(
        self, config: HelperConfig, tokenizer: Tokenizer, explainer: Explainer, max_model_len: int
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._explainer = explainer
        self._max_model_len = max_model_len

    async def continued(
        self,
        prompt: Prompt,
        messages: Messages,
        tools: Tools,
        scope: Scope,
        *,
        add_generation_prompt: bool,
        num_output_tokens: int,
    ) -> Prompt:
        """Return a rendered prompt so that it goes on from an earlier one, or as it is; the latest turn goes first.

        It is never longer than leaves room for the outputs. It carries the digest of its own conversation.
        """
        turns = turn_digests(messages, tools)
        if add_generation_prompt:
            prompt = replace(prompt, turn=turns[-1])
        places = {turns[k]: k for k, message in enumerate(messages) if k and _is_reply(message)}
        if not places or prompt.spans is None:
            return prompt
        found = await self._explainer.earlier_turns(scope, list(places)[::-1], MAX_EARLIER)
        if not found:
            return prompt
        candidates = [(places[turn], earlier) for turn, earlier in found]
        work = partial(self._first_fitting, prompt, prompt.spans, messages, candidates)
        is_long = len(prompt.token_ids) > LONG_TEXT_CHARS // 4  # a token has about four characters
        made = await asyncio.to_thread(work) if is_long else work()
        is_too_long = len(made.token_ids) + num_output_tokens > self._max_model_len
        return prompt if is_too_long else made

    def _first_fitting(
        self,
        prompt: Prompt,
        spans: SpanMap,
        messages: Messages,
        candidates: Sequence[tuple[int, EarlierTurn]],
    ) -> Prompt:
        parts = [CharSpan(span.path, span.char_start, span.char_end) for span in spans.spans]
        for index, earlier in candidates:
            past = self._past(index, messages[index], earlier)
            try:
                made = None if past is None else self._continue(prompt, parts, past)
            except RequestError:  # longer than the tokenizer takes
                return prompt
            if made is not None:
                return made
        return prompt

    # Is it the reply that was generated?

    def _past(self, index: int, message: Mapping[str, Any], earlier: EarlierTurn) -> _Past | None:
        """Return an earlier request with its reply if the message is that reply, else None."""
        num_prompt = earlier.num_prompt_tokens
        reply = list(earlier.token_ids[num_prompt:])
        while reply and reply[-1] in self._tokenizer.eos_token_ids:
            reply.pop()
        # Without the model's end token, the last one may be an end that the caller named, and no part of the text.
        has_ended = num_prompt + len(reply) < len(earlier.token_ids)
        possible = [reply] if has_ended else [reply, reply[:-1]]
        replies = [token_ids for token_ids in possible if token_ids and self._is_said(token_ids, message)]
        if not replies:
            return None
        prompt_ids = list(earlier.token_ids[:num_prompt])
        prompt_text, token_ids = self._text(prompt_ids), prompt_ids + replies[0]
        text = self._text(token_ids)
        if not text.startswith(prompt_text):  # a character cut in two
            return None
        parts = tuple(CharSpan(span.path, span.char_start, span.char_end) for span in earlier.spans)
        return _Past(index, token_ids, text, len(prompt_text), len(replies[0]), parts)

    def _is_said(self, reply: Sequence[TokenId], message: Mapping[str, Any]) -> bool:
        pieces = [self._tokenizer.token_bytes(token_id) for token_id in reply]
        shown = [
            piece
            for token_id, piece in zip(reply, pieces, strict=True)
            if token_id not in self._tokenizer.special_token_ids
        ]
        literal, visible = (b"".join(part).decode("utf-8", "replace") for part in (pieces, shown))
        thoughts = [message[name] for name in ("reasoning", "reasoning_content") if message.get(name)]
        if not all(isinstance(thought, str) and thought.strip() in literal for thought in thoughts):
            return False
        content = _content(message)
        answers = {answer for answer in (_answer(literal), _answer(visible)) if answer}
        return content in {literal, visible} or content.strip() in answers

    # Going on from it.

    def _continue(self, prompt: Prompt, parts: Sequence[CharSpan], past: _Past) -> Prompt | None:
        """Return the prompt that goes on from the past; None if an earlier past may do better."""
        text = self._text(prompt.token_ids)
        if text.startswith(past.text):
            draft = _Draft(text, text[len(past.text) :], parts)
            return self._spliced(prompt, past, draft, prompt.token_ids) or prompt
        kept = _kept(text, parts, past) if self._config.stable_history else None
        if kept is None:
            return None
        encoded = self._tokenizer.encode(kept.text, add_special_tokens=False)
        stable = self._located(prompt, encoded, kept)
        spliced = self._spliced(stable or prompt, past, kept, encoded)
        made = spliced or stable
        if made is None:
            return None
        place = common_length(text, kept.text)
        sentence = (
            f"--stable-history kept what was rendered before, up to the end of messages[{past.message}]; the chat "
            f"template would write it anew from character {place:,} of the prompt on."
        )
        help_of_it = (sentence, common_length(list(made.token_ids), list(prompt.token_ids)))
        own = made.helped[len(prompt.helped) :]
        return replace(made, helped=(*prompt.helped, help_of_it, *own))

    def _spliced(
        self, prompt: Prompt, past: _Past, draft: _Draft, encoded: Sequence[TokenId]
    ) -> Prompt | None:
        """Return the prompt with the past's own tokens, None if that is not asked for or changes nothing."""
        if not self._config.splice_generated_tokens:
            return None
        tail_ids = self._tokenizer.encode(draft.tail, add_special_tokens=False) if draft.tail else []
        token_ids = past.token_ids + tail_ids
        made = self._located(prompt, token_ids, draft)
        if made is None or token_ids == list(encoded):
            return None
        sentence = (
            f"--splice-generated-tokens kept the {past.num_reply_tokens:,} tokens that messages[{past.message}] was "
            "generated with, and those of the prompt before it."
        )
        num_common = common_length(token_ids, list(encoded))
        return replace(made, helped=(*prompt.helped, (sentence, num_common)))

    def _located(self, prompt: Prompt, token_ids: list[TokenId], draft: _Draft) -> Prompt | None:
        """Return the prompt with other tokens, None unless they spell the text."""
        pieces = [self._tokenizer.token_bytes(token_id) for token_id in token_ids]
        starts = token_char_starts(draft.text, pieces)
        if starts is None:
            return None
        return replace(prompt, token_ids=token_ids, spans=spans_in_tokens(draft.parts, starts))

    def _text(self, token_ids: Sequence[TokenId]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)


def turn_digests(messages: Messages, tools: Tools) -> list[bytes]:
    """Return for each k the digest of a conversation of the first k messages with these tools.

    What does not count for a prompt, such as the order of keys and hints for caches, does not count here either.
    """
    state = sha256(canonical([tool_key(tool) for tool in tools or ()]).encode())
    digests = [state.digest()]
    for message in messages:
        key = message_key(message).encode()
        state.update(len(key).to_bytes(8, "little") + key)
        digests.append(state.digest())
    return digests


def _is_reply(message: Mapping[str, Any]) -> bool:
    """Whether a message may be a reply of ours as it was: one text of an assistant, and nothing beside it."""
    return message.get("role") == "assistant" and message.keys() <= _REPLY_FIELDS and bool(_content(message))


def _content(message: Mapping[str, Any]) -> str:
    """Return the text of a message, nothing if it has several."""
    content = message.get("content")
    if isinstance(content, list):
        return str(content[0][PART_TEXTS[content[0]["type"]]]) if len(content) == 1 else ""
    return content or ""


def _answer(reply: str) -> str | None:
    """Return a reply without the thought at its beginning, None if there is none."""
    thought, end, answer = reply.partition(_END_OF_THOUGHT)
    is_at_beginning = "<think>" not in thought.lstrip().removeprefix("<think>")
    return answer.strip() if end and is_at_beginning else None


def _kept(text: str, parts: Sequence[CharSpan], past: _Past) -> _Draft | None:
    """Return the past with what is rendered behind its reply, None if the end of the reply cannot be found."""
    path = f"messages[{past.message}]"
    named = {part.path: part for part in parts}
    content = named.get(f"{path}.content") or named.get(f"{path}.content[0]")
    if content is None:
        return None
    tail = text[content.end :]
    shift = len(past.text) - content.end
    before = [part for part in past.parts if part.path != "generation-prompt"]
    prompts = [part.start for part in past.parts if part.path == "generation-prompt"]
    reply = [CharSpan(content.path, past.prompt_end, len(past.text))]
    if path in named:
        start = prompts[0] if prompts else past.prompt_end
        reply.append(CharSpan(path, start, named[path].end + shift))
    behind = [
        CharSpan(part.path, part.start + shift, part.end + shift)
        for part in parts
        if part.start >= content.end
    ]
    found = sorted([*before, *reply, *behind], key=lambda part: (part.start, -part.end, len(part.path)))
    return _Draft(past.text + tail, tail, found)
