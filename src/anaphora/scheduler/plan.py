"""The seam: what one step shall do, and what came of it, as plain data.

A StepPlan goes down to a runner, a StepResult comes up. Nothing here knows how K/V lie in memory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anaphora.cache.page import PageCopy
from anaphora.ids import PageId, RequestId, TokenId
from anaphora.request import SamplingParams, TokenLogprobs

__all__ = ["PageCopy", "PromptLogprobSpec", "SampleSpec", "ScheduledChunk", "StepPlan", "StepResult"]


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """One token to choose from the logits after a chunk's last token.

    `token_ids` is the whole known sequence (prompt, then outputs), to be read during the step only;
    its length is the position of the token to choose, and together with `seed` fixes every random draw.
    `banned_token_ids` must not be chosen (end of text before `min_tokens`).
    """

    request_id: RequestId
    params: SamplingParams
    seed: int
    token_ids: Sequence[TokenId]
    num_prompt_tokens: int
    banned_token_ids: Sequence[TokenId] = ()


@dataclass(frozen=True, slots=True)
class PromptLogprobSpec:
    """Tokens of a prompt whose log probabilities are wanted, and how many of the most likely ones beside each.

    The token at a position is predicted by the logits of the position before:

        position          start   …   start + first_row   …                            end - 1
        of the chunk    [   0     …       first_row       first_row + 1   …             last ]
        predicts                          token_ids[0]    token_ids[1]    …   token_ids[-1]

    The last token of the prompt predicts no token of it. The last token of a chunk that ends before predicts
    the first token of the next one.
    """

    num_top: int
    first_row: int
    token_ids: Sequence[TokenId]


@dataclass(frozen=True, slots=True)
class ScheduledChunk:
    """The tokens of one request that this step computes.

    `token_ids` are written to positions `start …` of the request, whose K/V before `start` exist;
    `page_table` names the pages that hold positions 0, page_size, 2·page_size … and reaches past the
    chunk's last token. `is_decode` says that the runner's single-token kernel writes it.
    `samples` is empty when the chunk ends before the last known token, or nothing is to be generated.
    `prompt_logprobs` asks for the logits of further rows.
    """

    request_id: RequestId
    token_ids: Sequence[TokenId]
    start: int
    page_table: Sequence[PageId]
    is_decode: bool
    samples: tuple[SampleSpec, ...] = ()
    prompt_logprobs: PromptLogprobSpec | None = None

    @property
    def end(self) -> int:
        """The position after the chunk's last token."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: first all copies, in order, then one packed forward pass over all chunks, decodes first."""

    step: int
    chunks: tuple[ScheduledChunk, ...]
    copies: tuple[PageCopy, ...] = ()

    @property
    def num_scheduled_tokens(self) -> int:
        """How many tokens the step computes."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run."""
        return not self.chunks


@dataclass(frozen=True, slots=True)
class StepResult:
    """The chosen token of every SampleSpec in the plan, by request.

    `logprobs` has an entry for each whose parameters ask for it, `prompt_logprobs` one for each chunk that does,
    with a value for each of the tokens it names. All are those of the logits as the model gave them.
    """

    step: int
    token_ids: Mapping[RequestId, TokenId]
    logprobs: Mapping[RequestId, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: Mapping[RequestId, Sequence[TokenLogprobs]] = field(default_factory=dict)
