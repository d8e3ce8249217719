"""Finds out what a server is and offers, with as few requests as that takes.

Sends one probe of a few tokens, which doubles as the first warm-up. Raises TargetError in one line for people.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from anaphora.bench.client import again, bearer, post, request_body, stream, total_s
from anaphora.bench.counters import Reading, read_counters
from anaphora.bench.frames import count_of, error_text
from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.target import Access, Api, Target, Tokenize
from anaphora.errors import TargetError

_USAGE = {"stream_options": {"include_usage": True}}
_EXTRAS: tuple[dict[str, Any], ...] = (_USAGE | {"ignore_eos": True}, _USAGE, {})
_PROBE = Prompt(text="Hello", num_tokens=1)
_IDS = {"return_token_ids": True}
_KEY_REFUSED = ("status 401", "status 403")
_REFUSED = ("status 400", "status 404", "status 405", "status 422", "status 501")


async def connect(http: httpx.AsyncClient, access: Access) -> Target:
    """Return the server's facts, its cache reset where it allows that."""
    listed = await _list_models(http, access)
    model = _choose(tuple(listed), access)
    facts = listed.get(model, {})
    version = await _get_json(http, "/version") or {}
    props = await _get_json(http, "/props") or {}
    reading = await read_metrics(http)
    target = Target(
        root=access.shown_root,
        model=model,
        models=tuple(listed),
        name=str(version.get("name") or facts.get("owned_by") or "unknown"),
        version=version.get("version") or props.get("build_info"),
        api="completions",
        extra={},
        max_model_len=_context_of(facts, props),
        has_metrics=reading is not None,
        reset=await _reset(http, access) if access.may_reset else "not tried (--no-reset)",
    )
    target = await _probe(http, _with_block_size(target, access, reading), access)
    return replace(
        target,
        tokenize=await _tokenize_shape(http, target),
        gives_token_ids=await _gives_token_ids(http, target, access),
    )


async def read_metrics(http: httpx.AsyncClient) -> Reading | None:
    """Return the server's counters, or None where it shows none."""
    try:
        response = await again(lambda: http.get("/metrics"), total_s(http))
    except httpx.HTTPError:
        return None
    return read_counters(response.text) if response.status_code == 200 else None


async def _list_models(http: httpx.AsyncClient, access: Access) -> dict[str, dict[str, Any]]:
    """Return what the server says of each model, by name."""
    try:
        response = await again(lambda: http.get("/v1/models"), total_s(http))
    except httpx.HTTPError as error:
        raise TargetError(
            f"no server answers at {access.shown_root} ({error or type(error).__name__}); start it, or check --base-url"
        ) from error
    if response.status_code in {401, 403}:
        raise TargetError(
            f"{access.shown_root} refuses the API key (status {response.status_code}); give one with --api-key"
        )
    body = _json_of(response)
    data = body.get("data") if response.status_code == 200 and isinstance(body, dict) else None
    listed = [
        entry
        for entry in (data if isinstance(data, list) else ())
        if isinstance(entry, dict) and "id" in entry
    ]
    if not listed and access.model is None:
        said = f"status {response.status_code}: {_why(body) or response.text[:120] or 'nothing'}"
        raise TargetError(
            f"{access.shown_root}/v1/models names no model ({said}); check --base-url, or name the model with --model"
        )
    return {str(entry["id"]): entry for entry in listed}


def _choose(models: tuple[str, ...], access: Access) -> str:
    if access.model is None:
        return models[0]
    if models and access.model not in models:
        raise TargetError(
            f"{access.shown_root} serves no model {access.model!r}; "
            f"it serves {', '.join(models[:8])}: choose one of them"
        )
    return access.model


def _context_of(model: dict[str, Any], props: dict[str, Any]) -> int | None:
    places = (
        (model, "max_model_len"),
        (props.get("default_generation_settings"), "n_ctx"),
        (model.get("meta"), "n_ctx_train"),
    )
    return next((known for place, name in places if (known := count_of(place, name))), None)


def _with_block_size(target: Target, access: Access, reading: Reading | None) -> Target:
    if access.block_size is not None:
        told = reading.block_size if reading else None
        source = (
            "--block-size" if told in {None, access.block_size} else f"--block-size; /metrics says {told}"
        )
        return replace(target, block_size=access.block_size, block_size_from=source)
    if reading is not None and reading.block_size:
        return replace(target, block_size=reading.block_size, block_size_from="/metrics")
    return target


async def _reset(http: httpx.AsyncClient, access: Access) -> str:
    """Return `yes`, `no (why)` or `unsupported`; what counts is what the body says."""
    headers = bearer(access.admin_api_key or access.api_key)
    for path in ("/reset_prefix_cache", "/flush_cache"):
        try:
            response = await again(partial(http.post, path, headers=headers), total_s(http))
        except httpx.HTTPError as error:
            return f"no ({error or type(error).__name__})"
        if response.status_code in {404, 405, 501}:
            continue
        body = _json_of(response)
        if response.status_code == 200 and "html" in response.headers.get("content-type", ""):
            continue  # a page for people, which some servers give for any path
        is_reset = not isinstance(body, dict) or body.get("success", True) is True
        if response.status_code == 200 and is_reset:
            return "yes"
        return f"no (status {response.status_code}: {_why(body) or response.text[:120]})"
    return "unsupported"


def _why(body: Any) -> str:
    if not isinstance(body, dict):
        return ""
    return str(body.get("reason") or error_text(body))


async def _probe(http: httpx.AsyncClient, target: Target, access: Access) -> Target:
    """Return the target with the API and the optional fields that it takes."""
    apis: tuple[Api, ...] = ("completions", "chat") if access.api == "auto" else (access.api,)
    answer: Answer | None = None
    for api in apis:
        for extra in _EXTRAS:
            tried = replace(target, api=api, extra=extra)
            answer = await _ask(http, tried, access)
            if answer.failure is None:
                return replace(tried, num_around=max(0, (answer.prompt_tokens or 0) - _PROBE.num_tokens))
            if not answer.failure.startswith(_REFUSED):
                raise _useless(access, target, answer)
    raise _useless(access, target, answer)


def _useless(access: Access, target: Target, answer: Answer | None) -> TargetError:
    reason = answer.failure if answer and answer.failure else "no API was tried"
    if reason.startswith(_KEY_REFUSED):
        return TargetError(f"{access.shown_root} refuses the API key ({reason}); give one with --api-key")
    return TargetError(f"{access.shown_root} does not complete a prompt for model {target.model!r}: {reason}")


async def _ask(http: httpx.AsyncClient, target: Target, access: Access, **more: Any) -> Answer:
    path = "/v1/chat/completions" if target.api == "chat" else "/v1/completions"
    body = request_body(target, _PROBE, 2) | more
    return await stream(http, post(http, path, body), access.timeout_s)


async def _gives_token_ids(http: httpx.AsyncClient, target: Target, access: Access) -> bool:
    if target.api != "completions":
        return False
    answer = await _ask(http, target, access, **_IDS)
    return answer.failure is None and bool(answer.token_ids)


async def _tokenize_shape(http: httpx.AsyncClient, target: Target) -> Tokenize | None:
    bodies: tuple[tuple[Tokenize, dict[str, Any]], ...] = (
        ("vllm", {"model": target.model, "prompt": "Hello there"}),
        ("llama.cpp", {"content": "Hello there", "add_special": True}),
    )
    if target.api == "chat":  # only a tokenizer that renders the chat counts what is sent
        messages = [{"role": "user", "content": "Hello there"}]
        bodies = (("vllm", {"model": target.model, "messages": messages}),)
    for shape, body in bodies:
        try:
            response = await again(partial(http.send, post(http, "/tokenize", body)), total_s(http))
        except httpx.HTTPError:
            return None
        found = _json_of(response)
        if response.status_code == 200 and isinstance(found, dict) and found.get("tokens"):
            return shape
    return None


async def _get_json(http: httpx.AsyncClient, path: str) -> dict[str, Any] | None:
    try:
        response = await again(lambda: http.get(path), total_s(http))
    except httpx.HTTPError:
        return None
    body = _json_of(response)
    return body if response.status_code == 200 and isinstance(body, dict) else None


def _json_of(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None
