"""A trace in the forms that other tools read."""

import json
from collections.abc import Iterator
from typing import Any, Literal

from anaphora.sim.trace import Trace, TraceRequest

Form = Literal["mooncake", "bailian"]
FORMS: tuple[Form, ...] = ("mooncake", "bailian")


def public_lines(trace: Trace, form: Form) -> Iterator[str]:
    """Yield a line for each request, in order of arrival.

    Both forms want `ceil(input_length / block size)` ids, so a partly filled last block that has no number gets one
    that occurs nowhere else. What outputs completed has no place there and is left out. A time that is not known
    is 0. In the Bailian form each request is a conversation of its own: a trace does not say who follows whom.
    """
    fresh = 1 + max((max(request.stored_ids, default=-1) for request in trace.requests), default=-1)
    for number, request in enumerate(trace.requests):
        ids = list(request.block_ids)
        if len(ids) * trace.block_size < request.num_prompt_tokens:
            ids.append(fresh)
            fresh += 1
        yield json.dumps(_entry(request, ids, number, form), separators=(", ", ": ")) + "\n"


def _entry(request: TraceRequest, ids: list[int], number: int, form: Form) -> dict[str, Any]:
    arrival_s = request.arrival_s or 0.0
    lengths = {"input_length": request.num_prompt_tokens, "output_length": request.num_output_tokens}
    if form == "mooncake":
        return {"timestamp": round(arrival_s * 1000), **lengths, "hash_ids": ids}
    chat = {"chat_id": number, "parent_chat_id": -1, "timestamp": round(arrival_s, 3)}
    return {**chat, **lengths, "type": "text", "turn": 1, "hash_ids": ids}
