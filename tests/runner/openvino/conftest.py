import os
from collections.abc import Callable
from pathlib import Path

import pytest

from anaphora.models.pull import pull
from anaphora.runner.openvino.kv_store import KVStore
from anaphora.runner.openvino.model import PagedModel, load_paged_model
from anaphora.runner.openvino.model_files import open_model_files
from anaphora.runner.openvino.runner import OpenVINORunner
from tests.runner.openvino.stepping import Stepper
from tests.runner.openvino.tiny_models import tiny_model


@pytest.fixture(scope="session")
def demo_gguf() -> Path:
    """The demo model, from `ANAPHORA_TEST_GGUF` or pulled."""
    chosen = os.environ.get("ANAPHORA_TEST_GGUF")
    return Path(chosen) if chosen else pull("smollm2-135m")


@pytest.fixture(scope="session")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of one run keep converted models."""
    return tmp_path_factory.mktemp("conversions")


@pytest.fixture(scope="session")
def demo_folder(demo_gguf: Path, conversions: Path) -> Path:
    """The demo model as an OpenVINO folder."""
    return open_model_files(demo_gguf, conversions).folder


@pytest.fixture(scope="session")
def load_demo(demo_folder: Path) -> Callable[[str], PagedModel]:
    """Load the demo model in a precision, once; skip where the CPU has none."""
    loaded: dict[str, PagedModel] = {}

    def load(dtype: str) -> PagedModel:
        if dtype not in loaded:
            if dtype == "bfloat16" and load("auto").precision != dtype:
                pytest.skip("this CPU has no bfloat16")
            loaded[dtype] = load_paged_model(demo_folder, dtype)
        return loaded[dtype]

    return load


@pytest.fixture(scope="module", params=["bfloat16", "float32"])
def stepper(request: pytest.FixtureRequest, load_demo: Callable[[str], PagedModel]) -> Stepper:
    """The demo model on 512 pages, in each precision."""
    model = load_demo(request.param)
    return Stepper(
        lambda sampler: OpenVINORunner(model, KVStore(model.kv_ports, 512), sampler, block_size=16)
    )


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two layers, a context of 512 tokens and a vocabulary of 258."""
    return tiny_model("llama").write(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_paged_model(tiny_gguf: Path, conversions: Path) -> PagedModel:
    """The same, compiled in float32."""
    return load_paged_model(open_model_files(tiny_gguf, conversions).folder, "float32")
