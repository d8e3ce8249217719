"""StepPlan → flat arrays, all chunks of a step packed one after another.

Knows what a paged kernel has to be told, and what has to be added so that its answers are exact. Does not
know any kernel's names for it, nor how K/V lie in memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np
from numpy.typing import NDArray

from anaphora.ids import NULL_PAGE, PageId, RequestId, TokenId
from anaphora.scheduler.plan import PromptLogprobSpec, SampleSpec, ScheduledChunk, StepPlan

PADDING_TOKEN: TokenId = 0


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One step as arrays. A row is a token; a sequence is a chunk, or the padding, which comes last.

    `logit_rows` are the rows whose logits are needed; sample i is chosen from the logits of
    `logit_rows[sample_rows[i]]`: several samples of one chunk share them. Those of
    `logit_rows[prompt_rows[i]]` and after predict the tokens that `prompt_logprobs[i]` names, one after another.
    """

    input_ids: NDArray[np.int64]  # [num_rows]
    position_ids: NDArray[np.int64]  # [num_rows]
    past_lens: NDArray[np.int32]  # [num_sequences], tokens whose K/V exist
    sequence_begins: NDArray[np.int32]  # [num_sequences + 1], into the rows
    page_ids: NDArray[np.int32]  # [num_pages], those of all sequences
    page_begins: NDArray[np.int32]  # [num_sequences + 1], into page_ids
    max_context_len: NDArray[np.int32]  # []
    logit_rows: NDArray[np.int64]  # [num_logit_rows]
    sample_rows: NDArray[np.int64]  # [num_samples]
    samples: tuple[SampleSpec, ...]
    prompt_rows: tuple[int, ...] = ()
    prompt_logprobs: tuple[tuple[RequestId, PromptLogprobSpec], ...] = ()


def pack(plan: StepPlan, *, page_size: int, min_decodes: int) -> PackedBatch:
    """Pack the chunks of a plan that is not empty; page tables are cut to the pages that a chunk needs.

    A kernel may compute single tokens in another way when there are fewer than `min_decodes` of them and
    nothing else: such a step gets a padding sequence, without logits, on the null page.
    Raises ValueError for a chunk without tokens or with too short a page table.
    """
    chunks = (*plan.chunks, *_padding(plan.chunks, min_decodes))
    tables = [_needed_pages(chunk, page_size) for chunk in chunks]
    begins = [0, *accumulate(len(chunk.token_ids) for chunk in chunks)]
    rows = [_logit_rows(chunk) for chunk in chunks]
    row_begins = [0, *accumulate(map(len, rows))]  # of each chunk, into the logit rows
    num_samples = [len(chunk.samples) for chunk in chunks]
    asking = [(index, asked) for index, chunk in enumerate(chunks) if (asked := chunk.prompt_logprobs)]
    return PackedBatch(
        input_ids=_flat64(chunk.token_ids for chunk in chunks),
        position_ids=_flat64(range(chunk.start, chunk.end) for chunk in chunks),
        past_lens=np.array([chunk.start for chunk in chunks], np.int32),
        sequence_begins=np.array(begins, np.int32),
        page_ids=np.array(list(chain.from_iterable(tables)), np.int32),
        page_begins=np.array([0, *accumulate(map(len, tables))], np.int32),
        max_context_len=np.array(max(chunk.end for chunk in chunks), np.int32),
        logit_rows=_flat64(
            [begin + row for row in found] for begin, found in zip(begins, rows, strict=False)
        ),
        sample_rows=np.repeat(np.array(row_begins[1:], np.int64) - 1, num_samples),
        samples=tuple(chain.from_iterable(chunk.samples for chunk in chunks)),
        prompt_rows=tuple(row_begins[index] for index, _ in asking),
        prompt_logprobs=tuple((chunks[index].request_id, asked) for index, asked in asking),
    )


def _logit_rows(chunk: ScheduledChunk) -> Sequence[int]:
    """Return which of a chunk's own rows need logits; the last of them all is the one to choose from."""
    num_rows = len(chunk.token_ids)
    asked = chunk.prompt_logprobs
    rows = range(asked.first_row, asked.first_row + len(asked.token_ids)) if asked else range(0)
    return [*rows, num_rows - 1] if chunk.samples and rows.stop < num_rows else rows


def _padding(chunks: Sequence[ScheduledChunk], min_decodes: int) -> tuple[ScheduledChunk, ...]:
    """One more token where that makes enough of them, else a prefill of two, beside which any number is enough."""
    if len(chunks) >= min_decodes or any(len(chunk.token_ids) > 1 for chunk in chunks):
        return ()
    num_tokens = 1 if len(chunks) + 1 >= min_decodes else 2
    return (ScheduledChunk(RequestId(""), [PADDING_TOKEN] * num_tokens, 0, (NULL_PAGE,), is_decode=False),)


def _needed_pages(chunk: ScheduledChunk, page_size: int) -> Sequence[PageId]:
    num_needed = -(-chunk.end // page_size)
    if not chunk.token_ids or len(chunk.page_table) < num_needed:
        raise ValueError(
            f"request {chunk.request_id}: {len(chunk.token_ids)} tokens up to position {chunk.end} need "
            f"{num_needed} pages, but {len(chunk.page_table)} are named"
        )
    return chunk.page_table[:num_needed]


def _flat64(parts: Iterable[Iterable[int]]) -> NDArray[np.int64]:
    return np.array(list(chain.from_iterable(parts)), np.int64)
