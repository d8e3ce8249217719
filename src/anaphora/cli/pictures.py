"""PNG and JPEG bytes → a digest of their pixels, where Pillow is installed."""

import hashlib
import io
from importlib.util import find_spec

from anaphora.lint.image_rules import DecodePixels

MAX_PIXELS = 50_000_000
_FAILURES = (OSError, SyntaxError, ValueError, MemoryError)
"""What Pillow raises for bytes that are no picture, or a broken one."""


def pixel_decoder() -> DecodePixels | None:
    """Return what decodes pictures, or None without Pillow."""
    return _pixels if find_spec("PIL") is not None else None


def _pixels(data: bytes) -> bytes | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > MAX_PIXELS:
                return None
            pixels = image.convert("RGBA")
    except _FAILURES:
        return None
    size = f"{pixels.width}x{pixels.height}".encode()
    return hashlib.sha256(size + pixels.tobytes()).digest()
