"""Reads the usage objects of the providers, each by its own rule of what includes what.

| Shape | Prompt tokens | The rest |
|---|---|---|
| OpenAI chat, completions | `prompt_tokens` includes cached and written ones | fresh is the difference |
| OpenAI responses | `input_tokens` includes them too | as above |
| Anthropic | `input_tokens` **excludes** read and written ones | the total is the sum |
| Gemini | `promptTokenCount` includes the cached ones, not those of tools | nothing is charged as a write |
| DeepSeek | hit + miss | nothing is charged as a write |
| a recorded trace of a server | `input_length` or `prompt_tokens` includes `cached_tokens` | as OpenAI's |

The name `input_tokens` means two things, so no two shapes share code that reads it.
A field that is absent or null was not reported; it is never taken for 0.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from anaphora.cost.usage import TokenSplit, Usage, UsageShapeError

Object = Mapping[str, Any]
MAX_TOKENS = 10**15
"""More than any log holds: a larger count is a broken one, and no sum of such counts is a number."""

NOTHING_CACHED_SAID = "the provider did not report how many tokens were read from the cache"


class Shape(NamedTuple):
    """A kind of usage object: whose it is, how it is known, and how it is read."""

    name: str
    provider: str
    fits: Callable[[Object], bool]
    read: Callable[[Object], Usage]


def count_field(body: Object, name: str, raw: dict[str, int | None]) -> int | None:
    """Return a number of tokens and note it in `raw`; None when it is absent or null; anything else is an error."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise UsageShapeError(f"{name} is {str(value)[:40]!r}, but must be a whole number from 0 up")
    if value is not None and value > MAX_TOKENS:
        raise UsageShapeError(
            f"{name} is above {MAX_TOKENS:,}, which no request has; is it a number of tokens?"
        )
    if name in body:
        raw[name] = value
    return value


def details_of(body: Object, name: str) -> Object:
    """Return an object inside another; an empty one when it is absent or null."""
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageShapeError(f"{name} is {str(value)[:40]!r}, but must be an object")
    return value


def including(total: int | None, read: int | None, written: int | None) -> TokenSplit | str:
    """Split a total that includes what was read and written, or say why it cannot be."""
    if total is None:
        return "the provider did not report the prompt tokens"
    if read is None:
        return NOTHING_CACHED_SAID
    if read + (written or 0) > total:
        return f"does not add up: {read:,} read and {written or 0:,} written are more than {total:,} in all"
    if written is None:
        return TokenSplit(read=read, fresh_or_written=total - read)
    return TokenSplit(fresh=total - read - written, read=read, write_short=written)


def _usage(
    provider: str,
    outcome: TokenSplit | str,
    output: int | None,
    raw: dict[str, int | None],
    audio: tuple[int, int] = (0, 0),
) -> Usage:
    """Make a usage; `audio` are the tokens of sound in the prompt and in the output."""
    return Usage(
        provider=provider,
        split=outcome if isinstance(outcome, TokenSplit) else None,
        not_said=outcome if isinstance(outcome, str) else None,
        output=output,
        audio=audio[0],
        audio_output=audio[1],
        raw=raw,
    )


def _openai_audio(details: Object, output_details: Object) -> tuple[int, int]:
    heard, spoken = (count_field(each, "audio_tokens", {}) for each in (details, output_details))
    return heard or 0, spoken or 0


def read_openai_chat(body: Object) -> Usage:
    """Read the usage of a chat completion or a completion."""
    raw: dict[str, int | None] = {}
    details = details_of(body, "prompt_tokens_details")
    outcome = including(
        count_field(body, "prompt_tokens", raw),
        count_field(details, "cached_tokens", raw),
        count_field(details, "cache_write_tokens", raw),
    )
    audio = _openai_audio(details, details_of(body, "completion_tokens_details"))
    return _usage("openai", outcome, count_field(body, "completion_tokens", raw), raw, audio)


def read_openai_responses(body: Object) -> Usage:
    """Read the usage of a response of the Responses API."""
    raw: dict[str, int | None] = {}
    details = details_of(body, "input_tokens_details")
    outcome = including(
        count_field(body, "input_tokens", raw),
        count_field(details, "cached_tokens", raw),
        count_field(details, "cache_write_tokens", raw),
    )
    audio = _openai_audio(details, details_of(body, "output_tokens_details"))
    return _usage("openai", outcome, count_field(body, "output_tokens", raw), raw, audio)


def read_anthropic(body: Object) -> Usage:
    """Read the usage of a message."""
    raw: dict[str, int | None] = {}
    rest = count_field(body, "input_tokens", raw)
    read = count_field(body, "cache_read_input_tokens", raw)
    written = count_field(body, "cache_creation_input_tokens", raw)
    lives = details_of(body, "cache_creation")
    short = count_field(lives, "ephemeral_5m_input_tokens", raw)
    long = count_field(lives, "ephemeral_1h_input_tokens", raw)
    outcome = _excluding(rest, read, written, short, long)
    return _usage("anthropic", outcome, count_field(body, "output_tokens", raw), raw)


def _excluding(
    rest: int | None, read: int | None, written: int | None, short: int | None, long: int | None
) -> TokenSplit | str:
    if short is not None and long is not None:
        if written is not None and short + long != written:
            return f"does not add up: {short:,} for 5 m and {long:,} for 1 h are not the {written:,} written"
        written = short + long
    if rest is None:
        return "the provider did not report the uncached rest of the prompt"
    if read is None:
        return NOTHING_CACHED_SAID
    if written is None:
        return "the provider did not report how many tokens were written to the cache"
    if short is not None and long is not None:
        return TokenSplit(fresh=rest, read=read, write_short=short, write_long=long)
    return TokenSplit(fresh=rest, read=read, short_or_long=written)


def read_gemini(body: Object) -> Usage:
    """Read a usageMetadata; its provider has no price for writes, so what was not read is fresh.

    What tools gave the model to read is beside `promptTokenCount`, and is computed.
    """
    body = {GEMINI_NAMES.get(name, name): value for name, value in body.items()}
    raw: dict[str, int | None] = {}
    total = count_field(body, "promptTokenCount", raw)
    read = count_field(body, "cachedContentTokenCount", raw)
    tools = count_field(body, "toolUsePromptTokenCount", raw) or 0
    outcome = including(total, read, 0)
    if isinstance(outcome, TokenSplit):
        outcome += TokenSplit(fresh=tools)
    answer = count_field(body, "candidatesTokenCount", raw)
    thoughts = count_field(body, "thoughtsTokenCount", raw)
    output = None if answer is None else answer + (thoughts or 0)
    heard = _gemini_audio(body, "promptTokensDetails") + _gemini_audio(body, "toolUsePromptTokensDetails")
    spoken = _gemini_audio(body, "candidatesTokensDetails")
    return _usage("gemini", outcome, output, raw, (heard, spoken))


def _gemini_audio(body: Object, name: str) -> int:
    parts = body.get(name)
    if not isinstance(parts, list):
        return 0
    counts = [
        count_field(part, "tokenCount" if "tokenCount" in part else "token_count", {})
        for part in parts
        if isinstance(part, Mapping) and part.get("modality") == "AUDIO"
    ]
    return sum(count or 0 for count in counts)


def read_deepseek(body: Object) -> Usage:
    """Read hits and misses; its provider has no price for writes, so what was not read is fresh."""
    raw: dict[str, int | None] = {}
    hit = count_field(body, "prompt_cache_hit_tokens", raw)
    miss = count_field(body, "prompt_cache_miss_tokens", raw)
    total = count_field(body, "prompt_tokens", raw)
    output = count_field(body, "completion_tokens", raw)
    if total is None and hit is not None and miss is not None:
        total = hit + miss
    outcome = including(total, hit, 0)
    if hit is not None and miss is not None and hit + miss != total:
        outcome = f"does not add up: {hit:,} hit and {miss:,} missed are not the {total:,} in all"
    return _usage("deepseek", outcome, output, raw)


def read_trace(body: Object) -> Usage:
    """Read one line of a server's recorded trace.

    Where one request had several sequences, each has a line; their prompt was one, that of the first.
    """
    raw: dict[str, int | None] = {}
    total = count_field(body, "input_length" if "input_length" in body else "prompt_tokens", raw)
    read = count_field(body, "cached_tokens", raw)
    outcome = including(total, read, count_field(body, "cache_write_tokens", raw))
    if details_of(body, "turn_record").get("fork_of") is not None:
        outcome = TokenSplit()
    names = ("output_length", "completion_tokens", "output_tokens")
    name = next((name for name in names if name in body), names[0])
    return _usage("server", outcome, count_field(body, name, raw), raw)


ANTHROPIC_FIELDS = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"})
GEMINI_NAMES = {  # as its Python client writes them
    "prompt_token_count": "promptTokenCount",
    "cached_content_token_count": "cachedContentTokenCount",
    "tool_use_prompt_token_count": "toolUsePromptTokenCount",
    "candidates_token_count": "candidatesTokenCount",
    "thoughts_token_count": "thoughtsTokenCount",
    "prompt_tokens_details": "promptTokensDetails",
    "tool_use_prompt_tokens_details": "toolUsePromptTokensDetails",
    "candidates_tokens_details": "candidatesTokensDetails",
}
DEEPSEEK_FIELDS = frozenset({"prompt_cache_hit_tokens", "prompt_cache_miss_tokens"})

SHAPES = (
    Shape("DeepSeek", "deepseek", lambda body: bool(DEEPSEEK_FIELDS & body.keys()), read_deepseek),
    Shape(
        "Gemini",
        "gemini",
        lambda body: bool({"promptTokenCount", "prompt_token_count"} & body.keys()),
        read_gemini,
    ),
    Shape(
        "a recorded trace",
        "server",
        lambda body: {"prompt_tokens", "cached_tokens"} <= body.keys() or "input_length" in body,
        read_trace,
    ),
    Shape(
        "OpenAI chat",
        "openai",
        lambda body: "prompt_tokens" in body and not (DEEPSEEK_FIELDS | {"cached_tokens"}) & body.keys(),
        read_openai_chat,
    ),
    Shape(
        "OpenAI responses",
        "openai",
        lambda body: "input_tokens" in body,
        read_openai_responses,
    ),
    Shape(
        "Anthropic",
        "anthropic",
        lambda body: "input_tokens" in body or bool(ANTHROPIC_FIELDS & body.keys()),
        read_anthropic,
    ),
)


OUTPUT_FIELDS = frozenset(
    {"completion_tokens", "output_tokens", "candidatesTokenCount", "thoughtsTokenCount", "output_length"}
)
"""They grow while a response comes; all others that are read are about its prompt."""


def prompt_fields(usage: Usage) -> frozenset[tuple[str, int]]:
    """Return the provider's own fields that are about the prompt, as far as they were reported."""
    said = ((name, value) for name, value in usage.raw.items() if value is not None)
    return frozenset(each for each in said if each[0] not in OUTPUT_FIELDS)


def is_usage(body: Object) -> bool:
    """Whether an object is a usage object of any shape."""
    return any(shape.fits(body) for shape in SHAPES)


def read_usage(body: Object, provider: str | None = None) -> Usage:
    """Return what a usage object says.

    Its fields tell the provider; where they fit several, `provider` decides, and without one it is an error.
    """
    fitting = [shape for shape in SHAPES if shape.fits(body)]
    if not fitting:
        raise UsageShapeError(f"the usage object has no known field; it has: {_names(body)}")
    telling = [shape for shape in fitting if not _is_ruled_out(shape, body)] or fitting
    if len(telling) > 1:
        telling = [shape for shape in telling if provider == shape.provider]
        if not telling:
            names = " or ".join(shape.name for shape in fitting)
            choice = " or ".join(f"--provider {shape.provider}" for shape in fitting)
            raise UsageShapeError(
                f"the usage object may be {names}, which count cached tokens differently; pass {choice}"
            )
    return telling[0].read(body)


def _is_ruled_out(shape: Shape, body: Object) -> bool:
    """`input_tokens` beside fields that only one of its two owners has."""
    if shape.name == "Anthropic":
        return "input_tokens_details" in body and not ANTHROPIC_FIELDS & body.keys()
    if shape.name == "OpenAI responses":
        return bool(ANTHROPIC_FIELDS & body.keys()) and "input_tokens_details" not in body
    return False


def _names(body: Object) -> str:
    names = ", ".join(str(name)[:40] for name in list(body)[:8])
    return names or "none at all"
