"""Tiny tensors: two layers, pages of four tokens, one head of two values unless said."""

import numpy as np
import openvino as ov
import pytest

from anaphora.errors import NotEnoughMemoryError
from anaphora.ids import PageId
from anaphora.runner.openvino.kv_store import (
    ALIGNMENT_BYTES,
    KVPort,
    KVStore,
    bytes_per_page,
    check_one_request_fits,
    pages_that_fit,
)
from anaphora.scheduler.plan import PageCopy

GIB = 1024**3
NAMES = ("key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1")


def make_ports(element_type: str = "bf16", shape: tuple[int, ...] = (1, 4, 2)) -> list[KVPort]:
    return [KVPort(name, element_type, shape) for name in NAMES]


def numbered(store: KVStore) -> None:
    """Give every byte of every tensor another value than its neighbours."""
    for group in store._groups:
        flat = group.data.reshape(-1)
        flat[:] = np.arange(1, flat.size + 1)


def copy(source: int, target: int, num_tokens: int) -> PageCopy:
    return PageCopy(PageId(source), PageId(target), num_tokens)


def test_a_page_takes_its_bytes_in_every_tensor() -> None:
    assert bytes_per_page(make_ports()) == 4 * 1 * 4 * 2 * 2
    assert bytes_per_page(make_ports("f32")) == 4 * 1 * 4 * 2 * 4
    assert KVStore(make_ports(), 3).bytes_per_page == 64


def test_the_demo_models_page_has_737280_bytes() -> None:
    ports = [KVPort(f"key_cache.{i}", "bf16", (3, 32, 64)) for i in range(60)]
    assert bytes_per_page(ports) == 737_280


def test_tensors_share_the_stores_memory() -> None:
    store = KVStore(make_ports(), 3)
    tensors = store.tensors()
    assert set(tensors) == set(NAMES)
    assert all(list(tensor.shape) == [3, 1, 4, 2] for tensor in tensors.values())
    assert all(tensor.element_type == ov.Type.bf16 for tensor in tensors.values())
    tensors["value_cache.1"].data.view(np.uint16)[2, 0, 3, 1] = 0x3F80
    assert store.read_page(PageId(2))[-2:] == b"\x80\x3f"


def test_memory_starts_as_zeros_and_aligned() -> None:
    store = KVStore(make_ports("f32"), 3)
    assert store.read_page(PageId(2)) == bytes(128)
    assert store._groups[0].data.ctypes.data % ALIGNMENT_BYTES == 0


def test_touching_pages_leaves_what_they_hold() -> None:
    store = KVStore(make_ports(), 4)
    numbered(store)
    pages = [store.read_page(PageId(page)) for page in range(4)]
    store.touch(2)
    store.touch(1_000)
    assert [store.read_page(PageId(page)) for page in range(4)] == pages


def test_a_copy_moves_the_leading_tokens_of_a_page_in_every_tensor() -> None:
    store = KVStore(make_ports(), 3)
    numbered(store)
    before = {name: np.array(tensor.data.view(np.uint16)) for name, tensor in store.tensors().items()}
    store.copy(copy(1, 2, 3))
    for name, tensor in store.tensors().items():
        after = tensor.data.view(np.uint16)
        assert (after[2, :, :3] == before[name][1, :, :3]).all()
        assert (after[2, :, 3:] == before[name][2, :, 3:]).all()
        assert (after[:2] == before[name][:2]).all()


def test_a_copied_page_can_be_the_source_of_the_next_copy() -> None:
    store = KVStore(make_ports(), 4)
    numbered(store)
    store.copy(copy(1, 2, 4))
    store.copy(copy(2, 3, 4))
    assert store.read_page(PageId(3)) == store.read_page(PageId(1))


def test_every_bit_pattern_survives_a_copy_and_a_round_trip() -> None:
    """Among the 65,536 patterns of two bytes are NaNs whose bits arithmetic would change."""
    store = KVStore([KVPort("key_cache.0", "bf16", (2, 4, 8192))], 3)
    store._groups[0].data[0, 1] = np.arange(65_536, dtype=np.uint16).reshape(2, 4, 8192)
    store.copy(copy(1, 2, 4))
    data = store.read_page(PageId(2))
    assert data == store.read_page(PageId(1))
    assert np.array_equal(np.sort(np.frombuffer(data, np.uint16)), np.arange(65_536))


def test_a_page_written_back_reads_the_same_and_touches_no_other() -> None:
    store = KVStore(make_ports(), 4)
    numbered(store)
    pages = [store.read_page(PageId(page)) for page in range(4)]
    store.write_page(PageId(2), pages[1])
    assert [store.read_page(PageId(page)) for page in range(4)] == [pages[0], pages[1], pages[1], pages[3]]


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_page_of_another_length_is_refused_and_nothing_written(length: int) -> None:
    store = KVStore(make_ports(), 3)
    with pytest.raises(ValueError, match=f"a page has 64 bytes, not {length}"):
        store.write_page(PageId(1), b"x" * length)
    assert store.read_page(PageId(1)) == bytes(64)


def test_tensors_of_different_shapes_are_kept_together_in_one_page() -> None:
    ports = [KVPort("key_cache.0", "u8", (1, 4, 6)), KVPort("value_cache.0", "bf16", (2, 4, 2))]
    store = KVStore(ports, 3)
    numbered(store)
    assert store.bytes_per_page == 24 + 32
    assert list(store.tensors()) == ["key_cache.0", "value_cache.0"]
    page = store.read_page(PageId(1))
    assert len(page) == 56
    store.write_page(PageId(2), page)
    assert store.read_page(PageId(2)) == page


def test_parts_of_a_page_are_exact_unless_scales_lie_beside_them() -> None:
    assert KVStore(make_ports("bf16"), 2).can_copy_part
    assert KVStore(make_ports("f32"), 2).can_copy_part
    assert not KVStore(make_ports("u8"), 2).can_copy_part


@pytest.mark.parametrize(
    "num_pages, memory, free, expected",
    [
        (7, 10_000, 1 * GIB, 7),  # said outright
        (None, 10_000, 1 * GIB, 10),  # from the memory given
        (None, None, 100_000, 25),  # a quarter of what is free
        (None, None, 64 * GIB, 8 * GIB // 1000),  # 8 GiB at most
        (None, 2_000, None, 2),  # nothing known of what is free, nor needed
    ],
)
def test_the_number_of_pages(
    num_pages: int | None, memory: int | None, free: int | None, expected: int
) -> None:
    pages = pages_that_fit(1000, num_pages=num_pages, kv_cache_memory_bytes=memory, free_bytes=free)
    assert pages == expected


def test_too_little_memory_for_two_pages_is_refused() -> None:
    with pytest.raises(NotEnoughMemoryError, match=r"is 1,999 bytes, .* 2 pages of 1,000 bytes; raise --kv"):
        pages_that_fit(1000, num_pages=None, kv_cache_memory_bytes=1999, free_bytes=GIB)


def test_unknown_free_memory_asks_for_a_number() -> None:
    with pytest.raises(NotEnoughMemoryError, match="say how much to use with --kv-cache-memory-bytes"):
        pages_that_fit(1000, num_pages=None, kv_cache_memory_bytes=None, free_bytes=None)


def test_one_request_of_full_length_must_fit_beside_the_null_page() -> None:
    check_one_request_fits(num_pages=257, max_model_len=8192, page_size=32, page_bytes=1000)
    with pytest.raises(NotEnoughMemoryError) as caught:
        check_one_request_fits(num_pages=256, max_model_len=8192, page_size=32, page_bytes=1000)
    assert str(caught.value) == (
        "one request of 8,192 tokens needs 256 pages (256,000 bytes of K/V), but only 255 fit; "
        "lower --max-model-len to 8,160, or raise --kv-cache-memory-bytes to 257,000 (--num-pages to 257)"
    )


def test_a_last_page_that_is_not_full_counts_whole() -> None:
    check_one_request_fits(num_pages=3, max_model_len=33, page_size=32, page_bytes=1000)
    with pytest.raises(NotEnoughMemoryError, match="needs 2 pages"):
        check_one_request_fits(num_pages=2, max_model_len=33, page_size=32, page_bytes=1000)
