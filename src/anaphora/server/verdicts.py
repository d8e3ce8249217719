"""/v1/cache/requests and /v1/cache/probe: what the cache did for a tenant's requests, and what it would do now."""

from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import Response

from anaphora.errors import InvalidRequestError
from anaphora.explain.history import Remembered, Scope
from anaphora.server.bodies import ProbeBody
from anaphora.server.explainer import Explainer
from anaphora.server.logprobs import Json
from anaphora.server.serving import Serving
from anaphora.server.tenants import check_cache_salt
from anaphora.server.validation import show
from anaphora.server.wire_errors import json_response

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000


class VerdictEndpoints:
    """Verdicts of the caller's own requests; another tenant's look like unknown ones."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def _explainer(self) -> Explainer:
        if self._serving.explainer is None:
            raise InvalidRequestError(
                "this server was started with --explain-requests 0 and remembers no request; start it without that flag"
            )
        return self._serving.explainer

    async def list_requests(self, request: Request) -> Response:
        """Answer with the latest requests, the latest first, and how long requests are remembered."""
        explainer = self._explainer()
        limit = _limit(request)
        found = await explainer.requests(request.state.tenant_salt, limit)
        data = [_summary(remembered) for remembered in found]
        return json_response({"object": "list", "data": data, "limits": dict(explainer.limits)})

    async def show_request(self, request: Request) -> Response:
        """Answer with the explanation of one request, compared with another one if `against` names it."""
        found = await self._explainer().explanation(
            request.path_params["request_id"],
            request.state.tenant_salt,
            request.query_params.get("against"),
        )
        return json_response(found.as_json())

    async def probe(self, request: Request) -> Response:
        """Answer with how much of a prompt is cached now; computes nothing and changes nothing."""
        body = await self._serving.read(request, ProbeBody)
        cache_salt = check_cache_salt(body.cache_salt)
        scope = Scope(request.state.tenant_salt, cache_salt)
        prompt = await self._serving.read_prompt(
            body, scope, add_generation_prompt=body.add_generation_prompt
        )
        found = await self._serving.engine.probe(prompt.token_ids, request.state.tenant_salt, cache_salt)
        return json_response(
            {
                "object": "cache.probe",
                "prompt_tokens": len(prompt.token_ids),
                "cached_tokens": found.cached_tokens,
                "best_possible_reuse": found.best_possible_reuse,
                "block_size": found.block_size,
            }
        )


def _limit(request: Request) -> int:
    given = request.query_params.get("limit", str(DEFAULT_LIMIT))
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:9]) <= MAX_LIMIT or len(given) > 9:
        raise InvalidRequestError(
            f"limit is {show(given)}, but must be a whole number from 1 to {MAX_LIMIT}", param="limit"
        )
    return int(given)


def _summary(remembered: Remembered) -> Json:
    """Return the part of a verdict that needs no text."""
    note = remembered.note
    created = datetime.fromtimestamp(remembered.wall_time, UTC)
    return {
        "request_id": remembered.request_id,
        "object": "cache.request",
        "created": int(created.timestamp()),
        "created_at": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "prompt_tokens": remembered.admitted.num_prompt_tokens,
        "reused_tokens": remembered.admitted.cached_tokens,
        "reused": {"memory": remembered.admitted.cached_tokens},
        "reuse_stopped_at": remembered.stopped_at and remembered.stopped_at._asdict(),
        "cause": note and note.cause,
        "path": note and note.path,
        "tokens_lost": note and note.tokens_lost,
        "uncached": dict(note.uncached) if note else {},
        "compared_with": note and note.compared_with,
        "certainty": note and note.certainty,
    }
