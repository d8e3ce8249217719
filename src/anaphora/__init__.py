"""An LLM inference server that never prefills the same prefix twice, and says why whenever it has to.

The public names are loaded when they are first used, so that `import anaphora.cache` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anaphora.errors import AnaphoraError
    from anaphora.llm import LLM, Completion
    from anaphora.request import SamplingParams

__all__ = ["LLM", "AnaphoraError", "Completion", "SamplingParams"]

_HOMES = {
    "LLM": "anaphora.llm",
    "Completion": "anaphora.llm",
    "SamplingParams": "anaphora.request",
    "AnaphoraError": "anaphora.errors",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that holds it."""
    if name not in _HOMES:
        raise AttributeError(f"module 'anaphora' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
