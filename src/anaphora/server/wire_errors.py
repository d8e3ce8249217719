"""Which HTTP status and body each error becomes.

Knows the OpenAI error shape only; raises nothing and logs only what is our own fault.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anaphora.errors import (
    AuthenticationError,
    BodyTooLargeError,
    ConflictError,
    EngineDeadError,
    EngineError,
    MethodNotAllowedError,
    PermissionDeniedError,
    RequestError,
    ShuttingDownError,
    UnknownModelError,
    UnknownRequestError,
    UnknownRouteError,
)

logger = logging.getLogger(__name__)

# The first class that fits decides.
_KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (AuthenticationError, 401, "authentication_error"),
    (PermissionDeniedError, 403, "permission_error"),
    (UnknownModelError, 404, "not_found_error"),
    (UnknownRouteError, 404, "not_found_error"),
    (UnknownRequestError, 404, "not_found_error"),
    (MethodNotAllowedError, 405, "invalid_request_error"),
    (ConflictError, 409, "conflict_error"),
    (BodyTooLargeError, 413, "invalid_request_error"),
    (RequestError, 400, "invalid_request_error"),
    # Another replica, or this one after a restart, can answer: 503 tells routers so.
    (EngineDeadError, 503, "server_error"),
    (ShuttingDownError, 503, "server_error"),
    (Exception, 500, "server_error"),
)


def dump_json(value: Any) -> bytes:
    """Return compact JSON in ASCII: no reader can stumble over U+2028 in a frame or a lone surrogate."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an ordinary JSON answer."""
    return Response(dump_json(content), status, headers, media_type="application/json")


def status_of(error: Exception) -> int:
    """The HTTP status of an error."""
    return _kind_of(error)[0]


def error_body(error: Exception) -> dict[str, Any]:
    """Return the body of an error."""
    param, code = (error.param, error.code) if isinstance(error, RequestError) else (None, None)
    return {"error": {"message": _message(error), "type": _kind_of(error)[1], "param": param, "code": code}}


def _message(error: Exception) -> str:
    # What the engine says of its own failures may hold tokens of other tenants: only the log may have it.
    if isinstance(error, RequestError | ShuttingDownError):
        return str(error)
    if isinstance(error, EngineDeadError):
        return "the engine has stopped and the server must be restarted; its log has the details"
    return "internal error; the server's log has the details"


def error_response(error: Exception) -> Response:
    """Return the answer to a request that failed before anything was sent."""
    headers = {"www-authenticate": "Bearer"} if isinstance(error, AuthenticationError) else None
    return json_response(error_body(error), status_of(error), headers)


def log_if_ours(error: Exception, request_id: str) -> None:
    """Write our own faults to the log: one line for those we foresaw, a traceback for the others."""
    if isinstance(error, EngineError):
        logger.error("request %s failed: %s", request_id, error)
    elif not isinstance(error, RequestError):
        logger.error("request %s failed", request_id, exc_info=error)


async def answer_http_exception(request: Request, error: Exception) -> Response:
    """Put what Starlette's router raises (404, 405) in our shape."""
    assert isinstance(error, HTTPException)  # noqa: S101 - Starlette calls it for this class only
    if error.status_code == 404:
        return error_response(
            UnknownRouteError(f"there is no path {request.url.path}; see the API page for those there are")
        )
    if error.status_code == 405:
        return _method_not_allowed(request, error)
    return json_response(error_body(RequestError(error.detail)), error.status_code, error.headers)


def _method_not_allowed(request: Request, error: HTTPException) -> Response:
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    response = error_response(
        MethodNotAllowedError(
            f"{request.url.path} does not answer to {request.method}, but to {allowed}; use that verb"
        )
    )
    response.headers["allow"] = allowed
    return response


def _kind_of(error: Exception) -> tuple[int, str]:
    return next((status, type_) for kind, status, type_ in _KINDS if isinstance(error, kind))
