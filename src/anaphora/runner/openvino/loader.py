"""A path → a model that is ready to run: puts the parts of this package together, and checks that they fit."""

from dataclasses import dataclass
from pathlib import Path

import openvino_genai

from anaphora.config import CacheConfig, ModelConfig
from anaphora.errors import ModelError
from anaphora.runner.openvino.free_memory import free_memory_bytes
from anaphora.runner.openvino.gguf_conversion import convert_gguf
from anaphora.runner.openvino.kv_store import (
    KVStore,
    bytes_per_page,
    check_memory_is_there,
    check_one_request_fits,
    pages_that_fit,
)
from anaphora.runner.openvino.model import PagedModel, load_paged_model
from anaphora.runner.openvino.model_facts import ModelFacts, gather_facts
from anaphora.runner.openvino.model_files import (
    TOKENIZER,
    TOKENIZER_REMEDY,
    choose_max_model_len,
    open_model_files,
)
from anaphora.runner.openvino.native_errors import reason_of
from anaphora.runner.openvino.runner import OpenVINORunner, Sampler

TOUCHED_BYTES = 256 * 1024**2
"""K/V memory taken at the start: what the first requests use. All of it would delay the start by seconds."""

AHEAD_BYTES = 1024**3
"""K/V memory asked for beyond what is in use, in idle time: 20 busy seconds of the demo model on two cores."""


@dataclass(frozen=True, slots=True)
class LoadedRunner:
    """A model that is ready to run; `tokenizer` is the library's, to be wrapped."""

    runner: OpenVINORunner
    tokenizer: openvino_genai.Tokenizer
    facts: ModelFacts


def load_runner(
    path: Path, *, cache_folder: Path, model_config: ModelConfig, cache_config: CacheConfig, sampler: Sampler
) -> LoadedRunner:
    """Load a GGUF file or an OpenVINO folder and allocate its K/V pages.

    Conversions of GGUF files are kept in `cache_folder`.
    Raises ModelError, ConfigError or NotEnoughMemoryError, each one line with value, limit and remedy.
    """
    files = open_model_files(path, cache_folder)
    max_model_len = choose_max_model_len(files.context_length, model_config.max_model_len)
    tokenizer = _load_tokenizer(files.folder)
    model = load_paged_model(files.folder, model_config.dtype)
    kv_store = _make_kv_store(model, cache_config, max_model_len)
    runner = OpenVINORunner(model, kv_store, sampler, block_size=cache_config.block_size)
    runner.warm_up()
    return LoadedRunner(runner, tokenizer, gather_facts(files, model, max_model_len))


def _make_kv_store(model: PagedModel, config: CacheConfig, max_model_len: int) -> KVStore:
    page_bytes = bytes_per_page(model.kv_ports)
    free_bytes = free_memory_bytes()
    num_pages = pages_that_fit(
        page_bytes,
        num_pages=config.num_pages,
        kv_cache_memory_bytes=config.kv_cache_memory_bytes,
        free_bytes=free_bytes,
    )
    check_memory_is_there(num_pages * page_bytes, free_bytes)
    check_one_request_fits(num_pages, max_model_len, model.page_size, page_bytes)
    kv_store = KVStore(model.kv_ports, num_pages, ahead_bytes=AHEAD_BYTES)
    kv_store.touch(TOUCHED_BYTES // page_bytes)
    return kv_store


def load_tokenizer(path: Path, cache_folder: Path) -> openvino_genai.Tokenizer:
    """Load the tokenizer of a GGUF file, converted into `cache_folder` if need be, or of a folder; no weights.

    Raises ModelError.
    """
    folder = path if path.is_dir() else convert_gguf(path, cache_folder)[0]
    if not (folder / TOKENIZER).is_file():
        raise ModelError(f"{folder} has no {TOKENIZER}; {TOKENIZER_REMEDY}")
    return _load_tokenizer(folder)


def _load_tokenizer(folder: Path) -> openvino_genai.Tokenizer:
    try:
        return openvino_genai.Tokenizer(folder)
    except RuntimeError as error:
        raise ModelError(f"OpenVINO cannot load the tokenizer in {folder}: {reason_of(error)}") from error
