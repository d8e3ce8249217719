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
from anaphora.errors import ConfigError, InvalidRequestError
from anaphora.ids import RequestId, TokenId
from anaphora.request import RequestOutput, SamplingParams, TokenLogprobs
from anaphora.server.fields import UnknownFields
from anaphora.server.messages import check_messages
from anaphora.server.prompts import check_token_ids
from anaphora.server.tenants import check_cache_salt
from anaphora.server.tools import check_tools

Prompt: TypeAlias = str | Sequence[TokenId]
Message: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One generated text and its books.

    `cached_tokens` of the `prompt_tokens` were not computed because they were cached. What was not asked for of
    `logprobs` and `prompt_logprobs` is None; the first token of a prompt has none. `cumulative_logprob` is the
    sum of `logprobs`.
    """

    text: str
    token_ids: tuple[TokenId, ...]
    finish_reason: str
    stop_reason: int | str | None
    prompt_token_ids: tuple[TokenId, ...]
    prompt_tokens: int
    cached_tokens: int
    logprobs: tuple[TokenLogprobs, ...] | None = None
    cumulative_logprob: float | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None


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
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        cache_salt: str | None = None,
    ) -> list[Completion]:
        """Complete one or several prompts, each a text or token ids; several run together in the same steps.

        `params` are for all prompts, or one for each; without any, the model's recommended sampling is used.
        With `n` over 1, a prompt gives n completions one after another.
        Raises RequestError before anything runs when one of them is empty or can never fit.
        """
        token_lists = [self._token_ids(prompt) for prompt in _as_prompts(prompts)]
        params = SamplingParams(**self.engine.model.sampling) if params is None else params
        return self._run(token_lists, params, cache_salt)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
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
        params = SamplingParams(max_tokens=None, **self.engine.model.sampling) if params is None else params
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
        checked = check_messages(list(messages), UnknownFields(lambda _: None, strict=True))
        return renderer.render(checked, tools=tools)[0]

    def _token_ids(self, prompt: Prompt) -> list[TokenId]:
        tokenizer = self.engine.model.tokenizer
        if isinstance(prompt, str):
            token_ids = tokenizer.encode(prompt)
        elif isinstance(prompt, list | tuple):
            token_ids = list(prompt)
            check_token_ids(token_ids, "prompts", tokenizer.vocab_size)
        else:
            raise InvalidRequestError(
                f"a prompt is {prompt!r:.60}, but must be a text or a list of token ids", param="prompts"
            )
        if not token_ids:
            raise InvalidRequestError("a prompt is empty; it must have at least one token", param="prompts")
        return token_ids

    def _run(
        self,
        token_lists: Sequence[list[TokenId]],
        params: SamplingParams | Sequence[SamplingParams],
        cache_salt: str | None,
    ) -> list[Completion]:
        each = self._params_of_each(params, len(token_lists))
        inputs = [
            GenerateInput(
                request_id=RequestId(f"llm-{next(self._numbers)}"),
                prompt_token_ids=token_ids,
                params=one,
                cache_salt=check_cache_salt(cache_salt),
            )
            for token_ids, one in zip(token_lists, each, strict=True)
        ]
        outputs: dict[tuple[RequestId, int], list[RequestOutput]] = {
            (item.request_id, index): [] for item in inputs for index in range(item.params.n)
        }
        try:
            for item in inputs:
                self.engine.core.add(item, self.engine.clock.now())
            while self.engine.core.has_work:
                for output in self.engine.core.step().outputs:
                    outputs[output.request_id, output.index].append(output)
        finally:
            self._abort_all(inputs)  # after a refusal, or an interrupt in a notebook, nothing is left behind
        return [
            _completion(item, outputs[item.request_id, index])
            for item in inputs
            for index in range(item.params.n)
        ]

    def _params_of_each(
        self, params: SamplingParams | Sequence[SamplingParams], num_prompts: int
    ) -> Sequence[SamplingParams]:
        """Return the parameters of each prompt, whose token ids must be in the vocabulary."""
        each = [params] * num_prompts if isinstance(params, SamplingParams) else params
        if not isinstance(each, list | tuple) or not all(isinstance(one, SamplingParams) for one in each):
            raise InvalidRequestError(
                f"params is {params!r:.60}, but must be SamplingParams or a list of them", param="params"
            )
        if len(each) != num_prompts:
            raise InvalidRequestError(
                f"there are {len(each)} params for {num_prompts} prompts; give one, or one for each",
                param="params",
            )
        vocab_size = self.engine.model.tokenizer.vocab_size
        for one in each:
            check_token_ids(list(one.stop_token_ids), "stop_token_ids", vocab_size)
            check_token_ids(list(one.logit_bias), "logit_bias", vocab_size)
        return each

    def _abort_all(self, inputs: Sequence[GenerateInput]) -> None:
        for item in inputs:
            self.engine.core.abort(item.request_id)


def _completion(item: GenerateInput, outputs: Sequence[RequestOutput]) -> Completion:
    first, last = outputs[0], outputs[-1]
    logprobs = tuple(logprob for output in outputs for logprob in output.logprobs)
    is_asked = item.params.logprobs is not None
    return Completion(
        text="".join(output.text for output in outputs),
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        finish_reason=last.finish_reason.value if last.finish_reason else "",
        stop_reason=last.stop_reason,
        prompt_token_ids=tuple(item.prompt_token_ids),
        prompt_tokens=last.usage.prompt_tokens,
        cached_tokens=last.usage.cached_tokens,
        logprobs=logprobs if is_asked else None,
        cumulative_logprob=sum(logprob.logprob for logprob in logprobs) if is_asked else None,
        prompt_logprobs=None if first.prompt_logprobs is None else (None, *first.prompt_logprobs),
    )


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """Return a list of prompts; a text, or a list of ids, is one prompt."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, list | tuple):
        raise InvalidRequestError(
            f"prompts is {prompts!r:.60}, but must be a text, token ids, or a list of either", param="prompts"
        )
    if prompts and all(isinstance(item, int) for item in prompts):
        return [prompts]
    return prompts


def _as_conversations(
    messages: Sequence[Message] | Sequence[Sequence[Message]],
) -> Sequence[Sequence[Message]]:
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidRequestError(
            f"messages is {messages!r:.60}, but must be a list of messages, or a list of such lists",
            param="messages",
        )
    if isinstance(messages[0], Mapping):
        return [messages]
    return messages
