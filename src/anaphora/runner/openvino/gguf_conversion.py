"""GGUF file → folder of OpenVINO files, once per file and OpenVINO version.

Knows which GGUF files OpenVINO's loader understands, and where their conversions are kept. The conversion
itself is `gguf_child.py`'s; what becomes of the files is `model_files.py`'s.
"""

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import openvino_genai
from filelock import FileLock

from anaphora.errors import ModelError
from anaphora.models.gguf import GGUFHeader, read_gguf_header
from anaphora.runner.openvino.native_errors import last_line

CONVERSION = 1
"""Counts changes of what a conversion writes, so that older conversions are not used."""

# What OpenVINO GenAI 2026.4 loads (its gguf_modeling.cpp, building_blocks.cpp and gguf_tokenizer.cpp).
ARCHITECTURES = ("llama", "qwen2", "qwen3")
MATRIX_TYPES = ("F16", "Q8_0", "Q6_K", "Q4_K", "Q4_1", "Q4_0")
TOKENIZERS = ("gpt2",)
TEXT_SPLITS = ("default", "qwen2", "smollm")

REMEDY = "export the original model with `optimum-cli export openvino` and serve that folder"
CHILD = Path(__file__).with_name("gguf_child.py")

_log = logging.getLogger(__name__)


def convert_gguf(gguf: Path, cache_folder: Path) -> tuple[Path, bytes]:
    """Return the folder with the OpenVINO files of a GGUF file, and the file's SHA-256.

    The folder appears complete or not at all; of several processes one converts and the others wait.
    Raises ModelError when the file is damaged or of a kind that OpenVINO cannot load.
    """
    header = read_gguf_header(gguf)
    _check_supported(gguf, header)
    try:
        digest = file_digest(gguf)
        folder = cache_folder / "openvino" / f"{openvino_genai.__version__}-{CONVERSION}" / digest.hex()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not folder.is_dir():
                _convert(gguf, header, folder)
    except OSError as error:
        raise ModelError(
            f"cannot convert {gguf} in {cache_folder}: {error.strerror or error}; make room there, or name another "
            "folder with ANAPHORA_CACHE_DIR"
        ) from error
    return folder, digest


def file_digest(path: Path) -> bytes:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _check_supported(gguf: Path, header: GGUFHeader) -> None:
    """Refuse what the loader would reject, and what it would load wrongly."""
    _check_one_of(gguf, "its architecture", header.architecture, ARCHITECTURES)
    if (header.number("split.count") or 1) > 1:
        raise ModelError(f"{gguf} is one part of several; join them with `llama-gguf-split --merge`")
    for tensor in header.tensors:
        if len(tensor.shape) > 1:
            _check_one_of(gguf, f"the type of its tensor {tensor.name}", tensor.type_name, MATRIX_TYPES)
    _check_one_of(gguf, "its tokenizer", header.text("tokenizer.ggml.model") or "", TOKENIZERS)
    _check_one_of(gguf, "its way to split text", header.text("tokenizer.ggml.pre") or "", TEXT_SPLITS)
    _check_rotary_embedding(gguf, header)


def _check_one_of(gguf: Path, what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ModelError(f"{gguf}: {what} is {value!r}, but must be one of {', '.join(allowed)}; {REMEDY}")


def _check_rotary_embedding(gguf: Path, header: GGUFHeader) -> None:
    """Refuse scaled positions: the loader would ignore the scaling, and the model would be a worse one."""
    scaling = header.text(f"{header.architecture}.rope.scaling.type")
    if scaling not in (None, "none") or any(tensor.name == "rope_freqs.weight" for tensor in header.tensors):
        raise ModelError(
            f"{gguf} scales its rotary embedding, which OpenVINO's GGUF loader would ignore; {REMEDY}"
        )


def _convert(gguf: Path, header: GGUFHeader, folder: Path) -> None:
    """Convert into a temporary folder, then rename it; the caller holds the lock."""
    _log.info("converting %s for OpenVINO, once", gguf)
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        source = partial / "model.gguf"
        _link(gguf, source)
        _run_child(gguf, source)
        source.unlink()
        (partial / "config.json").write_text(json.dumps(_config(header), indent=2), "utf-8")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _link(gguf: Path, target: Path) -> None:
    """Make `gguf` appear at `target`, since the loader writes beside what it reads."""
    try:
        target.symlink_to(gguf.resolve())
    except OSError:  # Windows without the privilege
        shutil.copyfile(gguf, target)


def _run_child(gguf: Path, source: Path) -> None:
    # The log level would make the loader print; -P keeps the script's folder out of its module path.
    environment = {name: value for name, value in os.environ.items() if name != "OPENVINO_LOG_LEVEL"}
    child = subprocess.run(
        [sys.executable, "-P", str(CHILD), str(source)],
        capture_output=True,
        check=False,
        env=environment,
        encoding="utf-8",
        errors="replace",
    )
    if child.returncode != 0:
        raise ModelError(f"OpenVINO cannot load {gguf}: {_reason(child)}; {REMEDY}")


def _reason(child: "subprocess.CompletedProcess[str]") -> str:
    """What went wrong, in one line."""
    if child.returncode < 0:
        return f"its loader crashed with signal {-child.returncode}"
    reason = last_line(child.stderr)
    if reason.endswith("::at"):  # what C++ says of a key that a map does not have
        return "it lacks a value or a tensor that the loader needs"
    return reason or f"its loader ended with code {child.returncode}"


def _config(header: GGUFHeader) -> dict[str, object]:
    """What `config.json` of the same model on Hugging Face would say, as far as we need it."""
    architecture = header.architecture
    config: dict[str, object] = {
        "model_type": architecture,
        "max_position_embeddings": header.number(f"{architecture}.context_length"),
        "eos_token_id": sorted(_end_tokens(header)),
    }
    return {name: value for name, value in config.items() if value is not None}


def _end_tokens(header: GGUFHeader) -> set[int]:
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return {token_id for key in keys if (token_id := header.number(key)) is not None}
