import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.errors import ModelError
from anaphora.models.gguf import GGUFArray, GGUFTensor, read_gguf_header
from tests.models.gguf_files import F32, Q4_1, GGUFFile


def test_the_header_is_read(tmp_path: Path) -> None:
    header = read_gguf_header(GGUFFile().write(tmp_path / "m.gguf"))
    assert header.architecture == "llama"
    assert header.text("tokenizer.ggml.pre") == "smollm"
    assert header.number("llama.context_length") == 512
    assert header.length("tokenizer.ggml.tokens") == 3
    assert header.metadata["tokenizer.ggml.tokens"] == GGUFArray(3)
    assert header.tensors == (
        GGUFTensor("token_embd.weight", (32, 3), Q4_1, 0),
        GGUFTensor("output_norm.weight", (32,), F32, 64),
    )


def test_a_tensor_knows_its_type_and_size() -> None:
    assert GGUFTensor("t", (64, 3), Q4_1, 0).type_name == "Q4_1"
    assert GGUFTensor("t", (64, 3), Q4_1, 0).size_bytes == 120  # 6 blocks of 20 bytes
    assert GGUFTensor("t", (64, 3), 99, 0).type_name == "type 99"
    assert GGUFTensor("t", (64, 3), 99, 0).size_bytes == 0


def test_a_value_of_another_kind_is_none(tmp_path: Path) -> None:
    header = read_gguf_header(GGUFFile().write(tmp_path / "m.gguf"))
    assert header.number("general.architecture") is None
    assert header.text("llama.context_length") is None
    assert header.length("llama.context_length") is None
    assert header.number("no.such.key") is None


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*none\.gguf: No such file"):
        read_gguf_header(tmp_path / "none.gguf")


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\3\4 a wheel, say"])
def test_another_kind_of_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ModelError, match=r"m\.gguf is not a GGUF file"):
        read_gguf_header(tmp_path / "m.gguf")


@pytest.mark.parametrize("version", [1, 4, 3 << 24])
def test_another_version_is_refused(tmp_path: Path, version: int) -> None:
    path = GGUFFile(version=version).write(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match=f"is GGUF version {version}, but only versions 2 and 3"):
        read_gguf_header(path)


def test_a_file_without_its_last_byte_is_truncated(tmp_path: Path) -> None:
    path = GGUFFile(tensors=[("output_norm.weight", (32,), F32)]).write(tmp_path / "m.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    message = (
        f"is truncated: it has {len(whole) - 1:,} bytes, but its tensors end at byte {len(whole):,}; download"
    )
    with pytest.raises(ModelError, match=message):
        read_gguf_header(path)


def test_a_file_cut_anywhere_in_its_header_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    header = GGUFFile().header()
    for length in range(4, len(header) - 32):
        path.write_bytes(header[:length])
        with pytest.raises(ModelError, match=f"it has {length} bytes, but .*; download it again"):
            read_gguf_header(path)


def test_counts_that_no_file_can_hold_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63))
    with pytest.raises(ModelError, match="is truncated"):
        read_gguf_header(path)


def test_unknown_and_nested_values_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k"
    path.write_bytes(head + struct.pack("<I", 77))
    with pytest.raises(ModelError, match="is damaged: there is no value type 77"):
        read_gguf_header(path)
    path.write_bytes(head + struct.pack("<IIQ", 9, 9, 1))
    with pytest.raises(ModelError, match="is damaged: it has a list of value type 9"):
        read_gguf_header(path)


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
@settings(max_examples=200, deadline=None)
def test_no_changed_byte_makes_more_than_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    path = GGUFFile().write(tmp_path_factory.getbasetemp() / "changed.gguf")
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)
    with suppress(ModelError):
        read_gguf_header(path)
