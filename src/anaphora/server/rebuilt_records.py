"""Remembered requests → records for a verdict: texts from token ids, bodies from their skeletons."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

from anaphora.errors import RequestError
from anaphora.explain import skeleton
from anaphora.explain.bodies import ChatBody, bypass_of
from anaphora.explain.history import Remembered
from anaphora.explain.records import CacheNamespace, Contents, PartSpan, PromptRecord, Render, RenderedPrompt
from anaphora.ids import TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How bodies and tokens of the served model are read: `body` from a source, `prompt` from ids and spans."""

    body: Callable[[Mapping[str, Any]], ChatBody]
    prompt: Callable[[Sequence[TokenId], Sequence[PartSpan]], RenderedPrompt]
    render: Render

    def text(self, token_ids: Sequence[TokenId]) -> str:
        """Return the text of some tokens."""
        return self.prompt(token_ids, ()).text


class RebuiltRecords:
    """Builds the records of the requests of one verdict; a text that one prompt does not show, another may."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._bodies: list[tuple[skeleton.Skeleton, Callable[[], RenderedPrompt]]] = []

    def record(
        self, request: Remembered, token_ids: Sequence[TokenId], num_tokens: int | None = None
    ) -> PromptRecord:
        """Return a remembered request whose K/V exist for `num_tokens`; behind its prompt, its reply."""
        admitted = request.admitted
        num_shown = max(admitted.num_prompt_tokens, num_tokens or 0)
        shown = tuple(token_ids[:num_shown])
        prompt = cache(partial(self._reading.prompt, shown, request.spans))
        self._bodies.append((request.body, prompt))
        return PromptRecord(
            request_id=admitted.request_id,
            token_ids=shown if num_tokens is None else shown[:num_tokens],
            contents=cache(lambda: self._contents(request, prompt())),
            namespace=CacheNamespace(salt=admitted.cache_salt),
            bypassed_by=_bypass(request),
        )

    @cached_property
    def _known(self) -> skeleton.Known:
        known = skeleton.Known()
        for body, prompt in self._bodies:
            known.take(body, prompt().text)
        return known

    def _contents(self, request: Remembered, prompt: RenderedPrompt) -> Contents:
        """Rebuild the body of a remembered request; its reply is one more message."""
        contents = Contents(self._body(request, prompt), prompt)
        num_prompt = request.admitted.num_prompt_tokens
        return contents if len(prompt.token_ids) <= num_prompt else _with_reply(contents, num_prompt)

    def _body(self, request: Remembered, prompt: RenderedPrompt) -> ChatBody:
        ids_alone = ChatBody(prompt=tuple(prompt.token_ids))
        if not isinstance(request.body, Mapping):
            return ids_alone
        source = skeleton.unpack(request.body, prompt.text, self._known)
        if not {"messages", "prompt"} & source.keys():
            return replace(ids_alone, source=source)
        try:
            return self._reading.body(source)
        except RequestError:  # a name that the prompt does not show is none that the server takes
            return replace(ids_alone, source=source)


def _bypass(request: Remembered) -> str | None:
    """Return what made a request read nothing, by the field that it was sent with, if that is known."""
    bypassed_by = request.admitted.bypassed_by
    if bypassed_by is None or bypassed_by.startswith("--") or not isinstance(request.body, Mapping):
        return bypassed_by
    return bypass_of(request.body) or bypassed_by


def _with_reply(contents: Contents, num_prompt_tokens: int) -> Contents:
    """Return the contents with the reply as one more message at the end."""
    body, prompt = contents
    start = prompt.char_of(num_prompt_tokens)
    if body.prompt is not None:
        return contents
    reply = {"role": "assistant", "content": prompt.text[start:]}
    path = f"messages[{len(body.messages)}]"
    ends = (start, len(prompt.text), num_prompt_tokens, len(prompt.token_ids))
    spans = (*prompt.spans, PartSpan(path, *ends), PartSpan(f"{path}.content", *ends))
    return Contents(replace(body, messages=(*body.messages, reply)), replace(prompt, spans=spans))
