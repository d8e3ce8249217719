"""Questions to a running server, for commands that need one answer."""

import os
from collections.abc import Mapping
from typing import Any

import httpx

from anaphora.bench.client import bearer
from anaphora.errors import ServerCallError

API_KEY_VARIABLE = "ANAPHORA_API_KEY"
DEFAULT_BASE_URL = "http://127.0.0.1:8000"
_TIMEOUT_S = 60.0
_SHOWN_CHARS = 300


def get_json(
    base_url: str, path: str, *, api_key: str | None = None, params: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object at a path of a server; `base_url` may end in /v1.

    The key is `api_key`, else that of the environment. Raises ServerCallError, with the server's own words if it
    has any, or ConfigError for a key that cannot be sent.
    """
    url = base_url.rstrip("/").removesuffix("/v1") + path
    headers = bearer(api_key or os.environ.get(API_KEY_VARIABLE))
    try:
        response = httpx.get(url, params=params, headers=headers, timeout=_TIMEOUT_S)
    except httpx.InvalidURL as error:
        raise ServerCallError(
            f"{base_url!r} is no URL: {error}; give one such as {DEFAULT_BASE_URL}"
        ) from error
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        raise ServerCallError(
            f"no answer from {url}: {words}; is the server running, and is --base-url right?"
        ) from error
    try:
        answer = response.json()
    except ValueError as error:
        raise ServerCallError(
            f"{url} answered {response.status_code} with no JSON: {response.text[:_SHOWN_CHARS]!r}; "
            "is this an Anaphora server?"
        ) from error
    if response.is_error or not isinstance(answer, dict):
        raise ServerCallError(f"{url} answered {response.status_code}: {_words(answer)}")
    return answer


def _words(answer: Any) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return str(message if message is not None else answer)[:_SHOWN_CHARS]
