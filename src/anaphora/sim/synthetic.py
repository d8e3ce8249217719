"""Tokens for a trace that has none: equal exactly where the trace's blocks are.

So the engine's own scheduler, chains and hashes can run on it. Parts of blocks are never equal, since a trace does not
know about them.
"""

from collections.abc import Mapping

from anaphora.config import KVLayout
from anaphora.ids import RequestId, TokenId
from anaphora.request import Request, SamplingParams, TokenLogprobs
from anaphora.scheduler.plan import StepPlan, StepResult
from anaphora.sim.trace import TraceRequest


class SyntheticRequest:
    """The tokens of one request: even ones stand for a block of the trace, odd ones occur nowhere else."""

    __slots__ = ("_block_size", "_ids", "_own", "request")

    def __init__(self, request: TraceRequest, number: int, block_size: int) -> None:
        self.request = request
        self._ids = request.stored_ids
        self._block_size = block_size
        self._own: TokenId = 2 * number + 1

    def token(self, position: int) -> TokenId:
        """Return the token at a position, prompt or output."""
        block = position // self._block_size
        return 2 * self._ids[block] if block < len(self._ids) else self._own

    def prompt(self) -> list[TokenId]:
        """Return the prompt."""
        size, length = self._block_size, self.request.num_prompt_tokens
        tokens: list[TokenId] = []
        for block_id in self._ids:
            tokens += [2 * block_id] * size
        return tokens[:length] + [self._own] * (length - len(tokens))

    def engine_request(self, request_id: RequestId, max_tokens: int | None, arrival_time: float) -> Request:
        """Return the request as the scheduler takes it, which ends by its length alone."""
        turn = self.request.recorded
        # Who does not read the cache asks for the log probabilities of its prompt, which makes its chunks smaller.
        skips_reading = turn is not None and turn.skip_reading_cache
        return Request(
            request_id=request_id,
            token_ids=self.prompt(),
            params=SamplingParams(
                max_tokens=max_tokens,
                temperature=0.0,
                ignore_eos=True,
                prompt_logprobs=0 if skips_reading else None,
            ),
            seed=0,
            arrival_time=arrival_time,
            priority=turn.priority if turn else 0,
            skip_reading_cache=skips_reading,
        )


class SyntheticRunner:
    """A runner that computes nothing: it gives each request the tokens that the trace is known by."""

    def __init__(self, layout: KVLayout, requests: Mapping[RequestId, SyntheticRequest]) -> None:
        self.layout = layout
        self._requests = requests

    def run(self, plan: StepPlan) -> StepResult:
        """Return the next token of every request that needs one."""
        return StepResult(
            plan.step,
            {
                spec.request_id: self._requests[spec.request_id].token(len(spec.token_ids))
                for chunk in plan.chunks
                for spec in chunk.samples
            },
            prompt_logprobs={
                chunk.request_id: [
                    TokenLogprobs(token_id, 0.0, 1) for token_id in chunk.prompt_logprobs.token_ids
                ]
                for chunk in plan.chunks
                if chunk.prompt_logprobs
            },
        )
