"""Belady's choice: what an eviction policy would reach that knows the future.

The block whose next use lies furthest ahead goes first, of several the deepest. A block that nobody asks for again is
not kept at all. In blocks no policy does better; since a partly filled last block counts with fewer tokens, and pages
hold whole blocks, it is a bound for tokens and pages but for a fraction of a block per request.
"""

from heapq import heappop, heappush

from anaphora.sim.trace import Trace, num_leading


def belady_hits(trace: Trace, num_blocks: int) -> list[int]:
    """Return how many tokens of each prompt are there in a cache of `num_blocks` that knows what comes."""
    stored: dict[int, int] = {}  # block → the next request that asks for it
    kept = stored.keys()
    heap: list[
        tuple[int, int, int]
    ] = []  # minus next use, minus depth, block; an entry with another use is dead
    hits = []
    for request, uses in zip(trace.requests, next_uses(trace), strict=True):
        hits.append(trace.hit_tokens(request, num_leading(request.block_ids, kept)))
        for depth, (block_id, use) in enumerate(zip(request.stored_ids, uses, strict=True)):
            if use is None:
                stored.pop(block_id, None)
            else:
                stored[block_id] = use
                heappush(heap, (-use, -depth, block_id))
        while len(stored) > num_blocks:
            use, _, block_id = heappop(heap)
            if stored.get(block_id) == -use:
                del stored[block_id]
    return hits


def next_uses(trace: Trace) -> list[list[int | None]]:
    """Return, for each stored block of each request, the index of the next request that asks for it, or None."""
    coming: dict[int, int] = {}
    uses: list[list[int | None]] = []
    for index in range(len(trace.requests) - 1, -1, -1):
        request = trace.requests[index]
        uses.append([coming.get(block_id) for block_id in request.stored_ids])
        if request.reads_cache:
            coming.update(dict.fromkeys(request.block_ids, index))
    return uses[::-1]
