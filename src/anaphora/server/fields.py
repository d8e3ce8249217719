"""What happens to a field that no body model takes: refused, ignored on purpose, or unknown.

Nothing is dropped in silence (wire contract W7): what is ignored cannot change the answer, and what nobody
defines is counted.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anaphora.errors import InvalidRequestError, UnsupportedFieldError

logger = logging.getLogger(__name__)

_MAX_NAMES = 256
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Refusal:
    """What to do instead of using a field that is not served, and which of its values ask for nothing and may pass."""

    remedy: str = "leave it out"
    harmless: tuple[Any, ...] = ()

    def check(self, path: str, value: object) -> None:
        """Refuse the field unless its value asks for nothing."""
        # `0 == False` in Python, but not on the wire.
        if not any(type(value) is type(other) and value == other for other in self.harmless):
            raise UnsupportedFieldError(
                f"{path} is not supported by this server; {self.remedy}",
                param=path,
                code="unsupported_parameter",
            )


_FORMAT = "leave it out and check the format of the text yourself"
_TOKENS = "leave it out; logit_bias can favour or forbid tokens"
_TOOLS = "send tools and tool_choice"
_TEMPLATE = "leave it out; the template is chosen at start with --chat-template"

_REFUSED_BY_BOTH = {
    "allowed_token_ids": Refusal(_TOKENS, harmless=([],)),
    "bad_words": Refusal(_TOKENS, harmless=([],)),
    "guided_choice": Refusal(_FORMAT),
    "guided_grammar": Refusal(_FORMAT),
    "guided_json": Refusal(_FORMAT),
    "guided_regex": Refusal(_FORMAT),
    "kv_transfer_params": Refusal(),
    "length_penalty": Refusal(harmless=(1, 1.0)),
    "logits_processors": Refusal(_TOKENS, harmless=([],)),
    "prompt_embeds": Refusal("send text or token ids"),
    "response_format": Refusal(_FORMAT, harmless=({"type": "text"},)),
    "return_token_ids": Refusal(harmless=(False,)),
    "return_tokens_as_token_ids": Refusal(harmless=(False,)),
    "spaces_between_special_tokens": Refusal(harmless=(True,)),
    "structured_outputs": Refusal(_FORMAT),
    "truncate_prompt_tokens": Refusal("shorten the prompt yourself"),
    "use_beam_search": Refusal("leave it out, or use n with a temperature", harmless=(False,)),
}

REFUSED_BY_COMPLETIONS = _REFUSED_BY_BOTH | {
    "suffix": Refusal("leave it out and put all text in the prompt", harmless=("",)),
}

REFUSED_BY_TEMPLATE = {
    "chat_template": Refusal(_TEMPLATE),
    "chat_template_kwargs": Refusal(_TEMPLATE, harmless=({},)),
    "continue_final_message": Refusal("leave it out, or use /v1/completions", harmless=(False,)),
    "documents": Refusal("put the documents in a message", harmless=([],)),
    "mm_processor_kwargs": Refusal(harmless=({},)),
}

REFUSED_BY_CHAT = {
    **_REFUSED_BY_BOTH,
    **REFUSED_BY_TEMPLATE,
    "add_special_tokens": Refusal("leave it out; the chat template writes them", harmless=(False,)),
    "audio": Refusal(),
    "best_of": Refusal("use n and choose yourself"),
    "echo": Refusal("leave it out, or use /v1/completions", harmless=(False,)),
    "function_call": Refusal(_TOOLS, harmless=("none", "auto")),
    "functions": Refusal(_TOOLS, harmless=([],)),
    "modalities": Refusal("this server writes text only", harmless=(["text"],)),
    "moderation": Refusal("moderate the text yourself"),
    "prediction": Refusal("leave it out; the answer is the same"),
    "reasoning_effort": Refusal("leave it out, or ask for it in a message", harmless=("none",)),
    "verbosity": Refusal("leave it out, or ask for it in a message", harmless=("medium",)),
    "web_search_options": Refusal("search yourself and put the results in a message"),
}

REFUSED_STREAM_OPTIONS = {"include_obfuscation": Refusal(harmless=(False,))}

IGNORED_BY_COMPLETIONS = frozenset(
    ("metadata", "safety_identifier", "service_tier", "store", "user")
    + ("prompt_cache_key", "prompt_cache_retention")
)
"""Accepted and without effect, because ignoring them cannot change the answer."""

# A reply is text until it is parsed: there are no calls that could be parallel.
IGNORED_BY_CHAT = IGNORED_BY_COMPLETIONS | {"parallel_tool_calls"}


class UnknownFields:
    """Counts the fields nobody defines, and logs each name once; with `strict`, refuses them.

    Names come from callers, so only the first few hundred are told apart.
    """

    def __init__(self, count: Callable[[str], None], *, strict: bool) -> None:
        self._count = count
        self._strict = strict
        self._seen: set[str] = set()

    def report_others(self, value: Mapping[str, Any], known: frozenset[str], path: str) -> None:
        """Take note of every field of an object that is not among the known ones; `path` is the object's."""
        for name in value:
            if name not in known:
                self.report(f"{path}.{name}")

    def report(self, path: str) -> None:
        """Take note of an unknown field."""
        if self._strict:
            raise InvalidRequestError(
                f"{path} is no known field; check its spelling, or leave it out", param=path
            )
        name = path[:_MAX_NAME_CHARS]
        if name not in self._seen:
            if len(self._seen) >= _MAX_NAMES:
                self._count("(other)")
                return
            self._seen.add(name)
            logger.warning("a request has the unknown field %a; it has no effect (said once per name)", name)
        self._count(name)


class ReportedFields(UnknownFields):
    """Stands in for UnknownFields where a body is read again that was reported on before: takes note of nothing."""

    def __init__(self) -> None:
        super().__init__(lambda _name: None, strict=False)

    def report(self, path: str) -> None:
        """Do nothing."""
