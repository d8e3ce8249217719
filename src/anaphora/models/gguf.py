"""The header of a GGUF file: what it says of its model, and whether its tensors are all there.

Knows the container (versions 2 and 3, little-endian) and how many bytes the common tensor types take.
Reads no weights, and does not know which models a runner can load.
"""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from anaphora.errors import ModelError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4


class TensorType(NamedTuple):
    """How values are stored: `values_per_block` of them in `bytes_per_block`."""

    name: str
    values_per_block: int
    bytes_per_block: int


TENSOR_TYPES: Mapping[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    30: TensorType("BF16", 1, 2),
}

# How struct reads a value of each scalar type.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GGUFArray:
    """A list in the metadata, of which only the length is kept: vocabularies have 100,000 entries."""

    length: int


GGUFValue: TypeAlias = int | float | bool | str | GGUFArray


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor: `offset` is in bytes from the start of the tensor data; `shape` is innermost first."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int

    @property
    def type_name(self) -> str:
        """The type's usual name, or its number when we do not know it."""
        known = TENSOR_TYPES.get(self.type_id)
        return known.name if known else f"type {self.type_id}"

    @property
    def size_bytes(self) -> int:
        """How many bytes the tensor takes; 0 for a type that we do not know."""
        known = TENSOR_TYPES.get(self.type_id)
        return math.prod(self.shape) // known.values_per_block * known.bytes_per_block if known else 0


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """What a GGUF file says of itself."""

    metadata: Mapping[str, GGUFValue]
    tensors: tuple[GGUFTensor, ...]

    @property
    def architecture(self) -> str:
        """The model's family, such as `llama`; empty when the file does not say."""
        return self.text("general.architecture") or ""

    def text(self, key: str) -> str | None:
        """The string under `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        """The whole number under `key`, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def length(self, key: str) -> int | None:
        """The length of the list under `key`, or None."""
        value = self.metadata.get(key)
        return value.length if isinstance(value, GGUFArray) else None


def read_gguf_header(path: Path) -> GGUFHeader:
    """Return the header of a GGUF file, having checked that every tensor lies inside the file.

    Raises ModelError: no such file, not a GGUF file, a version we do not know, truncated, damaged.
    """
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelError(f"{path} is not a GGUF file: it does not begin with GGUF; check the path")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).header()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error


class _Reader:
    """Reads a header front to back; `position` is the next byte."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = len(MAGIC)

    def header(self) -> GGUFHeader:
        version = self.number("I")
        if version not in VERSIONS:
            raise ModelError(
                f"{self.path} is GGUF version {version}, but only versions 2 and 3, little-endian, can be read; "
                "convert the model again with a current llama.cpp"
            )
        num_tensors, num_values = self.number("Q"), self.number("Q")
        metadata = dict(self.entry() for _ in range(num_values))
        header = GGUFHeader(metadata, tuple(self.tensor() for _ in range(num_tensors)))
        self.check_complete(header)
        return header

    def check_complete(self, header: GGUFHeader) -> None:
        alignment = header.number("general.alignment") or DEFAULT_ALIGNMENT
        start = -(-self.position // alignment) * alignment
        end = max((start + tensor.offset + tensor.size_bytes for tensor in header.tensors), default=start)
        if end > self.size:
            raise self.truncated(f"its tensors end at byte {end:,}")

    def entry(self) -> tuple[str, GGUFValue]:
        return self.text(), self.value(self.number("I"))

    def value(self, type_id: int) -> GGUFValue:
        if type_id == _STRING:
            return self.text()
        if type_id == _ARRAY:
            return self.array()
        if type_id in _SCALARS:
            value: int | float | bool = self.take(_SCALARS[type_id])[0]
            return value
        raise self.damaged(f"there is no value type {type_id}")

    def array(self) -> GGUFArray:
        type_id, length = self.number("I"), self.number("Q")
        if type_id == _STRING:
            for _ in range(length):
                self.skip(self.number("Q"))
        elif type_id in _SCALARS:
            self.skip(length * struct.calcsize(_SCALARS[type_id]))
        else:
            raise self.damaged(f"it has a list of value type {type_id}")
        return GGUFArray(length)

    def tensor(self) -> GGUFTensor:
        name, num_dimensions = self.text(), self.number("I")
        if num_dimensions > MAX_DIMENSIONS:
            raise self.damaged(f"a tensor has {num_dimensions} dimensions, the limit is {MAX_DIMENSIONS}")
        shape = self.take(f"{num_dimensions}Q")
        return GGUFTensor(name, shape, self.number("I"), self.number("Q"))

    def text(self) -> str:
        length = self.number("Q")
        self.skip(length)
        return self.data[self.position - length : self.position].decode("utf-8", "replace")

    def number(self, kind: str) -> int:
        number: int = self.take(kind)[0]
        return number

    def take(self, kinds: str) -> tuple[int, ...]:
        start = self.position
        self.skip(struct.calcsize(f"<{kinds}"))
        return struct.unpack_from(f"<{kinds}", self.data, start)

    def skip(self, num_bytes: int) -> None:
        self.position += num_bytes
        if self.position > self.size:
            raise self.truncated("its header goes on after that")

    def truncated(self, why: str) -> ModelError:
        return ModelError(
            f"{self.path} is truncated: it has {self.size:,} bytes, but {why}; download it again"
        )

    def damaged(self, why: str) -> ModelError:
        return ModelError(f"{self.path} is damaged: {why}; download it again")
