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
from anaphora.scheduler.plan import SampleSpec, ScheduledChunk, StepPlan

PADDING_TOKEN: TokenId = 0


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One step as arrays. A row is a token; a sequence is a chunk, or the padding, which comes last.

    `logit_rows` are the rows after which tokens are chosen; sample i is chosen from the logits of
    `logit_rows[sample_rows[i]]`: several samples of one chunk share them.
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


def pack(plan: StepPlan, *, page_size: int, min_decodes: int) -> PackedBatch:
    """Pack the chunks of a plan that is not empty; page tables are cut to the pages that a chunk needs.

    A kernel may compute single tokens in another way when there are fewer than `min_decodes` of them and
    nothing else: such a step gets a padding sequence, without logits, on the null page.
    Raises ValueError for a chunk without tokens or with too short a page table.
    """
    chunks = (*plan.chunks, *_padding(plan.chunks, min_decodes))
    tables = [_needed_pages(chunk, page_size) for chunk in chunks]
    begins = [0, *accumulate(len(chunk.token_ids) for chunk in chunks)]
    sampled = [index for index, chunk in enumerate(chunks) if chunk.samples]
    num_samples = [len(chunks[index].samples) for index in sampled]
    return PackedBatch(
        input_ids=_flat64(chunk.token_ids for chunk in chunks),
        position_ids=_flat64(range(chunk.start, chunk.end) for chunk in chunks),
        past_lens=np.array([chunk.start for chunk in chunks], np.int32),
        sequence_begins=np.array(begins, np.int32),
        page_ids=np.array(list(chain.from_iterable(tables)), np.int32),
        page_begins=np.array([0, *accumulate(map(len, tables))], np.int32),
        max_context_len=np.array(max(chunk.end for chunk in chunks), np.int32),
        logit_rows=np.array([begins[index + 1] - 1 for index in sampled], np.int64),
        sample_rows=np.repeat(np.arange(len(sampled)), num_samples),
        samples=tuple(chain.from_iterable(chunk.samples for chunk in chunks)),
    )


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
