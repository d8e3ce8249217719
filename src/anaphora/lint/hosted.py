"""What hosted services cache at least: read from a dated table, and inferred, since the rules are theirs."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostedLimit:
    """The fewest tokens that a service caches for models whose name holds `pattern`."""

    service: str
    pattern: str
    min_tokens: int
    as_of: str


def read_limits(text: str) -> tuple[HostedLimit, ...]:
    """Return the rows of the table, in their order."""
    data = tomllib.loads(text)
    return tuple(HostedLimit(as_of=data["as_of"], **row) for row in data["limit"])


def limit_of(model: str, limits: Sequence[HostedLimit]) -> HostedLimit | None:
    """Return the first row that knows a model, or None."""
    return next((row for row in limits if re.search(row.pattern, model, re.IGNORECASE)), None)
