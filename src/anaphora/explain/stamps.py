"""How a client's stamp looks: a header line that some clients put before the system text, with an id in it that
changes with each request.
"""

import re
from typing import NamedTuple

_STAMP = re.compile(
    r"^(?:x-anthropic-billing-header:.*|[\w-]+: .*\b(?:cch|req(?:uest)?|trace)[-_]?(?:id)?=.*)$",
    re.MULTILINE | re.IGNORECASE,
)


class LeadingStamps(NamedTuple):
    """The stamps at the beginning of a text: the names of the headers, and where the text behind them begins."""

    names: tuple[str, ...]
    end: int


def stamp_at(text: str, offset: int) -> str | None:
    """Return the line that holds a character if it is a stamp."""
    return next((m[0] for m in _STAMP.finditer(text) if m.start() <= offset <= m.end()), None)


def leading_stamps(text: str) -> LeadingStamps:
    """Return the lines at the beginning of a text that are stamps; each takes its line end along."""
    names, end = [], 0
    while match := _STAMP.match(text, end):
        names.append(match[0].partition(":")[0])
        end = match.end() + text.startswith("\n", match.end())
    return LeadingStamps(tuple(names), end)
