"""L14: one picture in several encodings. Also what stands for a picture in a prompt of text.

Decodes nothing: who can decode hands in what does.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from anaphora.lint.log import Log
from anaphora.lint.spots import Source
from anaphora.lint.suspect import Suspect

DecodePixels: TypeAlias = Callable[[bytes], bytes | None]
"""PNG or JPEG bytes → a digest of the size and the pixels, or None for what is no picture."""

_TYPES = frozenset({"image_url", "input_image", "image"})


class Image(NamedTuple):
    """A picture in a body: its path, and its bytes where the body holds them."""

    path: str
    data: bytes | None
    name: str


def images_of(source: Source) -> Iterator[Image]:
    """Give the pictures of a body, in their order."""
    for name in ("messages", "input"):
        items = source.get(name)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            content = item.get("content") if isinstance(item, Mapping) else None
            for number, part in enumerate(content if isinstance(content, list) else ()):
                if isinstance(part, Mapping) and part.get("type") in _TYPES:
                    yield _image(part, f"{name}[{index}].content[{number}]")


def _image(part: Mapping[str, Any], path: str) -> Image:
    owner = part.get("image_url") or part.get("source") or {}
    if isinstance(owner, Mapping) and isinstance(owner.get("data"), str):
        data = _decoded(owner["data"])
        return Image(path, data, _digest(data or owner["data"].encode()))
    url = owner.get("url") if isinstance(owner, Mapping) else owner
    url = url if isinstance(url, str) else ""
    head, comma, rest = url.partition(",")
    data = _decoded(rest) if comma and head.startswith("data:") and head.endswith(";base64") else None
    return Image(path, data, _digest(data or url.encode("utf-8", "surrogatepass")))


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def with_stand_ins(source: Source, names: Mapping[str, str] | None = None) -> Source:
    """Return a body whose pictures are short texts, the same for the same bytes; `names` may make others the same."""
    images = {image.path: image.name for image in images_of(source)}
    if not images:
        return source
    made = dict(source)
    for name in ("messages", "input"):
        if isinstance(source.get(name), list):
            made[name] = [
                _with_stand_in(item, f"{name}[{i}].content", images, names or {}, is_input=name == "input")
                for i, item in enumerate(source[name])
            ]
    return made


def _with_stand_in(
    item: Any, path: str, images: Mapping[str, str], names: Mapping[str, str], *, is_input: bool
) -> Any:
    content = item.get("content") if isinstance(item, Mapping) else None
    if not isinstance(content, list):
        return item
    kind = "input_text" if is_input else "text"
    parts = [
        {"type": kind, "text": f"<image {names.get(name, name)}>"}
        if (name := images.get(f"{path}[{number}]")) is not None
        else part
        for number, part in enumerate(content)
    ]
    return {**item, "content": parts}


def recoded_images(log: Log, decode: DecodePixels) -> Iterator[Suspect]:
    """L14: the bytes differ, the pixels do not."""
    first: dict[bytes, tuple[str, int]] = {}
    pixels: dict[str, bytes | None] = {}
    same: dict[str, str] = {}
    indices: list[int] = []
    path = evidence = ""
    for index, source in enumerate(log.sources):
        for image in images_of(source):
            if image.data is None:
                continue
            if image.name not in pixels:
                pixels[image.name] = decode(image.data)
            key = pixels[image.name]
            name, size = first.setdefault(key, (image.name, len(image.data))) if key else (image.name, 0)
            if name != image.name:
                same[image.name] = name
                path = path or image.path
                evidence = evidence or f"{size:,} bytes against {len(image.data):,}, equal pixels"
                if not indices or indices[-1] != index:
                    indices.append(index)
    if indices:
        yield Suspect(
            rule="L14",
            code="namespace",
            path=path,
            evidence=evidence,
            fix="Encode each picture once, and send the same bytes again.",
            indices=tuple(indices),
            mend=lambda _, source: with_stand_ins(source, same),
        )
