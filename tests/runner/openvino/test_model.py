import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anaphora.errors import ModelError
from anaphora.runner.openvino.kv_store import KVPort, bytes_per_page
from anaphora.runner.openvino.model import PagedModel, choose_precision, load_paged_model


@pytest.mark.parametrize(
    "dtype, capabilities, expected",
    [
        ("auto", ["FP32", "INT8", "BF16"], "bfloat16"),
        ("auto", ["FP32", "INT8"], "float32"),
        ("bfloat16", ["FP32", "BF16"], "bfloat16"),
        ("float32", ["FP32", "BF16"], "float32"),
        ("float32", ["FP32"], "float32"),
    ],
)
def test_the_precision_follows_the_flag_and_the_cpu(
    dtype: str, capabilities: list[str], expected: str
) -> None:
    assert choose_precision(dtype, capabilities) == expected


def test_bfloat16_on_a_cpu_without_it_is_refused() -> None:
    """OpenVINO would compute in float32 and say nothing."""
    with pytest.raises(ModelError, match=r"this CPU has neither .*; leave --dtype at auto, or give float32"):
        choose_precision("bfloat16", ["FP32", "INT8"])


@pytest.mark.model
@pytest.mark.parametrize(
    "dtype, element_type, page_bytes", [("bfloat16", "bf16", 737_280), ("float32", "f32", 1_474_560)]
)
def test_the_demo_models_pages(
    load_demo: Callable[[str], PagedModel], dtype: str, element_type: str, page_bytes: int
) -> None:
    model = load_demo(dtype)
    assert model.precision == dtype
    assert model.vocab_size == 49_152
    assert model.page_size == 32
    assert len(model.kv_ports) == 60
    assert model.kv_ports[0] == KVPort("key_cache.0", element_type, (3, 32, 64))
    assert {port.name for port in model.kv_ports} == {
        f"{kind}_cache.{layer}" for kind in ("key", "value") for layer in range(30)
    }
    assert bytes_per_page(model.kv_ports) == page_bytes
    assert model.num_threads >= 1


@pytest.mark.model
def test_a_file_that_is_no_network_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("<net")
    (tmp_path / "openvino_model.bin").write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        load_paged_model(tmp_path, "float32")
    assert str(caught.value).startswith(f"OpenVINO cannot load {tmp_path}: ")
    assert "\n" not in str(caught.value)
    assert "Exception from" not in str(caught.value)


@pytest.mark.model
def test_a_network_that_makes_no_text_is_refused_in_one_line(demo_folder: Path, tmp_path: Path) -> None:
    for suffix in (".xml", ".bin"):
        shutil.copy(demo_folder / f"openvino_detokenizer{suffix}", tmp_path / f"openvino_model{suffix}")
    with pytest.raises(ModelError) as caught:
        load_paged_model(tmp_path, "float32")
    assert "\n" not in str(caught.value)
