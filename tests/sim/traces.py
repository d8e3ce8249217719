"""Small traces, written down by hand."""

from collections.abc import Sequence

from hypothesis import strategies as st

from anaphora.sim.trace import Trace, TraceRequest


def public_trace(
    prompts: Sequence[Sequence[int]], *, block_size: int = 4, tails: Sequence[int] | None = None
) -> Trace:
    """Return a trace in the public form; `tails` says how many tokens the last block of each prompt has."""
    sizes = tails or [block_size] * len(prompts)
    requests = tuple(
        TraceRequest((len(ids) - 1) * block_size + tail, 2, tuple(ids), float(number))
        for number, (ids, tail) in enumerate(zip(prompts, sizes, strict=True))
    )
    return Trace(
        format="Mooncake",
        block_size=block_size,
        requests=requests,
        counts_tail=True,
        page_size=block_size,
    )


def engine_trace(prompts: Sequence[tuple[int, Sequence[int]]], *, block_size: int, page_size: int) -> Trace:
    """Return a trace of (tokens, whole blocks) under the engine's law."""
    requests = tuple(TraceRequest(length, 2, tuple(ids), 0.0) for length, ids in prompts)
    return Trace(
        format="request log",
        block_size=block_size,
        requests=requests,
        counts_tail=False,
        page_size=page_size,
        min_prefill_tokens=2,
    )


@st.composite
def paths(draw: st.DrawFn, most_nodes: int = 6, most_prompts: int = 7) -> list[list[int]]:
    """Return prompts as paths from the root of one small tree: an id always has the same ids before it."""
    num_nodes = draw(st.integers(1, most_nodes))
    parents = [draw(st.integers(-1, node - 1)) for node in range(num_nodes)]
    prompts = []
    for _ in range(draw(st.integers(1, most_prompts))):
        node, path = draw(st.integers(0, num_nodes - 1)), list[int]()
        while node >= 0:
            path.append(node)
            node = parents[node]
        prompts.append(path[::-1])
    return prompts
