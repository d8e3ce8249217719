"""`anaphora pull NAME`: get a model of the registry into the cache folder."""

import argparse
import json

from anaphora.cli.progress import pull_progress
from anaphora.models.pull import pull
from anaphora.models.registry import load_registry

NAME = "pull"
SUMMARY = "get a model of the registry"
EXAMPLE = "anaphora pull smollm2-135m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    rows = "; ".join(f"{model.name}: {model.description}" for model in load_registry().models)
    parser.add_argument("name", metavar="NAME", help=f"one of: {rows}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Fetch the model unless it is there, and print where it lies."""
    with pull_progress(options.name) as progress:
        path = pull(options.name, progress=progress)
    print(json.dumps({"name": options.name, "path": str(path)}) if options.json else path)
    return 0
