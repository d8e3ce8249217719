import json
from pathlib import Path
from typing import Any

import pytest

from anaphora.errors import ConfigError, ModelError
from anaphora.runner.openvino.model_files import ModelFiles, choose_max_model_len, open_model_files

PARTS = (
    "openvino_model.xml",
    "openvino_model.bin",
    "openvino_tokenizer.xml",
    "openvino_tokenizer.bin",
    "openvino_detokenizer.xml",
    "openvino_detokenizer.bin",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An OpenVINO folder as far as names go."""
    path = tmp_path / "SmolLM2-135M"
    path.mkdir()
    for name in PARTS:
        (path / name).write_text(name)
    return path


def opened(folder: Path, config: Any = None, generation: Any = None) -> ModelFiles:
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return open_model_files(folder, folder / "unused")


def test_what_config_json_says_is_read(folder: Path) -> None:
    files = opened(folder, {"model_type": "llama", "max_position_embeddings": 8192, "eos_token_id": 2})
    assert files.name == "SmolLM2-135M"
    assert files.architecture == "llama"
    assert files.context_length == 8192
    assert files.eos_token_ids == {2}


def test_end_tokens_of_both_files_count(folder: Path) -> None:
    assert opened(folder, {"eos_token_id": 2}, {"eos_token_id": [2, 7]}).eos_token_ids == {2, 7}


def test_a_text_model_inside_a_larger_one_is_found(folder: Path) -> None:
    config = {"eos_token_id": 1, "text_config": {"max_position_embeddings": 4096, "eos_token_id": [5]}}
    files = opened(folder, config)
    assert files.context_length == 4096
    assert files.eos_token_ids == {1, 5}


def test_a_folder_without_config_json_says_nothing(folder: Path) -> None:
    files = opened(folder)
    assert files.context_length is None
    assert files.architecture == "unknown"
    assert files.eos_token_ids == frozenset()


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[1]"])
def test_a_broken_config_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"config\.json.*export the model again"):
        open_model_files(folder, folder)


@pytest.mark.parametrize("value", [0, -1, "8k", 1.5])
def test_a_context_that_is_no_number_of_tokens_is_refused(folder: Path, value: Any) -> None:
    with pytest.raises(ModelError, match=r"max_position_embeddings is .*, but must be a number of tokens"):
        opened(folder, {"max_position_embeddings": value})


@pytest.mark.parametrize(
    "missing, remedy",
    [
        ("openvino_model.xml", "optimum-cli export openvino"),
        ("openvino_model.bin", "copy it there"),
        ("openvino_tokenizer.xml", "convert_tokenizer HF_FOLDER --with-detokenizer"),
        ("openvino_detokenizer.xml", "convert_tokenizer HF_FOLDER --with-detokenizer"),
    ],
)
def test_a_folder_without_a_part_is_refused_with_the_remedy(folder: Path, missing: str, remedy: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelError) as caught:
        open_model_files(folder, folder)
    assert f"{folder} has no {missing}; " in str(caught.value)
    assert remedy in str(caught.value)


def test_digests_change_with_the_content_of_their_own_files_only(folder: Path) -> None:
    before = opened(folder)
    assert opened(folder) == before
    (folder / "openvino_model.bin").write_text("other weights")
    other_weights = opened(folder)
    assert other_weights.weights_digest != before.weights_digest
    assert other_weights.tokenizer_digest == before.tokenizer_digest
    (folder / "openvino_tokenizer.bin").write_text("other vocabulary")
    other_tokenizer = opened(folder)
    assert other_tokenizer.weights_digest == other_weights.weights_digest
    assert other_tokenizer.tokenizer_digest != before.tokenizer_digest


def test_a_renamed_folder_keeps_its_digests(folder: Path) -> None:
    before = opened(folder)
    after = open_model_files(folder.rename(folder.with_name("other")), folder)
    assert after.weights_digest == before.weights_digest
    assert after.tokenizer_digest == before.tokenizer_digest


def test_a_file_that_is_neither_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"cannot read .*nowhere"):
        open_model_files(tmp_path / "nowhere", tmp_path)


def test_the_length_of_a_request_is_the_models_context_or_less() -> None:
    assert choose_max_model_len(8192, None) == 8192
    assert choose_max_model_len(8192, 4096) == 4096
    assert choose_max_model_len(8192, 8192) == 8192
    assert choose_max_model_len(None, 4096) == 4096
    with pytest.raises(
        ConfigError, match=r"--max-model-len is 8,193, but the model's context is 8,192 tokens"
    ):
        choose_max_model_len(8192, 8193)
    with pytest.raises(ModelError, match="give --max-model-len"):
        choose_max_model_len(None, None)
