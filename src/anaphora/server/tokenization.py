"""/tokenize and /detokenize, in vLLM's shapes."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from anaphora.explain.history import Scope
from anaphora.ids import TokenId
from anaphora.server.bodies import DetokenizeBody, TokenizeBody
from anaphora.server.messages import check_messages
from anaphora.server.prompts import check_token_ids, encode
from anaphora.server.serving import Serving
from anaphora.server.validation import wrong
from anaphora.server.wire_errors import json_response


class TokenizationEndpoints:
    """Text or messages to token ids, exactly as the generating endpoints see them, and back."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def tokenize(self, request: Request) -> Response:
        """Answer with the ids of a prompt or of a conversation."""
        body = await self._serving.read(request, TokenizeBody)
        token_ids = await self._token_ids(body, request.state.tenant_salt)
        return json_response(
            {
                "count": len(token_ids),
                "max_model_len": self._serving.engine.max_model_len,
                "tokens": list(token_ids),
                "token_strs": None,
            }
        )

    async def _token_ids(self, body: TokenizeBody, tenant_salt: bytes | None) -> Sequence[TokenId]:
        tools = self._serving.check_source(body)
        if body.prompt is not None:
            add_special_tokens = body.add_special_tokens is not False
            return await encode(
                body.prompt,
                "prompt",
                self._serving.engine.tokenizer,
                self._serving.text_limit,
                add_special_tokens=add_special_tokens,
            )
        messages = check_messages(body.messages, self._serving.unknown_fields)
        scope = Scope(tenant_salt, None)
        prompt = await self._serving.render(
            messages, tools, scope, add_generation_prompt=body.add_generation_prompt, num_output_tokens=1
        )
        return prompt.token_ids

    async def detokenize(self, request: Request) -> Response:
        """Answer with the text of some ids, markup included."""
        body = await self._serving.read(request, DetokenizeBody)
        if not isinstance(body.tokens, list):
            raise wrong("tokens", body.tokens, "a list of token ids")
        tokenizer = self._serving.engine.tokenizer
        check_token_ids(body.tokens, "tokens", tokenizer.vocab_size)
        return json_response({"prompt": tokenizer.decode(body.tokens, skip_special_tokens=False)})
