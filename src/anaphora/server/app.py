"""The ASGI application: routes, who may use them, request ids, and errors in the API's shape."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from anaphora.config import HelperConfig, ServerConfig, check_helpers
from anaphora.engine.protocols import EngineClient
from anaphora.server.admin import AdminEndpoints
from anaphora.server.continuation import Continuation
from anaphora.server.explainer import Explainer
from anaphora.server.fields import UnknownFields
from anaphora.server.openai import OpenAIEndpoints
from anaphora.server.pinning import PinEndpoint
from anaphora.server.prompts import ChatRenderer, TextLimit
from anaphora.server.serving import Serving
from anaphora.server.tenants import Gate, Tenants
from anaphora.server.tokenization import TokenizationEndpoints
from anaphora.server.verdicts import VerdictEndpoints
from anaphora.server.wire_errors import answer_http_exception, error_response, log_if_ours

_SANE_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")


def create_app(
    engine: EngineClient,
    config: ServerConfig,
    *,
    served_models: Sequence[str],
    renderer: ChatRenderer | None,
    default_sampling: Mapping[str, Any] | None = None,
    has_priorities: bool = False,
    count_unknown_field: Callable[[str], None] = lambda _name: None,
    count_unplaced_mark: Callable[[], None] = lambda: None,
    strict_fields: bool = False,
    explainer: Explainer | None = None,
    helpers: HelperConfig | None = None,
    lifespan: Lifespan[Starlette] | None = None,
) -> Starlette:
    """Return the HTTP server of an engine, without a socket.

    `default_sampling` holds where a request says nothing. `has_priorities` says whether the engine heeds those of
    requests. `count_unknown_field` is told the name of each field that nobody defines, as often as it comes;
    `strict_fields` refuses such fields. `count_unplaced_mark` is told of each `cache_control` that has no effect
    because its place in the prompt is unknown. `explainer` says why prompts were not reused. `helpers` says what may
    be changed in a chat; ConfigError if that takes earlier requests, and none is remembered.
    `app.state.stopping.set()` ends every request that is still being answered with an error.
    """
    helpers = helpers or HelperConfig()
    serving = Serving(
        engine=engine,
        config=config,
        served_models=served_models,
        renderer=renderer,
        default_sampling=default_sampling or {},
        text_limit=TextLimit.of(engine.tokenizer, engine.max_model_len),
        unknown_fields=UnknownFields(count_unknown_field, strict=strict_fields),
        has_priorities=has_priorities,
        count_unplaced_mark=count_unplaced_mark,
        explainer=explainer,
        helpers=helpers,
        continuation=_continuation(helpers, engine, explainer),
    )
    app = Starlette(
        routes=_routes(serving, Tenants(config)),
        middleware=[Middleware(RequestIds)],
        exception_handlers={HTTPException: answer_http_exception},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # a redirect is no answer an API client expects
    app.state.stopping = serving.stopping
    return app


def _continuation(
    helpers: HelperConfig, engine: EngineClient, explainer: Explainer | None
) -> Continuation | None:
    """Return what goes on from earlier requests, None if nobody asks for it."""
    limits = {} if explainer is None else explainer.limits
    check_helpers(
        helpers, num_requests=int(limits.get("max_requests", 0)), num_bytes=int(limits.get("max_bytes", 0))
    )
    if explainer is None or not helpers.needs_history:
        return None
    return Continuation(helpers, engine.tokenizer, explainer, engine.max_model_len)


def _routes(serving: Serving, tenants: Tenants) -> list[Route]:
    openai, tokenization, admin = (
        OpenAIEndpoints(serving),
        TokenizationEndpoints(serving),
        AdminEndpoints(serving),
    )
    verdicts = VerdictEndpoints(serving)
    callers = [Middleware(Gate, admit=tenants.admit)]
    admins = [Middleware(Gate, admit=tenants.admit_admin)]
    pinners = [Middleware(Gate, admit=tenants.admit_pinner)]
    return [
        Route("/v1/completions", openai.complete, methods=["POST"], middleware=callers),
        Route("/v1/chat/completions", openai.chat, methods=["POST"], middleware=callers),
        Route("/v1/models", openai.list_models, middleware=callers),
        Route("/v1/models/{model_id:path}", openai.show_model, middleware=callers),
        Route("/tokenize", tokenization.tokenize, methods=["POST"], middleware=callers),
        Route("/detokenize", tokenization.detokenize, methods=["POST"], middleware=callers),
        Route("/v1/cache/requests", verdicts.list_requests, middleware=callers),
        Route("/v1/cache/requests/{request_id:path}", verdicts.show_request, middleware=callers),
        Route("/v1/cache/probe", verdicts.probe, methods=["POST"], middleware=callers),
        Route("/v1/cache/pin", PinEndpoint(serving).pin, methods=["POST"], middleware=pinners),
        Route("/reset_prefix_cache", admin.reset_prefix_cache, methods=["POST"], middleware=admins),
        Route("/flush_cache", admin.reset_prefix_cache, methods=["POST"], middleware=admins),
        Route("/health", admin.health),
        Route("/ping", admin.health, methods=["GET", "POST"]),
        Route("/metrics", admin.metrics),
        Route("/version", admin.version),
    ]


class RequestIds:
    """Outermost middleware: gives each request its id, and turns every error into an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and its answer back, with the id in the head."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope))
        scope.setdefault("state", {})["request_id"] = request_id
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            pass  # nobody is left to answer
        except Exception as error:
            log_if_ours(error, request_id)
            if has_started:
                raise  # so that the connection is cut, and no client takes a part for the whole
            await error_response(error)(scope, receive, send_with_id)


def _request_id(headers: Headers) -> str:
    """Return the client's own id if it can safely be logged and sent back, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _SANE_REQUEST_ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
