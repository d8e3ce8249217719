"""What the user named → which files are served.

Knows names and folders; it opens no weights, so whether a model is complete is for its runner to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from anaphora.errors import ModelError
from anaphora.models.generation_config import read_generation_config
from anaphora.models.pull import PullProgress, ignore_progress, pull
from anaphora.models.registry import load_registry

IR_FILE = "openvino_model.xml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """The files of one model.

    `path` is a GGUF file or an OpenVINO folder. `name` is what people are shown and what the model is
    served under when no other name is given. `sampling` is what its author recommends.
    """

    kind: Literal["gguf", "openvino-ir"]
    path: Path
    name: str
    sampling: Mapping[str, Any] = field(default_factory=dict)


def resolve(
    model: str | None, *, cache_dir: Path | None = None, progress: PullProgress = ignore_progress
) -> ModelSource:
    """Return the files behind a registry name, a GGUF file, an OpenVINO folder, or None for the demo model.

    A registry model that is not in the cache folder yet is downloaded.
    Raises ModelError saying what is accepted.
    """
    registry = load_registry()
    name = registry.demo if model is None else model
    if name in registry.names:
        path = pull(name, cache_dir=cache_dir, progress=progress)
        return ModelSource(kind="gguf", path=path, name=name, sampling=registry.find(name).sampling)
    path = Path(name).expanduser()
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return _from_file(path)
    raise ModelError(_missing(name))


def _from_folder(folder: Path) -> ModelSource:
    if not (folder / IR_FILE).is_file():
        raise ModelError(
            f"{folder} is no OpenVINO model folder: it has no {IR_FILE}.{_hint(folder)} {_accepted()}"
        )
    return ModelSource(
        kind="openvino-ir", path=folder, name=folder.resolve().name, sampling=read_generation_config(folder)
    )


def _from_file(path: Path) -> ModelSource:
    if path.suffix.lower() != ".gguf":
        raise ModelError(f"{path} is no GGUF file: its name does not end in .gguf. {_accepted()}")
    return ModelSource(kind="gguf", path=path, name=path.stem)


def _hint(folder: Path) -> str:
    """What a wrong folder holds instead."""
    if ggufs := sorted(folder.glob("*.gguf")):
        return f" It holds {ggufs[0].name}: name that file."
    if (folder / "config.json").is_file() or any(folder.glob("*.safetensors")):
        return " It looks like a Hugging Face model, which this version does not serve."
    return ""


def _missing(name: str) -> str:
    if name.lower().endswith(".gguf"):
        return f"there is no file {name}. {_accepted()}"
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return f"{name} looks like a Hugging Face id, which this version does not serve. {_accepted()}"
    near = load_registry().nearest_name(name)
    hint = f" Did you mean {near}?" if near else ""
    return f"there is no model, file or folder {name}.{hint} {_accepted()}"


def _accepted() -> str:
    names = ", ".join(load_registry().names)
    return f"Accepted are a registry name ({names}), a .gguf file, and a folder with {IR_FILE}."
