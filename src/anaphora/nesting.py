"""How deeply JSON may be nested: values are compared and written by functions that call themselves at each level.

Knows nothing of requests; what is deeper is refused where it comes in, or taken for a text that is no JSON.
"""

import json
from collections.abc import Mapping
from typing import Any

_DECODER = json.JSONDecoder()
MAX_DEPTH = 200
"""Levels of lists and objects: several calls a level, and the stack of a thread has a thousand."""


def is_deeper(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether a value has more levels of lists and objects than the limit; looks no deeper than that."""
    if isinstance(value, Mapping):
        return not limit or any(is_deeper(item, limit - 1) for item in value.values())
    if isinstance(value, list | tuple):
        return not limit or any(is_deeper(item, limit - 1) for item in value)
    return False


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises ValueError for what is none, and for what is nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise _too_deep() from None
    if is_deeper(value):
        raise _too_deep()
    return value


def parse_json_part(text: str, start: int) -> tuple[Any, int]:
    """Return the value that begins at a place of a text, and where it ends; raises ValueError as `parse_json` does."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except RecursionError:
        raise _too_deep() from None
    if is_deeper(value):
        raise _too_deep()
    return value, end


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {MAX_DEPTH} levels; use fewer")
