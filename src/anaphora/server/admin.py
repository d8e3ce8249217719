"""The endpoints for operators: is it up, what does it count, forget the cache."""

from importlib.metadata import PackageNotFoundError, version

from starlette.requests import Request
from starlette.responses import Response

from anaphora.errors import EngineDeadError, InvalidRequestError
from anaphora.metrics.exposition import CONTENT_TYPE
from anaphora.server.serving import Serving
from anaphora.server.validation import show
from anaphora.server.wire_errors import error_response, json_response

_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off", ""}


class AdminEndpoints:
    """/health, /metrics, /version and /reset_prefix_cache."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def health(self, request: Request) -> Response:
        """Answer 200 only while the engine can step."""
        if self._serving.engine.failure is not None:
            return error_response(EngineDeadError(self._serving.engine.failure))
        return json_response({"status": "ok", "tenant_isolation": bool(self._serving.config.api_keys)})

    async def metrics(self, request: Request) -> Response:
        """Answer in the Prometheus text format."""
        if self._serving.explainer is not None:
            await self._serving.explainer.settle()  # so that the causes of misses add up to the misses
        text = self._serving.engine.metrics_text()
        return Response(text, media_type=CONTENT_TYPE)

    async def version(self, request: Request) -> Response:
        """Answer with our name and version."""
        return json_response({"name": "anaphora", "version": _version()})

    async def reset_prefix_cache(self, request: Request) -> Response:
        """Forget all cached blocks, or answer 409 with nothing changed while requests hold some."""
        reset_running_requests = _flag(request, "reset_running_requests")
        _flag(request, "reset_external")  # every tier is cleared anyway
        if await self._serving.engine.reset_prefix_cache(reset_running_requests=reset_running_requests):
            return json_response({"success": True})
        reason = (
            "requests that are running hold blocks of the cache; nothing was cleared: "
            "wait for them, or add ?reset_running_requests=true"
        )
        return json_response({"success": False, "reason": reason}, 409)


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "").lower()
    if value not in _TRUE | _FALSE:
        raise InvalidRequestError(f"{name} is {show(value)}, but must be true or false", param=name)
    return value in _TRUE


def _version() -> str:
    try:
        return version("anaphora")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"
