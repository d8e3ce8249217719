"""The scheduler's own notes: on each live request, and on the planning pass that is under way."""

from dataclasses import dataclass, field

from anaphora.cache.lookup import Lookup
from anaphora.cache.page import PageCopy
from anaphora.ids import RequestId
from anaphora.request import Request

MAX_PROMPT_LOGPROB_ROWS = 256
"""The logits of one row are as large as the vocabulary: those of a whole step would be hundreds of megabytes."""


@dataclass(slots=True)
class Progress:
    """Notes on a live request.

    Tokens before `prefill_end` are computed by prefill, the others one by one in decode steps.
    `known_until` is the most tokens it had computed at a preemption. `counted_blocks` is how many leading
    blocks are in its books already, as cached or as written. `answer` is the last lookup. `deadline` is until
    when it waits for blocks that another request computes, if it does or did, `cached_when_deferred` what it
    could have reused without. `num_passes` counts who was admitted over its head.
    `num_rounded_tokens` are those it found cached and lost to the rounding to whole blocks. `forks` are to share its
    pages once its prompt is computed. `logprobs_end` is the first position of the prompt whose log
    probability is wanted and not known yet; the one at position 0 does not exist.
    """

    request: Request
    prefill_end: int
    known_until: int = 0
    counted_blocks: int = 0
    answer: Lookup | None = None
    deadline: float | None = None
    cached_when_deferred: int = 0
    has_waited_out: bool = False
    num_passes: int = 0
    num_rounded_tokens: int = 0
    forks: list[Request] = field(default_factory=list)
    logprobs_end: int = 1

    @property
    def wants_prompt_logprobs(self) -> bool:
        """Whether its next tokens are to tell how likely those after them are."""
        is_asked = self.request.params.prompt_logprobs is not None
        return is_asked and self.logprobs_end < self.request.num_prompt_tokens

    def forget_waiting(self) -> None:
        """Begin anew, now that it has been admitted."""
        self.answer = self.deadline = None
        self.has_waited_out = False
        self.num_passes = 0


@dataclass(slots=True)
class PlanningPass:
    """One planning pass: what is left of the budgets, and what was given out, by request.

    A row is a token whose logits are wanted for the log probabilities of a prompt.
    """

    num_tokens_left: int
    num_rows_left: int = MAX_PROMPT_LOGPROB_ROWS
    num_tokens: dict[RequestId, int] = field(default_factory=dict)
    num_rows: dict[RequestId, int] = field(default_factory=dict)
    copies: dict[RequestId, list[PageCopy]] = field(default_factory=dict)
    has_preempted: bool = False

    def room(self, progress: Progress) -> int:
        """Return how many tokens a request may compute at most."""
        if progress.wants_prompt_logprobs:
            return min(self.num_tokens_left, self.num_rows_left)
        return self.num_tokens_left

    def give(self, progress: Progress, num_tokens: int, copies: list[PageCopy]) -> None:
        """Let a request compute some tokens, after these copies."""
        request_id = progress.request.request_id
        self.num_tokens[request_id] = num_tokens
        self.num_tokens_left -= num_tokens
        if progress.wants_prompt_logprobs:
            self.num_rows[request_id] = num_tokens
            self.num_rows_left -= num_tokens
        if copies:
            self.copies[request_id] = copies

    def take_back(self, request: Request) -> None:
        """Undo what was given to a request, if anything was."""
        self.num_tokens_left += self.num_tokens.pop(request.request_id, 0)
        self.num_rows_left += self.num_rows.pop(request.request_id, 0)
        self.copies.pop(request.request_id, None)
