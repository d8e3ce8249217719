"""A model as files: the folder of OpenVINO files, its content digests, and what its `config.json` says.

Knows file names. Does not read the network itself: that is `model.py`'s.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.errors import ConfigError, ModelError
from anaphora.ids import TokenId
from anaphora.models.generation_config import GENERATION_CONFIG
from anaphora.models.resolve import IR_FILE
from anaphora.runner.openvino.gguf_conversion import convert_gguf, file_digest

WEIGHTS = "openvino_model.bin"
TOKENIZER = "openvino_tokenizer.xml"
DETOKENIZER = "openvino_detokenizer.xml"
TOKENIZER_REMEDY = (
    "make one with `pip install openvino-tokenizers[transformers]` and "
    "`convert_tokenizer HF_FOLDER --with-detokenizer -o FOLDER`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where a model lies and what it is made of.

    `weights_digest` and `tokenizer_digest` are SHA-256 over content; of a model that came as one GGUF file
    both are the file's. `context_length` is None when the files do not say.
    """

    folder: Path
    name: str
    weights_digest: bytes
    tokenizer_digest: bytes
    architecture: str
    context_length: int | None
    eos_token_ids: frozenset[TokenId]


def open_model_files(path: Path, cache_folder: Path) -> ModelFiles:
    """Return the files of a GGUF file, converted into `cache_folder` if need be, or of an OpenVINO folder.

    Raises ModelError.
    """
    if path.is_dir():
        _check_folder(path)
        weights = _digest_of(path / IR_FILE, path / WEIGHTS)
        tokenizer = _digest_of(path / TOKENIZER, path / "openvino_tokenizer.bin")
        return _describe(path, path.resolve().name, weights, tokenizer)
    folder, digest = convert_gguf(path, cache_folder)
    return _describe(folder, path.stem, digest, digest)


def choose_max_model_len(context_length: int | None, wanted: int | None) -> int:
    """Return the most tokens of one request; `wanted` is --max-model-len, `context_length` the model's own.

    Raises ConfigError for more than the model was made for, ModelError when nobody says.
    """
    if wanted is None:
        if context_length is None:
            raise ModelError(
                "the model's files do not say how long its context is (max_position_embeddings in config.json); "
                "give --max-model-len"
            )
        return context_length
    if context_length is not None and wanted > context_length:
        raise ConfigError(
            f"--max-model-len is {wanted:,}, but the model's context is {context_length:,} tokens; lower it"
        )
    return wanted


def _check_folder(folder: Path) -> None:
    for name, remedy in (
        (IR_FILE, "export one with `optimum-cli export openvino --model NAME FOLDER`, or name a .gguf file"),
        (WEIGHTS, "copy it there, or export the model again"),
        (TOKENIZER, TOKENIZER_REMEDY),
        (DETOKENIZER, TOKENIZER_REMEDY),
    ):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}; {remedy}")


def _digest_of(*paths: Path) -> bytes:
    """SHA-256 over the digests of files that exist, each in its place."""
    try:
        digests = [file_digest(path) if path.is_file() else bytes(32) for path in paths]
    except OSError as error:
        raise ModelError(f"cannot read {error.filename}: {error.strerror}") from error
    return hashlib.sha256(b"".join(digests)).digest()


def _describe(folder: Path, name: str, weights_digest: bytes, tokenizer_digest: bytes) -> ModelFiles:
    config = _read_json(folder / "config.json")
    generation = _read_json(folder / GENERATION_CONFIG)
    text_config = config.get("text_config", config)  # where a model is more than a language model
    return ModelFiles(
        folder=folder,
        name=name,
        weights_digest=weights_digest,
        tokenizer_digest=tokenizer_digest,
        architecture=str(config.get("model_type", "unknown")),
        context_length=_context_length(folder, text_config),
        eos_token_ids=_token_ids(text_config) | _token_ids(config) | _token_ids(generation),
    )


def _read_json(path: Path) -> Mapping[str, Any]:
    """The object in a file; empty when there is no such file."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}; export the model again") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object; export the model again")
    return value


def _context_length(folder: Path, config: Mapping[str, Any]) -> int | None:
    value = config.get("max_position_embeddings")
    if value is None:
        return None
    if not isinstance(value, int) or value < 1:
        raise ModelError(
            f"{folder / 'config.json'}: max_position_embeddings is {value!r}, but must be a number of tokens"
        )
    return value


def _token_ids(config: Mapping[str, Any]) -> frozenset[TokenId]:
    """The end tokens, which are written as one number or as a list."""
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return frozenset(token_id for token_id in values if isinstance(token_id, int))
