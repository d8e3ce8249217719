from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from anaphora.config import CacheConfig, ModelConfig
from anaphora.errors import ConfigError, ModelError, NotEnoughMemoryError
from anaphora.ids import TokenId
from anaphora.runner.openvino.loader import LoadedRunner, load_runner
from anaphora.runner.openvino.model_files import open_model_files
from anaphora.scheduler.plan import SampleSpec
from tests.runner.openvino.stepping import Logits, Stepper
from tests.runner.openvino.tiny_models import tiny_model

pytestmark = pytest.mark.model


def argmax(logits: Logits, specs: Sequence[SampleSpec]) -> list[TokenId]:
    return [int(token_id) for token_id in logits.argmax(1)]


@pytest.fixture
def load(conversions: Path) -> Callable[..., LoadedRunner]:
    """Load a model on 40 pages, which hold 1,248 tokens, with settings of either section."""

    def load_with(path: Path, **settings: Any) -> LoadedRunner:
        sampler = settings.pop("sampler", argmax)
        model = {name: settings.pop(name) for name in ("dtype", "max_model_len") if name in settings}
        return load_runner(
            path,
            cache_folder=conversions,
            model_config=ModelConfig(**model),
            cache_config=CacheConfig(**{"num_pages": 40, **settings}),
            sampler=sampler,
        )

    return load_with


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_architecture_loads_and_reuses_exactly(
    load: Callable[..., LoadedRunner], tmp_path: Path, architecture: str
) -> None:
    path = tiny_model(architecture).write(tmp_path / f"{architecture}.gguf")
    stepper = Stepper(lambda sampler: load(path, sampler=sampler).runner)
    tokens = [(11 * i) % 256 for i in range(90)]
    cold = stepper.prefill(tokens, [1, 2, 3])
    assert len(cold) == 258
    assert np.ptp(cold) > 0.1
    assert_array_equal(stepper.prefill(tokens, [4, 5, 6], cuts=[17, 64]), cold)


def test_the_facts_of_the_demo_model(load: Callable[..., LoadedRunner], demo_gguf: Path) -> None:
    facts = load(demo_gguf, dtype="float32", num_pages=257).facts
    assert facts.name == demo_gguf.stem
    assert facts.architecture == "llama"
    assert (facts.context_length, facts.max_model_len) == (8192, 8192)
    assert facts.vocab_size == 49_152
    assert (facts.inference_precision, facts.kv_precision) == ("float32", "f32")
    assert facts.bytes_per_page == 1_474_560
    assert facts.eos_token_ids == {2}


def test_loading_prints_nothing(
    load: Callable[..., LoadedRunner], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load(tiny_model("qwen2").write(tmp_path / "silent.gguf"))
    with pytest.raises(ModelError):
        load(tiny_model("qwen2").having(general__file_type="none").write(tmp_path / "bad.gguf"))
    assert capfd.readouterr() == ("", "")


def test_the_raw_tokenizer_comes_with_it(load: Callable[..., LoadedRunner], tiny_gguf: Path) -> None:
    tokenizer = load(tiny_gguf).tokenizer
    assert tokenizer.encode("ab<|end|>c").input_ids.data.tolist() == [[256, 257, 99]]
    assert tokenizer.decode([99, 256]) == "cab"
    assert len(tokenizer.get_vocab()) == 258
    assert tokenizer.get_eos_token_id() == 257


def test_an_openvino_folder_gives_the_same_logits_as_its_gguf(
    load: Callable[..., LoadedRunner], tiny_gguf: Path, conversions: Path
) -> None:
    folder = open_model_files(tiny_gguf, conversions).folder
    from_gguf = Stepper(lambda sampler: load(tiny_gguf, sampler=sampler).runner)
    from_folder = Stepper(lambda sampler: load(folder, sampler=sampler).runner)
    assert_array_equal(from_folder.prefill([1, 2, 3], [1]), from_gguf.prefill([1, 2, 3], [1]))


def test_each_precision_has_its_own_fingerprint(load: Callable[..., LoadedRunner], tiny_gguf: Path) -> None:
    first, again = load(tiny_gguf, dtype="float32").facts, load(tiny_gguf, dtype="float32").facts
    assert first.fingerprint == again.fingerprint
    assert len(first.fingerprint) == 32
    if load(tiny_gguf).facts.inference_precision == "bfloat16":
        assert load(tiny_gguf, dtype="bfloat16").facts.fingerprint != first.fingerprint


def test_memory_is_divided_into_pages(load: Callable[..., LoadedRunner], tiny_gguf: Path) -> None:
    loaded = load(tiny_gguf, dtype="float32", num_pages=None, kv_cache_memory_bytes=1_000_000)
    assert loaded.facts.bytes_per_page == 2 * 2 * 2 * 32 * 16 * 4
    assert loaded.runner.layout.num_pages == 1_000_000 // 16_384
    assert load(tiny_gguf).runner.layout.num_pages == 40


def test_too_little_memory_for_one_request_is_refused(
    load: Callable[..., LoadedRunner], tiny_gguf: Path
) -> None:
    with pytest.raises(
        NotEnoughMemoryError, match=r"one request of 512 tokens needs 16 pages .* only 15 fit"
    ):
        load(tiny_gguf, num_pages=16)
    assert load(tiny_gguf, num_pages=16, max_model_len=480).facts.max_model_len == 480


def test_a_longer_request_than_the_models_context_is_refused(
    load: Callable[..., LoadedRunner], tiny_gguf: Path
) -> None:
    with pytest.raises(ConfigError, match="--max-model-len is 513, but the model's context is 512 tokens"):
        load(tiny_gguf, max_model_len=513)


def test_a_tokenizer_that_is_none_is_refused_in_one_line(
    load: Callable[..., LoadedRunner], tiny_gguf: Path, conversions: Path, tmp_path: Path
) -> None:
    folder = open_model_files(tiny_gguf, conversions).folder
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(b"" if "tokenizer" in file.name else file.read_bytes())
    with pytest.raises(ModelError) as caught:
        load(tmp_path)
    assert str(caught.value).startswith(f"OpenVINO cannot load the tokenizer in {tmp_path}: ")
    assert "\n" not in str(caught.value)
