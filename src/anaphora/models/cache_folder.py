"""Where downloaded and converted models are kept. Knows nothing of what is in there."""

import os
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "ANAPHORA_CACHE_DIR"


def cache_folder() -> Path:
    """Return the folder that `ANAPHORA_CACHE_DIR` names, else the user's cache folder; it may not exist yet."""
    if chosen := os.environ.get(ENVIRONMENT_VARIABLE):
        return Path(chosen).expanduser().absolute()
    return Path(platformdirs.user_cache_dir("anaphora", appauthor=False))
