"""The engine for notebooks, scripts and tests: prompts in, completions out, no server.

The same scheduler, cache and runner as behind HTTP, stepped by the caller's own thread.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from anaphora.assemble import Engine, build_engine
from anaphora.config import EngineConfig
from anaphora.engine.protocols import GenerateInput
from anaphora.errors import ConfigError, InvalidRequestError, RequestError
from anaphora.ids import RequestId, TokenId
from anaphora.request import RequestOutput, SamplingParams
from anaphora.server.fields import UnknownFields
from anaphora.server.tools import check_tools

Prompt: TypeAlias = str | Sequence[TokenId]
Message: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One generated text and its books.

    `cached_tokens` of the `prompt_tokens` were not computed because they were cached.
    """

    text: str
    token_ids: tuple[TokenId, ...]
    finish_reason: str
    stop_reason: int | str | None
    prompt_token_ids: tuple[TokenId, ...]
    prompt_tokens: int
    cached_tokens: int


class LLM:
    """A model with its prefix cache.

    `model` None is the bundled demo model; `settings` are the names of the server's flags with underscores,
    such as `max_num_seqs=8` or `enable_prefix_caching=False`.
    Raises ConfigError for an unknown setting, ModelError for a model that cannot be loaded.
    """

    def __init__(self, model: str | None = None, *, engine: Engine | None = None, **settings: Any) -> None:
        if engine is not None and (model is not None or settings):
            raise ConfigError("an engine that is handed in has its model and its settings already")
        self.engine = engine or build_engine(EngineConfig.from_mapping({"model": model, **settings}))
        self._numbers = itertools.count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | None = None,
        *,
        cache_salt: str | None = None,
    ) -> list[Completion]:
        """Complete one or several prompts, each a text or token ids; several run together in the same steps.

        Without `params`, the model's recommended sampling is used. With `params.n` over 1, each prompt gives n
        completions one after another.
        Raises RequestError before anything runs when one of them is empty or can never fit.
        """
        token_lists = [self._token_ids(prompt) for prompt in _as_prompts(prompts)]
        return self._run(token_lists, params or SamplingParams(**self.engine.model.sampling), cache_salt)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        cache_salt: str | None = None,
    ) -> list[Completion]:
        """Answer one or several conversations, rendered by the model's chat template.

        `tools` are functions in the form of the API, shown to the model in each conversation; a call of one is
        part of the text. Raises RequestError if the template renders no tools.
        """
        conversations = _as_conversations(messages)
        tools = check_tools(tools and list(tools), UnknownFields(lambda _: None, strict=True))
        params = params or SamplingParams(max_tokens=None, **self.engine.model.sampling)
        return self._run(
            [self._render(conversation, tools) for conversation in conversations], params, cache_salt
        )

    def reset_prefix_cache(self) -> bool:
        """Forget every cached block."""
        return self.engine.core.reset_prefix_cache()

    def _render(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None
    ) -> list[TokenId]:
        renderer = self.engine.model.renderer
        if renderer is None:
            raise InvalidRequestError(
                f"{self.engine.model.name} has no chat template; give one as chat_template=FILE"
            )
        return renderer.render(messages, tools=tools)[0]

    def _token_ids(self, prompt: Prompt) -> list[TokenId]:
        tokenizer = self.engine.model.tokenizer
        token_ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if not token_ids:
            raise InvalidRequestError("a prompt is empty; it must have at least one token", param="prompts")
        for token_id in token_ids:
            if not 0 <= token_id < tokenizer.vocab_size:
                raise InvalidRequestError(
                    f"a prompt holds the token id {token_id}, but ids are from 0 to {tokenizer.vocab_size - 1}",
                    param="prompts",
                )
        return token_ids

    def _run(
        self, token_lists: Sequence[list[TokenId]], params: SamplingParams, cache_salt: str | None
    ) -> list[Completion]:
        inputs = [
            GenerateInput(
                request_id=RequestId(f"llm-{next(self._numbers)}"),
                prompt_token_ids=token_ids,
                params=params,
                cache_salt=cache_salt,
            )
            for token_ids in token_lists
        ]
        self._add_all(inputs)
        outputs: dict[tuple[RequestId, int], list[RequestOutput]] = {
            (item.request_id, index): [] for item in inputs for index in range(params.n)
        }
        try:
            while self.engine.core.has_work:
                for output in self.engine.core.step().outputs:
                    outputs[output.request_id, output.index].append(output)
        finally:
            self._abort_all(inputs)  # after an interrupt in a notebook, nothing is left behind
        return [
            _completion(item, outputs[item.request_id, index]) for item in inputs for index in range(params.n)
        ]

    def _add_all(self, inputs: Sequence[GenerateInput]) -> None:
        try:
            for item in inputs:
                self.engine.core.add(item, self.engine.clock.now())
        except RequestError:
            self._abort_all(inputs)
            raise

    def _abort_all(self, inputs: Sequence[GenerateInput]) -> None:
        for item in inputs:
            self.engine.core.abort(item.request_id)


def _completion(item: GenerateInput, outputs: Sequence[RequestOutput]) -> Completion:
    last = outputs[-1]
    return Completion(
        text="".join(output.text for output in outputs),
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        finish_reason=last.finish_reason.value if last.finish_reason else "",
        stop_reason=last.stop_reason,
        prompt_token_ids=tuple(item.prompt_token_ids),
        prompt_tokens=last.usage.prompt_tokens,
        cached_tokens=last.usage.cached_tokens,
    )


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Return a list of prompts; a text, or a list of ids, is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if prompts and all(isinstance(item, int) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def _as_conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> Sequence[Sequence[Message]]:
    if messages and isinstance(messages[0], Mapping):
        return [messages]  # type: ignore[list-item]
    return messages  # type: ignore[return-value]
