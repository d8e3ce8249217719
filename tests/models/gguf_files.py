"""Writes small GGUF files, whole or broken in one place."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

F32, F16, Q4_1, Q5_0 = 0, 1, 3, 6
VALUES_PER_BLOCK = {F32: (1, 4), F16: (1, 2), Q4_1: (32, 20), Q5_0: (32, 22)}
U32, I32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9


@dataclass(frozen=True)
class GGUFFile:
    """What to write; `tensors` are (name, shape, type), and zeros where `contents` has nothing for them."""

    metadata: Mapping[str, Any] = field(
        default_factory=lambda: {
            "general.architecture": "llama",
            "llama.context_length": 512,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": ["a", "b", "c"],
            "tokenizer.ggml.eos_token_id": 2,
        }
    )
    tensors: Sequence[tuple[str, tuple[int, ...], int]] = (
        ("token_embd.weight", (32, 3), Q4_1),
        ("output_norm.weight", (32,), F32),
    )
    contents: Mapping[str, bytes] = field(default_factory=dict)
    version: int = 3

    def having(self, **metadata: Any) -> "GGUFFile":
        """Return a copy with other metadata; `__` in a name stands for a dot."""
        return replace(
            self, metadata={**self.metadata, **{k.replace("__", "."): v for k, v in metadata.items()}}
        )

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(self.header() + self.data())
        return path

    def header(self) -> bytes:
        head = b"GGUF" + struct.pack("<IQQ", self.version, len(self.tensors), len(self.metadata))
        head += b"".join(_text(key) + _value(value) for key, value in self.metadata.items())
        offset = 0
        for name, shape, kind in self.tensors:
            head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
            offset += _aligned(_size(shape, kind))
        return head.ljust(_aligned(len(head)), b"\0")

    def data(self) -> bytes:
        return b"".join(
            self.contents.get(name, b"").ljust(_aligned(_size(shape, kind)), b"\0")
            for name, shape, kind in self.tensors
        )


def _aligned(size: int) -> int:
    return -(-size // 32) * 32


def _size(shape: tuple[int, ...], kind: int) -> int:
    values, size_bytes = VALUES_PER_BLOCK[kind]
    return math.prod(shape) // values * size_bytes


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    assert isinstance(value, list)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", ARRAY, I32, len(value), *value)
    return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(_text, value))
