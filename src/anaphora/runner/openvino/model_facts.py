"""What there is to say about a loaded model, and the fingerprint under which its K/V may be reused."""

import hashlib
import struct
from dataclasses import dataclass

import openvino as ov

from anaphora.ids import TokenId
from anaphora.runner.openvino.kv_store import bytes_per_page
from anaphora.runner.openvino.model import PagedModel
from anaphora.runner.openvino.model_files import ModelFiles

FINGERPRINT_FORMAT = b"anaphora.model.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What people and the engine are told.

    `max_model_len` is the most tokens of one request; `fingerprint` (32 bytes) names everything that K/V
    depend on besides tokens. `eos_token_ids` are those in the model's files; its tokenizer may know more.
    """

    name: str
    architecture: str
    context_length: int | None
    max_model_len: int
    vocab_size: int
    inference_precision: str
    kv_precision: str
    bytes_per_page: int
    num_threads: int
    fingerprint: bytes
    eos_token_ids: frozenset[TokenId]


def gather_facts(files: ModelFiles, model: PagedModel, max_model_len: int) -> ModelFacts:
    """Return what the files and the compiled model say."""
    return ModelFacts(
        name=files.name,
        architecture=files.architecture,
        context_length=files.context_length,
        max_model_len=max_model_len,
        vocab_size=model.vocab_size,
        inference_precision=model.precision,
        kv_precision=model.kv_ports[0].element_type,
        bytes_per_page=bytes_per_page(model.kv_ports),
        num_threads=model.num_threads,
        fingerprint=model_fingerprint(files, model, f"openvino {ov.__version__}"),
        eos_token_ids=files.eos_token_ids,
    )


def model_fingerprint(files: ModelFiles, model: PagedModel, runtime: str) -> bytes:
    """Return 32 bytes: models that share them write the same K/V for the same tokens, bit for bit.

    They cover the weights, the tokenizer, the precisions, the K/V layout, and `runtime`, the library whose
    kernels compute. A field is tag (1 byte) ‖ length (u32 little-endian) ‖ body, in ascending order of tags.
    """
    layout = ";".join(f"{port.name}:{port.element_type}:{port.page_shape}" for port in model.kv_ports)
    fields = {
        0x00: FINGERPRINT_FORMAT,
        0x01: files.weights_digest,
        0x02: files.tokenizer_digest,
        0x03: model.precision.encode(),
        0x04: layout.encode(),
        0x05: runtime.encode(),
    }
    encoded = b"".join(struct.pack("<BI", tag, len(body)) + body for tag, body in fields.items())
    return hashlib.sha256(encoded).digest()
