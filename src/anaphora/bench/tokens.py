"""Counts the tokens of prompts: by the server's own `/tokenize`, else by an estimate that says that it is one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from anaphora.bench.client import again, post, total_s
from anaphora.bench.measurement import Prompt
from anaphora.bench.target import Target
from anaphora.errors import TargetError


@dataclass(frozen=True, slots=True)
class Counted:
    """The length of a prompt, and its ids where the server gave them."""

    num_tokens: int
    ids: tuple[int, ...] | None


class TokenCounter:
    """Counts as the server would; without `/tokenize`, a word is one token."""

    def __init__(self, http: httpx.AsyncClient, target: Target) -> None:
        self._http = http
        self._target = target
        self._has_failed = False

    @property
    def is_exact(self) -> bool:
        """Whether the server counts."""
        return self._target.tokenize is not None and not self._has_failed

    @property
    def source(self) -> str:
        """Where lengths come from, for people."""
        if self.is_exact:
            return "the server's /tokenize"
        if self._has_failed:
            return "estimated at one token per word, since the server's /tokenize gives longer texts no more tokens"
        return "estimated at one token per word, since the server has no /tokenize"

    def distrust(self) -> None:
        """Count no more by a `/tokenize` that does not count."""
        self._has_failed = True

    async def count(self, text: str) -> Counted:
        """Return the length of the prompt that a text makes, with all that the server puts around it."""
        return await self.count_prompt(Prompt(text=text, num_tokens=0))

    async def count_prompt(self, prompt: Prompt) -> Counted:
        """Return the length of a text or of a conversation."""
        if not self.is_exact:
            return Counted(max(1, len(prompt.text.split())), None)
        try:
            request = post(self._http, "/tokenize", self._body(prompt))
            response = await again(lambda: self._http.send(request), total_s(self._http))
        except httpx.HTTPError as error:
            raise TargetError(
                f"the server stopped answering /tokenize ({error or type(error).__name__})"
            ) from error
        if response.status_code != 200:
            raise TargetError(
                f"/tokenize answers with status {response.status_code}: {response.text[:200]}; choose shorter prompts"
            )
        try:
            ids = response.json()["tokens"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TargetError(f"/tokenize answers without tokens: {response.text[:200]}") from error
        if not isinstance(ids, list):
            raise TargetError(f"/tokenize answers with tokens that are no list: {response.text[:200]}")
        return Counted(len(ids), tuple(ids))

    def _body(self, prompt: Prompt) -> dict[str, Any]:
        if self._target.tokenize == "llama.cpp":
            return {"content": prompt.text, "add_special": True}
        messages = prompt.messages
        if messages is None and self._target.api == "chat":
            messages = ({"role": "user", "content": prompt.text},)
        if messages is not None:
            return {
                "model": self._target.model,
                "messages": list(messages),
                "add_generation_prompt": True,
            }
        return {"model": self._target.model, "prompt": prompt.text}


def num_shared(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many ids two prompts have in common at their beginning."""
    for place, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return place
    return min(len(a), len(b))
