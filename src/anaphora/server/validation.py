"""Bytes of a body to checked values, and the words of what is wrong with them.

Knows no endpoint: which fields exist is said by the model it is handed.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request

from anaphora.errors import BodyTooLargeError, InvalidRequestError
from anaphora.nesting import MAX_DEPTH, is_deeper

_MAX_SHOWN_CHARS = 60
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

_ALLOWED = {
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "dict_type": "an object",
}


def show(value: object) -> str:
    """Return a short picture of a JSON value for an error message."""
    if isinstance(value, list | dict):
        kind = "a list" if isinstance(value, list) else "an object"
        return f"{kind} of {len(value)}" if value else f"{kind} without entries"
    text = json.dumps(value, default=repr)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."


def wrong(path: str, value: object, allowed: str) -> InvalidRequestError:
    """Return the error for a field with a wrong type or value."""
    return InvalidRequestError(f"{path} is {show(value)}, but must be {allowed}", param=path)


def join(path: str, name: str) -> str:
    """Return the path of a field below another; an empty path is the body itself."""
    return f"{path}.{name}" if path else name


async def read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """Return the JSON object in a request's body, whatever its content type says."""
    return _decode(await _read_body(request, max_bytes))


async def _read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body; one that is too large is refused as soon as that is known, not after it was read."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise InvalidRequestError(
            f"the body's content-encoding is {show(encoding)}, but must be identity; send it as it is"
        )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(f"{int(declared)} bytes", max_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(f"more than {max_bytes} bytes", max_bytes)
    return bytes(body)


def _too_large(size: str, max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"the body has {size}, the limit is {max_bytes}; send less, or raise --max-body-bytes"
    )


def _decode(body: bytes) -> dict[str, Any]:
    if not body.strip():
        raise InvalidRequestError("the body is empty, but must be a JSON object")
    payload = _parse(body)
    if not isinstance(payload, dict):
        raise InvalidRequestError(f"the body is {show(payload)}, but must be a JSON object")
    return payload


def _parse(body: bytes) -> Any:
    # UnicodeDecodeError and JSONDecodeError are kinds of ValueError: the order matters.
    try:
        payload = json.loads(body.decode(), parse_constant=_refuse_constant)
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH and is_deeper(payload):
            raise RecursionError
        if _SURROGATE_ESCAPE.search(body):
            _refuse_surrogates(payload)
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"the body is not valid UTF-8: byte {error.object[error.start]:#04x} at position {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidRequestError(
            f"the body is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequestError(
            f"the body is nested deeper than {MAX_DEPTH} levels; use fewer levels of lists and objects"
        ) from None
    except ValueError:
        raise InvalidRequestError(
            "the body holds an integer of thousands of digits; use a smaller one"
        ) from None
    return payload


def _refuse_constant(name: str) -> None:
    raise InvalidRequestError(f"the body is not valid JSON: it holds {name}; numbers must be finite")


def _refuse_surrogates(payload: Any) -> None:
    """Refuse half a character: it has no UTF-8 form, so no tokenizer can take it."""
    try:
        json.dumps(payload, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(
            f"a text in the body holds the lone surrogate {error.object[error.start]!a}, which is half a character; "
            "send the whole one"
        ) from None


def explain(error: ValidationError, prefix: str) -> InvalidRequestError:
    """Return the first complaint of pydantic in our words."""
    first = error.errors(include_url=False)[0]
    path = prefix
    for step in first["loc"]:
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, step)
    if first["type"] == "missing":
        return InvalidRequestError(f"{path} is missing; this endpoint needs it", param=path)
    return wrong(path, first["input"], _allowed(first["type"], first.get("ctx", {}), first["msg"]))


def _allowed(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind == "greater_than_equal":
        return f"at least {context['ge']}"
    if kind == "less_than_equal":
        return f"at most {context['le']}"
    return _ALLOWED.get(kind, f"something else: {message}")
