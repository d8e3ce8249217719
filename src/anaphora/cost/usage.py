"""What one request used, in the four classes that every provider's numbers are brought to.

Knows no provider: `shapes.py` reads their fields, each by its own rule.
"""

from dataclasses import dataclass, field

PROVIDERS = ("openai", "anthropic", "gemini", "deepseek", "server")
"""Whose rule holds; `server` is a server of one's own, by its metrics or its recorded trace."""

CLASSES = ("fresh", "read", "write_short", "write_long")
"""Computed and not kept; served from the cache; computed and kept, for a short time; the same, for a long one."""


class UsageShapeError(ValueError):
    """A line of a log does not hold what it must; the message is one line for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSplit:
    """Prompt tokens by class, and those whose class was not reported.

    `fresh_or_written` were computed, and whether they were also kept was not reported; `short_or_long` were
    kept, and for how long was not reported. A class to which one of these may belong is a lower bound.
    """

    fresh: int = 0
    read: int = 0
    write_short: int = 0
    write_long: int = 0
    fresh_or_written: int = 0
    short_or_long: int = 0

    @property
    def total(self) -> int:
        """All prompt tokens."""
        return (
            self.fresh
            + self.read
            + self.write_short
            + self.write_long
            + self.fresh_or_written
            + self.short_or_long
        )

    @property
    def is_complete(self) -> bool:
        """Whether every token has one of the four classes."""
        return not (self.fresh_or_written or self.short_or_long)

    def exact(self, name: str) -> int | None:
        """The tokens of a class, or None when tokens that nobody classed may belong to it."""
        may_have_more = {
            "fresh": self.fresh_or_written,
            "read": 0,
            "write_short": self.fresh_or_written + self.short_or_long,
            "write_long": self.short_or_long,
        }
        value: int = getattr(self, name)
        return None if may_have_more[name] else value

    def __add__(self, other: "TokenSplit") -> "TokenSplit":
        return TokenSplit(
            fresh=self.fresh + other.fresh,
            read=self.read + other.read,
            write_short=self.write_short + other.write_short,
            write_long=self.write_long + other.write_long,
            fresh_or_written=self.fresh_or_written + other.fresh_or_written,
            short_or_long=self.short_or_long + other.short_or_long,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One request: either a split of its prompt, or the reason why there is none.

    `output` is None when it was not reported. `audio` and `audio_output` are the tokens of sound in the prompt and
    in the output, which have prices of their own. `raw` holds the provider's own fields.
    """

    provider: str
    split: TokenSplit | None = None
    not_said: str | None = None
    output: int | None = None
    audio: int = 0
    audio_output: int = 0
    raw: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert (self.split is None) != (self.not_said is None), f"a split or a reason, not {self}"
