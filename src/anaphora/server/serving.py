"""What all endpoints share: the engine, the settings, and how bodies and models are checked."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from anaphora.config import HelperConfig, ServerConfig
from anaphora.engine.protocols import EngineClient
from anaphora.errors import InvalidRequestError, UnknownModelError
from anaphora.explain.history import Scope
from anaphora.server.bodies import AnyBody, ModelBody, PinBody, ProbeBody, TokenizeBody, parse_body
from anaphora.server.continuation import Continuation
from anaphora.server.explainer import Explainer
from anaphora.server.fields import UnknownFields
from anaphora.server.helpers import Chat, Messages, Tools, render_helped
from anaphora.server.messages import check_messages
from anaphora.server.prompts import ChatRenderer, Prompt, TextLimit, read_prompts, render_chat
from anaphora.server.sse import Stopping
from anaphora.server.tools import check_tools
from anaphora.server.validation import read_json, show, wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """One engine, served under one or more names.

    `default_sampling` holds where a request says nothing; `has_priorities` says whether those of requests count;
    `count_unplaced_mark` is told of each `cache_control` whose place in the prompt is unknown;
    `explainer` says why prompts were not reused, None if nobody is to know; `helpers` says what the server may change
    in a chat, `continuation` goes on from earlier requests, None if it is not to; `stopping` is set when no request may
    take any longer.
    """

    engine: EngineClient
    config: ServerConfig
    served_models: Sequence[str]
    renderer: ChatRenderer | None
    text_limit: TextLimit
    unknown_fields: UnknownFields
    default_sampling: Mapping[str, Any] = field(default_factory=dict)
    has_priorities: bool = False
    count_unplaced_mark: Callable[[], None] = lambda: None
    explainer: Explainer | None = None
    helpers: HelperConfig = field(default_factory=HelperConfig)
    continuation: Continuation | None = None
    stopping: Stopping = field(default_factory=Stopping)
    started_at: int = field(default_factory=lambda: int(time.time()))

    async def read(self, request: Request, kind: type[AnyBody]) -> AnyBody:
        """Return the checked body of a request; one that names a model must name one of ours.

        The body as it was sent stays with the request.
        """
        payload = request.state.source = await read_json(request, self.config.max_body_bytes)
        body = parse_body(kind, payload, self.unknown_fields)
        if isinstance(body, ModelBody) and body.model is not None:
            self.check_model(body.model)
        return body

    def check_source(self, body: TokenizeBody | PinBody | ProbeBody) -> list[dict[str, Any]] | None:
        """Return the checked tools of a body that has either a prompt, or messages with what belongs to them."""
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequestError("send either prompt or messages, and not both", param="prompt")
        tools = check_tools(body.tools, self.unknown_fields)
        if tools and body.messages is None:
            raise wrong("tools", body.tools, "left out unless messages are sent")
        if body.messages is not None and body.add_special_tokens:
            raise wrong("add_special_tokens", True, "false for messages; the chat template writes them")
        return tools

    async def read_prompt(
        self, body: PinBody | ProbeBody, scope: Scope, *, add_generation_prompt: bool
    ) -> Prompt:
        """Return the one prompt of a body that has either a prompt or messages."""
        tools = self.check_source(body)
        if body.messages is not None:
            messages = check_messages(body.messages, self.unknown_fields)
            return await self.render(messages, tools, scope, add_generation_prompt=add_generation_prompt)
        prompts = await read_prompts(
            body.prompt,
            self.engine.tokenizer,
            self.text_limit,
            add_special_tokens=body.add_special_tokens is not False,
        )
        if len(prompts) > 1:
            raise wrong("prompt", body.prompt, "one prompt; send a request for each")
        return prompts[0]

    async def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        scope: Scope,
        *,
        add_generation_prompt: bool,
        num_output_tokens: int = 0,
    ) -> Prompt:
        """Return the prompt of checked messages, with the help that the server was told to give.

        Help never makes a prompt so long that it leaves no room for the outputs.
        """

        async def render(messages: Messages, tools: Tools) -> Prompt:
            return await render_chat(
                messages, tools, self.renderer, self.text_limit, add_generation_prompt=add_generation_prompt
            )

        prompt = await render_helped(self.helpers, Chat(messages, tools), render)
        if self.continuation is None:
            return prompt
        return await self.continuation.continued(
            prompt,
            prompt.changes.get("messages", messages),
            prompt.changes.get("tools", tools),
            scope,
            add_generation_prompt=add_generation_prompt,
            num_output_tokens=num_output_tokens,
        )

    def check_model(self, name: str) -> None:
        """Refuse a model that is not served here."""
        if name not in self.served_models:
            raise UnknownModelError(
                f"the model {show(name)} is not served here; use one of: {', '.join(self.served_models)}",
                param="model",
                code="model_not_found",
            )
