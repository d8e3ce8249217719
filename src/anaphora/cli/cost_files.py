"""Cost models in files: what `--save-cost` writes and `--cost` reads."""

import json
from dataclasses import asdict
from pathlib import Path

from anaphora.errors import ConfigError
from anaphora.sim.cost import CostModel


def save_cost(path: Path, model: CostModel) -> None:
    """Write a cost model; raises ConfigError."""
    try:
        path.write_text(json.dumps(asdict(model)) + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(f"--save-cost {path} cannot be written: {error.strerror}") from error


def read_cost(path: Path) -> CostModel:
    """Return the cost model in a file; raises ConfigError."""
    try:
        value = json.loads(path.read_bytes())
        model = CostModel(**{name: float(value[name]) for name in asdict(CostModel())})
    except OSError as error:
        raise ConfigError(f"--cost {path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"--cost {path} is no cost model as --save-cost writes it: {error}") from error
    costs = asdict(model).values()
    if not all(0 <= cost < 1e6 for cost in costs) or not any(costs):
        raise ConfigError(f"--cost {path}: the costs must be seconds, none below 0 and not all 0")
    return model
