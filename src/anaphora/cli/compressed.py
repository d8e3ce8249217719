"""Files that may be compressed with gzip: whether one is, its content, and how damage shows."""

import gzip
import zlib
from io import BufferedReader
from typing import IO, cast

_GZIP_MAGIC = b"\x1f\x8b"

DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a damaged file raises; one of them is an OSError, so catch these first."""


def is_compressed(file: BufferedReader) -> bool:
    """Whether a file that was just opened is compressed; none of it is used up."""
    return file.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC)


def unpacked(file: BufferedReader) -> IO[bytes]:
    """Return the content of a file that was just opened, compressed or not; damage shows as it is read."""
    return cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_compressed(file) else file


def damage_text(error: Exception) -> str:
    """Return what people are told of damage."""
    return f"the compressed file is damaged: {error}"
