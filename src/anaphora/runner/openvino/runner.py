"""OpenVINORunner: steps on the CPU, bit for bit the same however tokens are chunked and batched.

Knows OpenVINO's names for what `batch.py` packs, and what keeps its paged attention exact. Does not know how
a model becomes a compiled one (`model.py`) nor how K/V lie in memory (`kv_store.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from anaphora.config import KVLayout
from anaphora.ids import NULL_PAGE, PageId, RequestId, TokenId
from anaphora.request import SamplingParams, TokenLogprobs
from anaphora.runner.batch import PADDING_TOKEN, PackedBatch, pack
from anaphora.runner.openvino.kv_store import KVStore
from anaphora.runner.openvino.model import STEP_INPUTS, PagedModel
from anaphora.sampling.host import token_logprobs
from anaphora.scheduler.plan import SampleSpec, ScheduledChunk, StepPlan, StepResult

MIN_PREFILL_TOKENS = 2
"""A chunk of one token takes the kernel for decodes, whose last bits differ from a prefill's."""

MIN_DECODES = 2
"""Even on one thread, where the rule below asks for no more than one."""

Sampler: TypeAlias = Callable[[NDArray[np.float32], Sequence[SampleSpec]], Sequence[TokenId]]
"""Chooses one token per row of logits [num_samples, vocab_size], which are valid during the call only."""


class OpenVINORunner:
    """Computes steps with a paged model and owns its K/V pages.

    The attention kernel splits a lone decode's context among the threads, and sums in another order, when a
    step has fewer sequences than threads and none of two tokens or more: such steps are padded.
    """

    def __init__(self, model: PagedModel, kv_store: KVStore, sampler: Sampler, *, block_size: int) -> None:
        self._kv_store = kv_store
        self._sampler = sampler
        self._min_decodes = max(MIN_DECODES, model.num_threads)
        self._layout = KVLayout(
            block_size=block_size,
            page_size=kv_store.page_size,
            num_pages=kv_store.num_pages,
            min_prefill_tokens=MIN_PREFILL_TOKENS,
            can_copy_part=kv_store.can_copy_part,
        )
        self._request = model.compiled.create_infer_request()
        for name, tensor in kv_store.tensors().items():
            self._request.set_tensor(name, tensor)
        self._inputs = [_InputTensor(self._request, name) for name in STEP_INPUTS]

    @property
    def layout(self) -> KVLayout:
        """How the K/V memory is divided."""
        return self._layout

    def run(self, plan: StepPlan) -> StepResult:
        """Do all copies of the plan in order, then one packed forward pass, then sample."""
        for copy in plan.copies:
            self._kv_store.copy(copy)
        if plan.is_empty:
            return StepResult(plan.step, {})
        batch = self._pack(plan)
        with self._kv_store.in_use(PageId(int(batch.page_ids.max()))):
            logits = self._forward(batch)
        rows = _rows_of_samples(logits, batch)
        token_ids = self._sampler(rows, batch.samples) if batch.samples else ()
        chosen = {spec.request_id: token for spec, token in zip(batch.samples, token_ids, strict=True)}
        return StepResult(
            plan.step, chosen, _logprobs(rows, batch.samples, chosen), _prompt_logprobs(logits, batch)
        )

    def warm_up(self) -> None:
        """Run a step on the null page, so that the first request does not wait 0.2 s for OpenVINO to get ready."""
        token_ids = [PADDING_TOKEN] * MIN_PREFILL_TOKENS
        spec = SampleSpec(RequestId(""), SamplingParams(), 0, token_ids, len(token_ids))
        chunk = ScheduledChunk(RequestId(""), token_ids, 0, (NULL_PAGE,), is_decode=False, samples=(spec,))
        with self._kv_store.in_use(NULL_PAGE):
            self._forward(self._pack(StepPlan(0, (chunk,))))

    def read_page(self, page: PageId) -> bytes:
        """Return the K/V of one page in every layer, bit for bit."""
        return self._kv_store.read_page(page)

    def write_page(self, page: PageId, data: bytes) -> None:
        """Replace the K/V of one page with what `read_page` returned; ValueError for another length."""
        self._kv_store.write_page(page, data)

    def _pack(self, plan: StepPlan) -> PackedBatch:
        return pack(plan, page_size=self._layout.page_size, min_decodes=self._min_decodes)

    def _forward(self, batch: PackedBatch) -> NDArray[np.float32]:
        """Return the logits that were asked for, [num_logit_rows, vocab_size], valid until the next step."""
        for tensor, values in zip(self._inputs, _step_values(batch), strict=True):
            tensor.fill(values)
        self._request.infer(share_outputs=True)
        output = self._request.get_output_tensor(0).data  # [num_logit_rows, 1, vocab_size]
        logits: NDArray[np.float32] = output.reshape(-1, output.shape[-1])
        return logits


def _rows_of_samples(logits: NDArray[np.float32], batch: PackedBatch) -> NDArray[np.float32]:
    """Return the logits of each sample, [num_samples, vocab_size]; they are copied only if they must be."""
    is_one_each = np.array_equal(batch.sample_rows, np.arange(len(logits)))
    return logits if is_one_each else logits[batch.sample_rows]


def _logprobs(
    rows: NDArray[np.float32], samples: Sequence[SampleSpec], chosen: Mapping[RequestId, TokenId]
) -> dict[RequestId, TokenLogprobs]:
    return {
        spec.request_id: token_logprobs(row, chosen[spec.request_id], spec.params.logprobs)
        for row, spec in zip(rows, samples, strict=True)
        if spec.params.logprobs is not None
    }


def _prompt_logprobs(
    logits: NDArray[np.float32], batch: PackedBatch
) -> dict[RequestId, tuple[TokenLogprobs, ...]]:
    return {
        request_id: tuple(
            token_logprobs(row, token_id, asked.num_top)
            for row, token_id in zip(logits[begin:], asked.token_ids, strict=False)
        )
        for begin, (request_id, asked) in zip(batch.prompt_rows, batch.prompt_logprobs, strict=True)
    }


class _InputTensor:
    """One input of the model, bound once and refilled each step: binding costs more than copying."""

    def __init__(self, request: ov.InferRequest, name: str) -> None:
        port = request.get_compiled_model().input(name)
        self._tensor = ov.Tensor(port.get_element_type(), ov.Shape([0] * len(port.get_partial_shape())))
        request.set_tensor(name, self._tensor)

    def fill(self, values: NDArray[np.int64] | NDArray[np.int32]) -> None:
        self._tensor.shape = values.shape
        self._tensor.data[...] = values


def _step_values(batch: PackedBatch) -> tuple[NDArray[np.int64] | NDArray[np.int32], ...]:
    """The values of `STEP_INPUTS`, in that order."""
    return (
        batch.input_ids,
        batch.position_ids,
        batch.past_lens,
        batch.sequence_begins,
        batch.page_ids,
        batch.page_begins,
        batch.max_context_len,
        batch.logit_rows,
    )
