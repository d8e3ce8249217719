"""The generating endpoints of the OpenAI API, and its list of models."""

import uuid
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from anaphora.errors import InvalidRequestError
from anaphora.explain.history import Scope
from anaphora.server.answers import ChatShape, CompletionShape, Echo, Shape
from anaphora.server.bodies import ChatBody, CompletionBody, GenerationBody, StreamOptions, parse_body
from anaphora.server.exchange import Exchange
from anaphora.server.explained import Asked, Explained, read_asked
from anaphora.server.generation import Generation
from anaphora.server.logprobs import AskedLogprobs, Json
from anaphora.server.messages import check_messages
from anaphora.server.prompts import Prompt, read_prompts
from anaphora.server.retention import Mark, read_marks, retaining
from anaphora.server.sampling import asked_tokens, check_best_of, check_logprobs, sampling_params
from anaphora.server.serving import Serving
from anaphora.server.tenants import check_cache_salt
from anaphora.server.tools import check_tool_choice, check_tools
from anaphora.server.validation import wrong
from anaphora.server.wire_errors import json_response

_MAX_ANSWERS = 1024


class OpenAIEndpoints:
    """/v1/completions, /v1/chat/completions and /v1/models."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def list_models(self, request: Request) -> Response:
        """Answer with all names of the served model."""
        data = [self._model(name) for name in self._serving.served_models]
        return json_response({"object": "list", "data": data})

    async def show_model(self, request: Request) -> Response:
        """Answer with one name of the served model."""
        name = request.path_params["model_id"]
        self._serving.check_model(name)
        return json_response(self._model(name))

    def _model(self, name: str) -> Json:
        return {
            "id": name,
            "object": "model",
            "created": self._serving.started_at,
            "owned_by": "anaphora",
            "max_model_len": self._serving.engine.max_model_len,
        }

    async def complete(self, request: Request) -> ASGIApp:
        """Continue one or more prompts."""
        body = await self._serving.read(request, CompletionBody)
        check_best_of(body)
        check_logprobs(body)
        tokenizer = self._serving.engine.tokenizer
        prompts = await read_prompts(
            body.prompt, tokenizer, self._serving.text_limit, add_special_tokens=body.add_special_tokens
        )
        prompts = self._retaining(prompts, read_marks(body.cache_control, [], self._serving.unknown_fields))
        echoes = [
            Echo(prompt.text_by(tokenizer, body.skip_special_tokens), prompt.token_ids[0])
            for prompt in prompts
            if body.echo
        ]
        shape = CompletionShape(self._asked(body), body.n, body.num_sequences, echoes or None)
        return await self._answer(request, body, prompts, shape)

    async def chat(self, request: Request) -> ASGIApp:
        """Answer the last message of a conversation."""
        body = await self._serving.read(request, ChatBody)
        check_logprobs(body)
        messages = check_messages(body.messages, self._serving.unknown_fields)
        tools = check_tools(body.tools, self._serving.unknown_fields)
        check_tool_choice(body.tool_choice)
        marks = read_marks(body.cache_control, messages, self._serving.unknown_fields)
        asked = asked_tokens(body)
        prompt = await self._serving.render(
            messages,
            tools,
            Scope(request.state.tenant_salt, check_cache_salt(body.cache_salt)),
            add_generation_prompt=body.add_generation_prompt,
            num_output_tokens=1 if asked is None else asked,
        )
        prompts = self._retaining([prompt], marks)
        return await self._answer(request, body, prompts, ChatShape(self._asked(body)))

    def _retaining(self, prompts: Sequence[Prompt], marks: Sequence[Mark]) -> list[Prompt]:
        return [retaining(prompt, marks, self._serving.count_unplaced_mark) for prompt in prompts]

    def _asked_why(self, body: GenerationBody) -> Asked:
        return read_asked(
            body.anaphora,
            body.prompt_cache_options,
            self._serving.unknown_fields,
            can_explain=self._serving.explainer is not None,
        )

    def _asked(self, body: GenerationBody) -> AskedLogprobs:
        return AskedLogprobs(
            self._serving.engine.tokenizer, body.num_logprobs, body.prompt_logprobs, body.skip_special_tokens
        )

    async def _answer(
        self, request: Request, body: GenerationBody, prompts: Sequence[Prompt], shape: Shape
    ) -> ASGIApp:
        options = self._stream_options(body)
        generation = self._generation(request, body, prompts, shape.id_prefix)
        model = body.model or self._serving.served_models[0]
        explained = Explained(self._serving.explainer, generation, self._asked_why(body))
        exchange = Exchange(self._serving, generation, shape, model, generation.new_books(), explained)
        if body.stream:
            return exchange.stream(options, request.state.request_id)
        return await exchange.answer(request.receive)

    def _stream_options(self, body: GenerationBody) -> StreamOptions:
        """Return what a stream carries; the operator may have it always carry the usage."""
        given = {} if body.stream_options is None else body.stream_options
        if not isinstance(given, dict):
            raise wrong("stream_options", given, "an object")
        if given and not body.stream:
            raise wrong("stream_options", given, "left out unless stream is true")
        options = parse_body(StreamOptions, given, self._serving.unknown_fields, "stream_options")
        force = self._serving.config.enable_force_include_usage
        return options.model_copy(update={"include_usage": options.include_usage or force})

    def _generation(
        self, request: Request, body: GenerationBody, prompts: Sequence[Prompt], id_prefix: str
    ) -> Generation:
        num_answers = len(prompts) * body.num_sequences
        if num_answers > _MAX_ANSWERS and len(prompts) > 1:
            raise InvalidRequestError(
                f"{len(prompts)} prompts with {body.num_sequences} answers each make {num_answers}, the limit is "
                f"{_MAX_ANSWERS}; "
                "send several requests",
                param="prompt",
            )
        return Generation(
            # Not the client's request id: that may come twice, and the engine's ids must not.
            call_id=f"{id_prefix}{uuid.uuid4().hex}",
            source=request.state.source,
            prompts=prompts,
            params=[
                sampling_params(body, prompt, self._serving.engine, self._serving.default_sampling)
                for prompt in prompts
            ],
            tenant_salt=request.state.tenant_salt,
            cache_salt=check_cache_salt(body.cache_salt),
            priority=self._priority(body),
        )

    def _priority(self, body: GenerationBody) -> int:
        if body.priority and not self._serving.has_priorities:
            raise wrong(
                "priority",
                body.priority,
                "0, since this server takes requests in their order; start it with --scheduling-policy priority",
            )
        return body.priority
