"""Models of two layers with random weights, in every architecture that OpenVINO's GGUF loader takes."""

from typing import Any

import numpy as np

from tests.models.gguf_files import F16, F32, GGUFFile

HIDDEN, HEADS, KV_HEADS, HEAD_SIZE, INNER, LAYERS = 64, 4, 2, 16, 96, 2
END_OF_TEXT = "<|end|>"


def tiny_model(architecture: str) -> GGUFFile:
    """Return a file with a vocabulary of 258: the bytes, `ab` and an end token."""
    tensors = _tensors(architecture)
    rng = np.random.default_rng(0)
    contents = {
        name: rng.normal(0, 0.3, shape).astype(np.float16 if kind == F16 else np.float32).tobytes()
        for name, shape, kind in tensors
    }
    return GGUFFile(metadata=_metadata(architecture), tensors=tensors, contents=contents)


def _metadata(architecture: str) -> dict[str, Any]:
    tokens = [*_byte_tokens(), "ab", END_OF_TEXT]
    return {
        "general.architecture": architecture,
        "general.file_type": 1,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 512,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.key_length": HEAD_SIZE,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 257 + [3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 257,
    }


def _byte_tokens() -> list[str]:
    """The 256 characters by which byte-level vocabularies write bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def _tensors(architecture: str) -> list[tuple[str, tuple[int, ...], int]]:
    queries, keys = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    tensors: list[tuple[str, tuple[int, ...], int]] = [
        ("token_embd.weight", (HIDDEN, 258), F16),
        ("output_norm.weight", (HIDDEN,), F32),
    ]
    for layer in range(LAYERS):
        sizes = [("attn_q", HIDDEN, queries), ("attn_k", HIDDEN, keys), ("attn_v", HIDDEN, keys)]
        matrices = [
            *sizes,
            ("attn_output", queries, HIDDEN),
            ("ffn_gate", HIDDEN, INNER),
            ("ffn_up", HIDDEN, INNER),
            ("ffn_down", INNER, HIDDEN),
        ]
        tensors += [(f"blk.{layer}.{name}.weight", (inner, outer), F16) for name, inner, outer in matrices]
        vectors = [("attn_norm.weight", HIDDEN), ("ffn_norm.weight", HIDDEN)]
        if architecture == "qwen2":
            vectors += [(f"{name}.bias", outer) for name, _, outer in sizes]
        if architecture == "qwen3":
            vectors += [("attn_q_norm.weight", HEAD_SIZE), ("attn_k_norm.weight", HEAD_SIZE)]
        tensors += [(f"blk.{layer}.{name}", (size,), F32) for name, size in vectors]
    if architecture == "qwen3":
        tensors.append(("output.weight", (HIDDEN, 258), F16))
    return tensors
