"""Who measured, when and where: what a figure must be read with."""

import datetime as dt
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def describe_client() -> dict[str, Any]:
    """Return version, commit, time and machine of the measuring side."""
    return {
        "client": f"anaphora bench {_version()}",
        "git_commit": _commit(),
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def _version() -> str:
    try:
        return version("anaphora")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


def _commit() -> str | None:
    """Return the commit of the source tree, with + where files were changed; None outside of one."""
    here = Path(__file__)
    git = ["git", "-C", str(here.parent)]
    try:
        # An installed package may lie inside somebody else's repository.
        subprocess.run([*git, "ls-files", "--error-unmatch", here.name], capture_output=True, check=True)
        commit = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        changes = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if changes.stdout.strip() else "")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
