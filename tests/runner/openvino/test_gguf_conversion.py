import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import openvino_genai
import pytest

from anaphora.errors import ModelError
from anaphora.runner.openvino.gguf_conversion import convert_gguf
from tests.models.gguf_files import F32, Q4_1, Q5_0, GGUFFile
from tests.runner.openvino.tiny_models import tiny_model

REMEDY = "export the original model with `optimum-cli export openvino` and serve that folder"
FILES = [
    "config.json",
    "openvino_detokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_model.bin",
    "openvino_model.xml",
    "openvino_tokenizer.bin",
    "openvino_tokenizer.xml",
]


def refusal(file: GGUFFile, folder: Path) -> str:
    path = file.write(folder / "m.gguf")
    with pytest.raises(ModelError) as caught:
        convert_gguf(path, folder / "cache")
    assert not (folder / "cache").exists()
    return str(caught.value).removeprefix(f"{path}")


def test_an_architecture_that_the_loader_does_not_know_is_refused(tmp_path: Path) -> None:
    message = refusal(GGUFFile().having(general__architecture="gemma3"), tmp_path)
    assert message == f": its architecture is 'gemma3', but must be one of llama, qwen2, qwen3; {REMEDY}"


def test_a_quantisation_that_the_loader_does_not_know_is_refused(tmp_path: Path) -> None:
    tensors = [("output_norm.weight", (32,), F32), ("blk.0.attn_q.weight", (32, 2), Q5_0)]
    assert refusal(replace(GGUFFile(), tensors=tensors), tmp_path) == (
        ": the type of its tensor blk.0.attn_q.weight is 'Q5_0', "
        f"but must be one of F16, Q8_0, Q6_K, Q4_K, Q4_1, Q4_0; {REMEDY}"
    )


def test_a_matrix_of_plain_floats_is_refused(tmp_path: Path) -> None:
    message = refusal(replace(GGUFFile(), tensors=[("output.weight", (32, 2), F32)]), tmp_path)
    assert message.startswith(": the type of its tensor output.weight is 'F32'")


@pytest.mark.parametrize(
    "key, value, what",
    [
        ("tokenizer__ggml__model", "llama", "its tokenizer is 'llama', but must be one of gpt2"),
        (
            "tokenizer__ggml__pre",
            "llama-bpe",
            "its way to split text is 'llama-bpe', but must be one of default, qwen2, smollm",
        ),
    ],
)
def test_a_tokenizer_that_the_loader_would_get_wrong_is_refused(
    tmp_path: Path, key: str, value: str, what: str
) -> None:
    assert refusal(GGUFFile().having(**{key: value}), tmp_path) == f": {what}; {REMEDY}"


def test_scaled_positions_are_refused_since_the_loader_ignores_them(tmp_path: Path) -> None:
    message = f" scales its rotary embedding, which OpenVINO's GGUF loader would ignore; {REMEDY}"
    assert refusal(GGUFFile().having(llama__rope__scaling__type="yarn"), tmp_path) == message
    factors = [("token_embd.weight", (32, 3), Q4_1), ("rope_freqs.weight", (32,), F32)]
    assert refusal(replace(GGUFFile(), tensors=factors), tmp_path) == message


def test_one_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    message = refusal(GGUFFile().having(split__count=3), tmp_path)
    assert message == " is one part of several; join them with `llama-gguf-split --merge`"


def test_a_cache_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    path = GGUFFile().write(tmp_path / "m.gguf")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelError, match=r"cannot convert .*: Not a directory; .* ANAPHORA_CACHE_DIR"):
        convert_gguf(path, tmp_path / "cache")


@pytest.mark.model
def test_a_file_that_the_loader_rejects_leaves_one_line_and_no_folder(tmp_path: Path) -> None:
    path = GGUFFile().write(tmp_path / "m.gguf")  # it has no layers
    with pytest.raises(ModelError) as caught:
        convert_gguf(path, tmp_path / "cache")
    assert str(caught.value) == (
        f"OpenVINO cannot load {path}: it lacks a value or a tensor that the loader needs; {REMEDY}"
    )
    kept = [file.name for file in (tmp_path / "cache").rglob("*") if file.is_dir() or file.suffix != ".lock"]
    assert kept == ["openvino", f"{openvino_genai.__version__}-1"]


@pytest.mark.model
def test_a_conversion_is_made_once_and_complete(tmp_path: Path) -> None:
    path = tiny_model("llama").write(tmp_path / "m.gguf")
    folder, digest = convert_gguf(path, tmp_path / "cache")
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert folder == tmp_path / "cache" / "openvino" / f"{openvino_genai.__version__}-1" / digest.hex()
    assert json.loads((folder / "config.json").read_text()) == {
        "model_type": "llama",
        "max_position_embeddings": 512,
        "eos_token_id": [257],
    }
    inode = (folder / "openvino_model.xml").stat().st_ino
    assert convert_gguf(path, tmp_path / "cache") == (folder, digest)
    assert (folder / "openvino_model.xml").stat().st_ino == inode


@pytest.mark.model
def test_what_a_killed_conversion_left_is_replaced(tmp_path: Path) -> None:
    path = tiny_model("llama").write(tmp_path / "m.gguf")
    folder, _ = convert_gguf(path, tmp_path / "cache")
    partial = folder.rename(folder.with_suffix(".partial"))
    (partial / "openvino_model.bin").write_bytes(b"half")
    convert_gguf(path, tmp_path / "cache")
    assert sorted(file.name for file in folder.iterdir()) == FILES
    assert (folder / "openvino_model.bin").stat().st_size > 4
    assert not partial.exists()


@pytest.mark.model
def test_of_two_at_once_one_converts_and_the_other_waits(tmp_path: Path) -> None:
    path = tiny_model("llama").write(tmp_path / "m.gguf")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: convert_gguf(path, tmp_path / "cache"), range(2))
    assert first == second
    assert sorted(file.name for file in first[0].iterdir()) == FILES


@pytest.mark.model
def test_the_converted_tokenizer_keeps_texts_of_more_than_8192_tokens(tmp_path: Path) -> None:
    """OpenVINO's own conversion keeps the last 8,192 tokens and drops the rest without a word."""
    folder, _ = convert_gguf(tiny_model("llama").write(tmp_path / "m.gguf"), tmp_path / "cache")
    tokenizer = openvino_genai.Tokenizer(folder)
    token_ids = tokenizer.encode("<|end|>" + "x " * 10_000).input_ids.data[0].tolist()
    assert len(token_ids) == 20_001
    assert token_ids[0] == 257
    assert re.fullmatch("(x ){10000}", tokenizer.decode(token_ids))
