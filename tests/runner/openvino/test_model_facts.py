import hashlib
from dataclasses import replace
from pathlib import Path

from anaphora.runner.openvino.kv_store import KVPort
from anaphora.runner.openvino.model import PagedModel
from anaphora.runner.openvino.model_facts import gather_facts, model_fingerprint
from anaphora.runner.openvino.model_files import ModelFiles

FILES = ModelFiles(
    folder=Path("folder"),
    name="m",
    weights_digest=b"w" * 32,
    tokenizer_digest=b"t" * 32,
    architecture="llama",
    context_length=8192,
    eos_token_ids=frozenset({2}),
)
MODEL = PagedModel(
    compiled=None,
    precision="bfloat16",
    kv_ports=(KVPort("key_cache.0", "bf16", (3, 32, 64)), KVPort("value_cache.0", "bf16", (3, 32, 64))),
    vocab_size=100,
    num_threads=2,
)


def test_the_fingerprint_is_a_digest_of_tagged_fields() -> None:
    layout = b"key_cache.0:bf16:(3, 32, 64);value_cache.0:bf16:(3, 32, 64)"
    fields = [b"anaphora.model.v1", b"w" * 32, b"t" * 32, b"bfloat16", layout, b"openvino 1"]
    encoded = b"".join(bytes([tag, len(body), 0, 0, 0]) + body for tag, body in enumerate(fields))
    assert model_fingerprint(FILES, MODEL, "openvino 1") == hashlib.sha256(encoded).digest()


def test_the_fingerprint_changes_with_all_that_the_kv_depends_on() -> None:
    float32 = replace(
        MODEL, precision="float32", kv_ports=tuple(replace(p, element_type="f32") for p in MODEL.kv_ports)
    )
    variants = [
        (FILES, MODEL, "openvino 1"),
        (replace(FILES, weights_digest=b"x" * 32), MODEL, "openvino 1"),
        (replace(FILES, tokenizer_digest=b"x" * 32), MODEL, "openvino 1"),
        (FILES, float32, "openvino 1"),
        (FILES, replace(MODEL, precision="float32"), "openvino 1"),
        (FILES, replace(MODEL, kv_ports=float32.kv_ports), "openvino 1"),
        (FILES, replace(MODEL, kv_ports=MODEL.kv_ports[:1]), "openvino 1"),
        (FILES, MODEL, "openvino 2"),
    ]
    assert len({model_fingerprint(*variant) for variant in variants}) == len(variants)


def test_the_fingerprint_does_not_change_with_names_and_threads() -> None:
    same = replace(FILES, folder=Path("elsewhere"), name="n", context_length=None, eos_token_ids=frozenset())
    assert model_fingerprint(same, replace(MODEL, num_threads=64), "openvino 1") == model_fingerprint(
        FILES, MODEL, "openvino 1"
    )


def test_the_facts_come_from_the_files_and_the_compiled_model() -> None:
    facts = gather_facts(FILES, MODEL, 4096)
    assert facts.name == "m"
    assert facts.context_length == 8192
    assert facts.max_model_len == 4096
    assert facts.inference_precision == "bfloat16"
    assert facts.kv_precision == "bf16"
    assert facts.bytes_per_page == 2 * 3 * 32 * 64 * 2
    assert facts.eos_token_ids == {2}
    assert len(facts.fingerprint) == 32
