"""The sampling that a model's author recommends."""

import json
from pathlib import Path
from typing import Any

import pytest

from anaphora.errors import ModelError
from anaphora.models.generation_config import read_generation_config


def write(folder: Path, data: Any) -> Path:
    """Put a generation_config.json into a folder."""
    (folder / "generation_config.json").write_text(data if isinstance(data, str) else json.dumps(data))
    return folder


def test_what_is_recommended_is_read_and_the_rest_is_left(tmp_path: Path) -> None:
    """Token ids and versions are other people's business."""
    data = {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "top_p": 0.95,
        "eos_token_id": 2,
        "min_p": None,
    }
    assert read_generation_config(write(tmp_path, data)) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


@pytest.mark.parametrize("data", [{"do_sample": False, "temperature": 0.6}, {}, []])
def test_a_file_that_recommends_nothing_gives_nothing(tmp_path: Path, data: Any) -> None:
    """Greedy is not forced on those who asked for nothing."""
    assert read_generation_config(write(tmp_path, data)) == {}


def test_no_file_gives_nothing(tmp_path: Path) -> None:
    """Most converted models have none."""
    assert read_generation_config(tmp_path) == {}


@pytest.mark.parametrize("data", ["{", {"temperature": 7}, {"temperature": "warm"}])
def test_a_wrong_file_is_refused_at_the_start(tmp_path: Path, data: Any) -> None:
    """Rather than failing every request later."""
    with pytest.raises(ModelError, match=r"generation_config|recommended"):
        read_generation_config(write(tmp_path, data))
