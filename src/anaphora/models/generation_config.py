"""The sampling a model's author recommends, used where a request says nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import InvalidRequestError, ModelError
from anaphora.request import SamplingParams

GENERATION_CONFIG = "generation_config.json"
FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def read_generation_config(folder: Path) -> dict[str, Any]:
    """Return the recommended sampling in a model's folder; nothing when it has no such file.

    A file that recommends greedy decoding (`do_sample` false) recommends nothing here, as in vLLM.
    """
    try:
        data = json.loads((folder / GENERATION_CONFIG).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder / GENERATION_CONFIG} cannot be read: {error}") from error
    if not isinstance(data, dict) or data.get("do_sample") is False:
        return {}
    return check_recommended({name: data[name] for name in FIELDS if data.get(name) is not None}, str(folder))


def check_recommended(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values if a request could have sent them; raise ModelError otherwise."""
    try:
        SamplingParams(**values)
    except (InvalidRequestError, TypeError) as error:
        raise ModelError(
            f"the sampling recommended in {where} is wrong: {error}; try --generation-config vllm"
        ) from error
    return dict(values)
