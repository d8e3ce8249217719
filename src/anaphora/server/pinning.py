"""/v1/cache/pin: computes a prompt if it is not cached, and keeps it for a while.

Whose cache that is has been decided before, in `tenants.py`.
"""

import time
import uuid
from contextlib import aclosing
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from anaphora.errors import ConflictError, InvalidRequestError
from anaphora.explain.history import Scope
from anaphora.request import RequestOutput, Retention, SamplingParams
from anaphora.server.bodies import PinBody
from anaphora.server.explained import Asked, Explained, cache_headers
from anaphora.server.generation import Generation
from anaphora.server.logprobs import Json
from anaphora.server.prompts import Prompt
from anaphora.server.retention import DEFAULT_TTL, read_ttl
from anaphora.server.serving import Serving
from anaphora.server.sse import run_while_wanted
from anaphora.server.tenants import check_cache_salt
from anaphora.server.wire_errors import json_response


class PinEndpoint:
    """Warms and pins one prompt."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def pin(self, request: Request) -> Response:
        """Answer with how much of a prompt is pinned, or 409 when other pins leave too little room for it."""
        body = await self._serving.read(request, PinBody)
        ttl_s = read_ttl(DEFAULT_TTL if body.ttl is None else body.ttl, "ttl")
        cache_salt = check_cache_salt(body.cache_salt)
        # What comes after the messages differs from one request to the next.
        scope = Scope(request.state.tenant_salt, cache_salt)
        prompt = await self._serving.read_prompt(body, scope, add_generation_prompt=False)
        # Raises if the prompt does not fit into the context.
        prompt.num_output_tokens(0, None, self._serving.engine.max_model_len)
        self._check_can_be_pinned(prompt)
        generation = Generation(
            call_id=f"pin-{uuid.uuid4().hex}",
            source=request.state.source,
            prompts=[replace(prompt, retention=(Retention(len(prompt.token_ids), ttl_s),))],
            params=[SamplingParams(max_tokens=0)],
            tenant_salt=request.state.tenant_salt,
            cache_salt=cache_salt,
        )
        with Explained(self._serving.explainer, generation, Asked()) as explained:
            output = await run_while_wanted(self._run(generation), request.receive, self._serving.stopping)
            await explained.settle()
        answer = self._answer(output, int(time.time() + ttl_s))
        return json_response(answer, headers=cache_headers(output.usage, explained.headline))

    def _check_can_be_pinned(self, prompt: Prompt) -> None:
        """Refuse what would not fit if nothing else were pinned: 409 would have clients try again."""
        limit = self._serving.engine.max_pinnable_tokens
        if len(prompt.token_ids) > limit:
            raise InvalidRequestError(
                f"{prompt.path} has {len(prompt.token_ids)} tokens, but the longest prompt that can be pinned here has "
                f"{limit}; shorten it, or raise --max-pinned-share or --kv-cache-memory-bytes",
                param=prompt.path,
            )

    async def _run(self, generation: Generation) -> RequestOutput:
        """Return the one output of a request that generates nothing."""
        async with aclosing(generation.run(self._serving.engine)) as outputs:
            _, output = [item async for item in outputs][-1]
        return output

    def _answer(self, output: RequestOutput, expires_at: int) -> Json:
        usage = output.usage
        if output.pinned_tokens is None:
            raise ConflictError(
                f"the {usage.prompt_tokens} tokens of the prompt are cached now, but not pinned: with what is pinned "
                f"already they are over the limit, which lets {self._serving.engine.max_pinnable_tokens} be pinned in "
                "all; wait until other pins have lapsed, shorten the prompt, or raise --max-pinned-share"
            )
        return {
            "object": "cache.pin",
            "prompt_tokens": usage.prompt_tokens,
            "pinned_tokens": output.pinned_tokens,
            "cached_tokens": usage.cached_tokens,
            "expires_at": expires_at if output.pinned_tokens else None,
        }
