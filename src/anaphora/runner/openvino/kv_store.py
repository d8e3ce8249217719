"""The K/V tensors and what is done with their pages: copied within, read out, written back.

The one file that knows how K/V lie in memory. Does not know whose pages they are.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from anaphora.errors import NotEnoughMemoryError
from anaphora.ids import PageId
from anaphora.runner.openvino.memory_ahead import MemoryAhead, populate
from anaphora.scheduler.plan import PageCopy

ALIGNMENT_BYTES = 2 * 1024 * 1024  # of a huge page
DEFAULT_SHARE = 0.25
DEFAULT_LIMIT_BYTES = 8 * 1024**3

# Element type → bytes per element. Bits are moved, never computed with, so the numpy type is an unsigned integer.
_ELEMENT_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "u8": 1, "i8": 1}
_EXACT_IN_PARTS = ("f32", "bf16", "f16")


@dataclass(frozen=True, slots=True)
class KVPort:
    """One K or V input of the model; `page_shape` is [num_heads, page_size, head_size]."""

    name: str
    element_type: str
    page_shape: tuple[int, ...]

    @property
    def page_size(self) -> int:
        """How many tokens one page holds."""
        return self.page_shape[1]

    @property
    def bytes_per_page(self) -> int:
        """How many bytes one page takes in this tensor."""
        return math.prod(self.page_shape) * _ELEMENT_BYTES[self.element_type]


def bytes_per_page(ports: Sequence[KVPort]) -> int:
    """Return how many bytes one page takes in all tensors together."""
    return sum(port.bytes_per_page for port in ports)


class KVStore:
    """Owns the K/V of all layers for the pages 0 … num_pages - 1, zeros at first.

    Tensors of one shape are one array, so that moving a page is one strided operation for all layers. The
    operating system hands out memory on first use, which can double the time of that step: see `touch` and
    `in_use`.
    """

    def __init__(self, ports: Sequence[KVPort], num_pages: int, *, ahead_bytes: int = 0) -> None:
        """`ahead_bytes` is how much memory beyond the pages in use is asked for in idle time."""
        self.num_pages = num_pages
        self.page_size = ports[0].page_size
        self.bytes_per_page = bytes_per_page(ports)
        self._groups = [_KVGroup(members, num_pages) for members in _by_layout(ports)]
        self._ahead = MemoryAhead(self._populate, num_pages, ahead_bytes // self.bytes_per_page)

    @property
    def can_copy_part(self) -> bool:
        """Whether copying the leading tokens of a page is exact: not where scales are stored beside them."""
        return all(group.element_type in _EXACT_IN_PARTS for group in self._groups)

    def tensors(self) -> dict[str, ov.Tensor]:
        """Return the tensor of each port, which share this store's memory."""
        return {name: tensor for group in self._groups for name, tensor in group.tensors()}

    def touch(self, num_pages: int) -> None:
        """Have the operating system hand out the memory of the first pages now; their content stays."""
        for group in self._groups:
            group.data[:, :num_pages] |= 0

    def in_use(self, page: PageId) -> AbstractContextManager[None]:
        """Say that a step uses pages up to this one; afterwards memory for those behind it is asked for."""
        return self._ahead.in_use(page)

    def copy(self, copy: PageCopy) -> None:
        """Copy the first tokens of one page over those of another, in every layer."""
        for group in self._groups:
            data = group.data
            data[:, copy.target, :, : copy.num_tokens] = data[:, copy.source, :, : copy.num_tokens]

    def read_page(self, page: PageId) -> bytes:
        """Return one page in every layer, bit for bit."""
        return b"".join(group.data[:, page].tobytes() for group in self._groups)

    def write_page(self, page: PageId, data: bytes) -> None:
        """Replace one page in every layer by what `read_page` returned; ValueError for another length."""
        if len(data) != self.bytes_per_page:
            raise ValueError(f"a page has {self.bytes_per_page:,} bytes, not {len(data):,}")
        offset = 0
        for group in self._groups:
            target = group.data[:, page]
            values = np.frombuffer(data, group.data.dtype, target.size, offset)
            target[...] = values.reshape(target.shape)
            offset += target.nbytes

    def _populate(self, first: int, stop: int) -> bool:
        return all(populate(port[first:stop]) for group in self._groups for port in group.data)


class _KVGroup:
    """The tensors of one layout, as one array [num_ports, num_pages, num_heads, page_size, head_size]."""

    def __init__(self, ports: Sequence[KVPort], num_pages: int) -> None:
        self.names = [port.name for port in ports]
        self.element_type = ports[0].element_type
        self.page_shape = ports[0].page_shape
        shape = (len(ports), num_pages, *self.page_shape)
        self.data = _zeros(shape, np.dtype(f"u{_ELEMENT_BYTES[self.element_type]}"))

    def tensors(self) -> list[tuple[str, ov.Tensor]]:
        shape, element_type = ov.Shape(self.data.shape[1:]), getattr(ov.Type, self.element_type)
        return [
            (name, ov.Tensor(data, shape, element_type))
            for name, data in zip(self.names, self.data, strict=True)
        ]


def _by_layout(ports: Sequence[KVPort]) -> list[list[KVPort]]:
    groups: dict[tuple[str, tuple[int, ...]], list[KVPort]] = {}
    for port in ports:
        groups.setdefault((port.element_type, port.page_shape), []).append(port)
    return list(groups.values())


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros that begin at a multiple of `ALIGNMENT_BYTES`; numpy alone gives 16."""
    size_bytes = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + size_bytes].view(dtype).reshape(shape)


def pages_that_fit(
    page_bytes: int, *, num_pages: int | None, kv_cache_memory_bytes: int | None, free_bytes: int | None
) -> int:
    """Return how many pages to make, null page included: as told, or from a share of the free memory.

    `num_pages` wins over `kv_cache_memory_bytes`; with neither it is 25 % of `free_bytes`, 8 GiB at most.
    Raises NotEnoughMemoryError when there is not room for the null page and one more.
    """
    if num_pages is not None:
        return num_pages
    if kv_cache_memory_bytes is None:
        if free_bytes is None:
            raise NotEnoughMemoryError(
                "cannot find out how much memory is free; say how much to use with --kv-cache-memory-bytes"
            )
        kv_cache_memory_bytes = min(int(free_bytes * DEFAULT_SHARE), DEFAULT_LIMIT_BYTES)
    if kv_cache_memory_bytes < 2 * page_bytes:
        raise NotEnoughMemoryError(
            f"the K/V memory is {kv_cache_memory_bytes:,} bytes, but must hold at least 2 pages of "
            f"{page_bytes:,} bytes; raise --kv-cache-memory-bytes"
        )
    return kv_cache_memory_bytes // page_bytes


def check_memory_is_there(num_bytes: int, free_bytes: int | None) -> None:
    """Raise NotEnoughMemoryError for more K/V memory than the machine has free.

    It is handed out on first use, so asking for too much would end the process later, in the middle of its work.
    """
    if free_bytes is not None and num_bytes > free_bytes:
        raise NotEnoughMemoryError(
            f"the K/V pages need {num_bytes / 2**30:,.1f} GiB, but {free_bytes / 2**30:,.1f} GiB of memory are free; "
            "lower --kv-cache-memory-bytes or --num-pages"
        )


def check_one_request_fits(num_pages: int, max_model_len: int, page_size: int, page_bytes: int) -> None:
    """Raise NotEnoughMemoryError unless the usable pages hold one request of full length."""
    num_needed = -(-max_model_len // page_size)
    num_usable = num_pages - 1
    if num_needed > num_usable:
        raise NotEnoughMemoryError(
            f"one request of {max_model_len:,} tokens needs {num_needed:,} pages ({num_needed * page_bytes:,} bytes "
            f"of K/V), but only {num_usable:,} fit; lower --max-model-len to {num_usable * page_size:,}, or raise "
            f"--kv-cache-memory-bytes to {(num_needed + 1) * page_bytes:,} (--num-pages to {num_needed + 1:,})"
        )
