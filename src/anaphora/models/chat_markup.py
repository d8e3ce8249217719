"""What a chat template writes around the contents of messages, learned by watching it render.

Knows nothing of jinja: rendering is handed in.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anaphora.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Turn:
    """A message as templates get it: its fields without the content, and the content's texts with their paths."""

    role: str
    fields: Mapping[str, Any]
    texts: tuple[str, ...]
    paths: tuple[str, ...]


RenderDialogue = Callable[[Sequence[Turn], bool], str]
"""Renders turns, with a generation prompt at the end or without; raises InvalidRequestError for a refusal."""


@dataclass(frozen=True, slots=True)
class Markup:
    """What stands before and behind a message of a role, and what invites the next reply.

    `verbatim_roles` are those whose contents keep the white space at their ends.
    """

    headers: Mapping[str, str]
    endings: Mapping[str, str]
    generation_prompt: str
    verbatim_roles: frozenset[str]

    def header(self, role: str) -> str | None:
        """What probably stands before a message; a role never seen is taken to be written like the user's."""
        if role in self.headers or "user" not in self.headers:
            return self.headers.get(role)
        return self.headers["user"].replace("user", role)

    def ending(self, role: str) -> str | None:
        """What probably stands behind a message; a role never seen is taken to be written like the user's."""
        return self.endings.get(role, self.endings.get("user"))


def learn_markup(render: RenderDialogue) -> Markup:
    """Learn a template's markup from a few canned conversations; what it refuses to render stays unknown."""
    verbatim_roles = _learn_verbatim_roles(render)
    roles = ("user", "assistant", "user")
    short = _literals(render, roles[:2], has_prompt=False)
    full = _literals(render, roles, has_prompt=False)
    prompted = _literals(render, roles, has_prompt=True)
    if short is None or full is None or prompted is None:
        return Markup({}, {}, "", verbatim_roles)
    #  full:  [0: …] user [1: ending, header] assistant [2: ending, header] user [3: ending …]
    endings = {"user": _common_start(full[3], prompted[3]), "assistant": _common_start(short[2], full[2])}
    headers = {"user": full[2][len(endings["assistant"]) :]}
    if full[1].startswith(endings["user"]):
        headers["assistant"] = full[1][len(endings["user"]) :]
    return Markup(headers, endings, prompted[3][len(endings["user"]) :], verbatim_roles)


def _literals(render: RenderDialogue, roles: Sequence[str], *, has_prompt: bool) -> list[str] | None:
    """What stands around and between the contents of a canned conversation."""
    marks = [f"Qz7x{i}z" for i in range(len(roles))]
    try:
        text = render([_canned(role, mark) for role, mark in zip(roles, marks, strict=True)], has_prompt)
    except InvalidRequestError:
        return None
    pieces = re.split("(Qz7x[0-9]z)", text)
    return pieces[::2] if pieces[1::2] == marks else None


def _learn_verbatim_roles(render: RenderDialogue) -> frozenset[str]:
    # Longer than the white space that ends a header, which could otherwise pass for the content's own.
    return _roles_that_keep("\n" * 8, render) & _roles_that_keep(" " * 8, render)


def _roles_that_keep(padding: str, render: RenderDialogue) -> frozenset[str]:
    for roles in (("system", "user", "assistant"), ("user", "assistant")):
        padded = {role: f"{padding}Qz7{role}{padding}" for role in roles}
        try:
            text = render([_canned(role, content) for role, content in padded.items()], False)
        except InvalidRequestError:
            continue
        return frozenset(role for role, content in padded.items() if content in text)
    return frozenset()


def _canned(role: str, text: str) -> Turn:
    return Turn(role, {"role": role}, (text,), ("",))


def _common_start(a: str, b: str) -> str:
    """The longest common beginning of two stretches of markup, without a tag cut in two."""
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if length in {len(a), len(b)}:
        return a[:length]
    opened = max(a.rfind("<", 0, length), a.rfind("[", 0, length))
    closed = max(a.rfind(">", 0, length), a.rfind("]", 0, length))
    return a[: opened if opened > closed else length]
