"""An explanation in the words of OpenAI's and Anthropic's own diagnoses, for the earlier request that a caller named.

Knows the values that the two have published, and sends no others. Finds no causes itself, and what neither has
a word for stays in the explanation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anaphora.explain.bodies import SETTINGS, TEMPLATE_ARGUMENTS
from anaphora.explain.comparison import Comparison, Region
from anaphora.explain.records import Explanation, HitLaw, PromptRecord

Section: TypeAlias = Literal["tools", "system", "messages"]
"""What Anthropic's diagnosis divides a request into; in the order of comparison."""

NotCompared: TypeAlias = Literal["not_found", "unavailable"]
"""The named request is unknown, expired or another tenant's, which is one answer; or it could not be compared."""

SAME_REQUEST_CODES = frozenset(
    {
        "bypassed",
        "too_short",
        "namespace",
        "in_flight",
        "evicted",
        "expired",
        "other_replica",
        "tier_refused",
        "tier_declined",
        "architecture",
    }
)
"""Codes that say what the cache did with a request, not what is other in it: no vendor has a reason for them."""

NOTHING_LOST_CODES = frozenset({"ok_partial", "marker"})
"""Codes that apply although everything was reused that could be."""

CONTENT_CODES = frozenset(
    {
        "special_tokens",
        "client_stamp",
        "user_in_system",
        "volatile_value",
        "tool_order",
        "tool_set",
        "settings",
        "whitespace",
        "unicode",
        "json_order",
        "json_format",
        "template",
        "retokenised",
        "retrieved_docs_reordered",
        "history_dropped",
        "history_edited",
        "history_moved",
        "helper_call",
        "system_edited",
        "never_seen",
    }
)
"""Codes that say what is other in the request."""

_TOOL_CODES = frozenset({"tool_order", "tool_set"})
_SENT_ALIKE = frozenset({"special_tokens", "template", "retokenised"})
"""The caller sent the same here: it counts only where it lost something, and is no change of the tools."""

_SECTIONS: tuple[Section, ...] = ("tools", "system", "messages")
_SETTING_REASONS = {
    "response_format": "text_format_changed",
    "text.format": "text_format_changed",
    "output_config.format": "text_format_changed",
    "reasoning_effort": "reasoning_effort_changed",
    "reasoning.effort": "reasoning_effort_changed",
    "output_config.effort": "reasoning_effort_changed",
    f"{TEMPLATE_ARGUMENTS}.reasoning_effort": "reasoning_effort_changed",
    "verbosity": "verbosity_changed",
    "text.verbosity": "verbosity_changed",
    f"{TEMPLATE_ARGUMENTS}.verbosity": "verbosity_changed",
}
_SUMMARY_WORDS = ("summar", "compact", "condens")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedComparison:
    """An explanation whose compared request the caller named, and what the vendors' words need besides.

    `reusable_tokens` are the leading tokens of the compared prompt that were published in whole blocks.
    `diverged_at` is the first token that differs, `section` what it belongs to in the request; both None where
    nothing differs, and `section` also where it is the template's own text. `setting` is the path of the setting
    behind the code `settings`.
    """

    explanation: Explanation
    block_size: int
    reusable_tokens: int
    diverged_at: int | None = None
    section: Section | None = None
    setting: str | None = None
    is_model_changed: bool = False
    is_summarised: bool = False
    has_key_changed_replica: bool = False

    def __post_init__(self) -> None:
        is_whole = self.reusable_tokens >= 0 and self.reusable_tokens % self.block_size == 0
        assert is_whole, f"{self.reusable_tokens} tokens are no whole blocks of {self.block_size}"

    @property
    def codes(self) -> tuple[str, ...]:
        """All codes of the explanation, the headline first; raises ValueError for one that has no translation."""
        codes = (self.explanation.cause, *self.explanation.also)
        for code in codes:
            if code not in CONTENT_CODES | SAME_REQUEST_CODES | NOTHING_LOST_CODES:
                raise ValueError(
                    f"{code!r} has no translation into the vendors' reasons; add it to {__name__}"
                )
        return codes

    @property
    def content_code(self) -> str | None:
        """The first code that says what is other in the request."""
        return next((code for code in self.codes if code in CONTENT_CODES), None)

    @property
    def missed_tokens(self) -> int:
        """How many of the reusable tokens lie in blocks at or behind the divergence."""
        if self.is_model_changed:
            return self.reusable_tokens
        if self.diverged_at is None:
            return 0
        return max(0, self.reusable_tokens - self.diverged_at // self.block_size * self.block_size)

    @property
    def is_changed(self) -> bool:
        """Whether the caller changed something that has a name, or any change lost what could have been reused."""
        is_named = self.content_code is not None and self.content_code not in _SENT_ALIKE
        return self.is_model_changed or is_named or self.missed_tokens > 0


def named_comparison(
    explanation: Explanation,
    comparison: Comparison,
    law: HitLaw,
    *,
    reusable_tokens: int,
    has_key_changed_replica: bool = False,
) -> NamedComparison:
    """Gather what the vendors' words need from the comparison that the explanation was made of.

    `has_key_changed_replica` says that another `prompt_cache_key` sent the request to another replica.
    """
    codes = {explanation.cause, *explanation.also}
    return NamedComparison(
        explanation=explanation,
        block_size=law.block_size,
        reusable_tokens=reusable_tokens,
        diverged_at=comparison.num_matched if comparison.has_diverged else None,
        section=_section(comparison) if comparison.has_diverged else None,
        setting=_setting(comparison) if "settings" in codes else None,
        is_model_changed=comparison.old.namespace.difference(comparison.new.namespace)
        in {"model", "adapter"},
        is_summarised=_is_summarised(comparison),
        has_key_changed_replica=has_key_changed_replica,
    )


def openai_diagnostics(found: NamedComparison | NotCompared) -> dict[str, Any]:
    """Return the value of `prompt_cache_diagnostics`."""
    if isinstance(found, str):
        return {"type": _one_of(found, "comparison_response_not_found")}
    if (is_key := _is_key_changed(found)) or found.is_changed:
        reused = min(found.reusable_tokens, found.explanation.reused_tokens)
        return {
            "type": "cache_miss",
            "reason": "prompt_cache_key_changed" if is_key else _openai_reason(found),
            "cache_missed_tokens": found.reusable_tokens - reused if is_key else found.missed_tokens,
            "comparison_reusable_tokens": found.reusable_tokens,
        }
    # The request is the same. Where the cache missed it anyway, each reason would be a lie, and a hit too.
    is_hit = SAME_REQUEST_CODES.isdisjoint(found.codes) and found.explanation.reused_tokens > 0
    return {"type": "cache_hit" if is_hit else "unavailable"}


def anthropic_diagnostics(found: NamedComparison | NotCompared | None) -> dict[str, Any] | None:
    """Return the value of `diagnostics`; None, on the wire null, for a first turn and where nothing differs."""
    if isinstance(found, str):
        return {"cache_miss_reason": {"type": _one_of(found, "previous_message_not_found")}}
    if found is None or not found.is_changed:
        return None
    reason = _anthropic_reason(found)
    if reason == "unavailable":
        return {"cache_miss_reason": {"type": reason}}
    return {"cache_miss_reason": {"type": reason, "cache_missed_input_tokens": found.missed_tokens}}


# ---------------------------------------------------------------------------------------------------------------------
# The words


def _one_of(found: NotCompared, not_found: str) -> str:
    names = {"not_found": not_found, "unavailable": "unavailable"}
    if found not in names:
        raise ValueError(f"{found!r} is no outcome of a comparison; it is one of {', '.join(names)}")
    return names[found]


def _is_key_changed(found: NamedComparison) -> bool:
    is_elsewhere = "other_replica" in found.codes and found.has_key_changed_replica
    return is_elsewhere and not found.is_model_changed


def _openai_reason(found: NamedComparison) -> str:
    code = found.content_code
    if found.is_model_changed:
        return "model_changed"
    if code == "settings":
        return _setting_reason(found.setting)
    if code == "history_dropped" or (code == "history_edited" and found.is_summarised):
        return "context_compacted"
    if code in _TOOL_CODES or (found.section == "tools" and code not in _SENT_ALIKE):
        return "tools_changed"
    return "input_changed"


def _setting_reason(setting: str | None) -> str:
    name = (setting or "").partition(".")[0]
    if name not in {*SETTINGS, TEMPLATE_ARGUMENTS}:
        raise ValueError(f"{setting!r} is no setting that a template renders; add it to SETTINGS")
    for path, reason in _SETTING_REASONS.items():
        if setting == path or str(setting).startswith(path + "."):
            return reason
    return "input_changed"  # such as documents: there is no reason of their own, and the input differs


def _anthropic_reason(found: NamedComparison) -> str:
    if found.is_model_changed:
        return "model_changed"
    if found.content_code in _TOOL_CODES:
        return "tools_changed"
    if found.content_code == "settings" and found.section is None:
        return "unavailable"  # as the vendor answers where only another parameter differs
    return f"{found.section or 'messages'}_changed"


# ---------------------------------------------------------------------------------------------------------------------
# What they need from a comparison


def _section(c: Comparison) -> Section | None:
    """What the divergence belongs to: where the two sides disagree, what comes first in a request."""
    sides = (_section_of(c.old, c.old_region()), _section_of(c.new, c.new_region()))
    return next((section for section in _SECTIONS if section in sides), None)


def _section_of(record: PromptRecord, region: Region) -> Section | None:
    if region.name == "tools":
        return "tools"
    if region.message is None:
        return None
    # A system text behind the first turn is a message among others.
    return "system" if all(map(record.body.is_system, range(region.message + 1))) else "messages"


def _setting(c: Comparison) -> str | None:
    """The first setting that changed the prompt, and where it is an object, which field of it."""
    path = next(iter(c.changed_settings), None)
    if path is None or "." in path:
        return path
    old, new = (record.body.settings.get(path) for record in (c.old, c.new))
    if not isinstance(old or {}, Mapping) or not isinstance(new or {}, Mapping):
        return path
    before, after = dict(old or {}), dict(new or {})
    changed = [key for key in {**after, **before} if before.get(key) != after.get(key)]
    return f"{path}.{changed[0]}" if changed else path


def _is_summarised(c: Comparison) -> bool:
    """Whether the text that was put in place calls itself a summary."""
    if c.pair is None:
        return False
    old, new = (sum(map(text.lower().count, _SUMMARY_WORDS)) for text in (c.pair.old, c.pair.new))
    return new > old
