"""K18: cache markers that cannot work under the rules of hosted services. Inferred: these are not our rules."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise
from typing import Any, NamedTuple

from anaphora.explain.finding import Finding
from anaphora.explain.records import PromptRecord
from anaphora.explain.values import pieces

MAX_MARKERS = 4
LOOKBACK_BLOCKS = 20
MIN_PREFIX_TOKENS = 1024
_VOLATILE = frozenset({"uuid", "ulid", "epoch"})
_MARKS = ("cache_control", "prompt_cache_breakpoint")


class Block(NamedTuple):
    """One block of a body in the order that hosted services render it."""

    path: str
    text: str
    marker: Mapping[str, Any] | None
    size: int = 0


def marker(record: PromptRecord, earlier: PromptRecord | None = None) -> Finding | None:
    """Name the first marker that is missing, one too many, or where nothing can be found again.

    What stood in the earlier request too did not change, whatever it looks like.
    """
    body = record.body.source
    blocks = list_blocks(body)
    places = [i for i, block in enumerate(blocks) if block.marker is not None]
    kept = {block.text for block in list_blocks(earlier.body.source)} if earlier is not None else set()
    found = _wrong_marker(body, blocks, places, len(record.token_ids), kept)
    if found is None:
        return None
    path, advice = found
    return Finding(code="marker", certainty="inferred", advice=advice, path=path)


def _wrong_marker(
    body: Mapping[str, Any], blocks: list[Block], places: list[int], num_tokens: int, kept: AbstractSet[str]
) -> tuple[str, str] | None:
    options = body.get("prompt_cache_options")
    is_explicit = isinstance(options, Mapping) and options.get("mode") == "explicit"
    if not places:
        missing = "prompt_cache_options asks for explicit markers, and there is none, so nothing is cached. "
        return ("prompt_cache_options", missing + _put_one(blocks)) if is_explicit else None
    if len(places) > MAX_MARKERS:
        extra = blocks[places[MAX_MARKERS]].path
        return (
            extra,
            (
                f"{len(places)} markers, of which hosted services take {MAX_MARKERS}. Keep the last one of "
                "each stable part."
            ),
        )
    if wrong := _wrong_order(blocks, places):
        return wrong
    volatile = next((p for p in places if blocks[p].text not in kept and _is_volatile(blocks[p].text)), None)
    if volatile is not None:
        path = blocks[volatile].path
        return (
            path,
            (
                f"The marker at {path} stands behind a value that changes, so what it marks is never found "
                "again. Move it before the value."
            ),
        )
    if len(blocks) - 1 - places[-1] > LOOKBACK_BLOCKS:
        path = blocks[-1].path
        return (
            path,
            (
                f"{len(blocks) - 1 - places[-1]} blocks follow the last marker, and services look back "
                f"{LOOKBACK_BLOCKS}. Put one at {path}."
            ),
        )
    marked = _num_marked_tokens(blocks, places[-1], num_tokens)
    if marked < MIN_PREFIX_TOKENS:
        path = blocks[places[-1]].path
        return (
            path,
            (
                f"The last marker, at {path}, stands behind about {marked:,} tokens; hosted services ignore markers "
                f"below {MIN_PREFIX_TOKENS:,} (512 to 4,096 by model)."
            ),
        )
    return None


def _is_volatile(text: str) -> bool:
    """Whether a text holds what is hardly ever the same twice: a time of day, or an id made anew."""
    return any(
        piece.kind in _VOLATILE
        or (piece.kind == "time" and ":" in piece.text and any(c in piece.text for c in "-/, T"))
        for piece in pieces(text)
    )


def _num_marked_tokens(blocks: list[Block], place: int, num_tokens: int) -> int:
    """About how many tokens stand up to a marker, by the share of characters."""
    sizes = [block.size for block in blocks]
    return num_tokens * sum(sizes[: place + 1]) // max(1, sum(sizes))


def _wrong_order(blocks: list[Block], places: list[int]) -> tuple[str, str] | None:
    ttls = [str((blocks[p].marker or {}).get("ttl", "5m")) for p in places]
    for place, (before, ttl) in zip(places[1:], pairwise(ttls), strict=True):
        if before == "5m" and ttl == "1h":
            path = blocks[place].path
            return (
                path,
                f"The marker at {path} is kept 1 h and stands behind one kept 5 min. Put the longer first.",
            )
    return None


def _put_one(blocks: list[Block]) -> str:
    return f"Put one at {blocks[-1].path}." if blocks else "Put one on the last stable part."


def list_blocks(body: Mapping[str, Any]) -> list[Block]:
    """Return the blocks of a body that may carry a marker: tools, system, then messages."""
    blocks = [_block(f"tools[{i}]", tool, "") for i, tool in enumerate(_list(body.get("tools")))]
    for name in ("system", "instructions"):
        if given := body.get(name):
            blocks += _content_blocks(name, given, None)
    for name in ("messages", "input"):
        for i, message in enumerate(_list(body.get(name))):
            if isinstance(message, Mapping):
                blocks += _content_blocks(f"{name}[{i}].content", message.get("content"), message)
    return blocks


def _content_blocks(path: str, content: Any, message: Mapping[str, Any] | None) -> list[Block]:
    if isinstance(content, list):
        return [_block(f"{path}[{i}]", part, _text(part)) for i, part in enumerate(content)]
    return [_block(path, message or {}, content if isinstance(content, str) else "")]


def _block(path: str, owner: Any, text: str) -> Block:
    marks = [owner[name] for name in _MARKS if isinstance(owner, Mapping) and owner.get(name)]
    found = marks[0] if marks else None
    size = len(text) or len(str(owner))
    return Block(path, text, found if found is None or isinstance(found, Mapping) else {}, size)


def _text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
