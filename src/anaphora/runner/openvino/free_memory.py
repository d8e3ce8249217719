"""How much memory this process may still take. Knows /proc and control groups, versions 1 and 2."""

import os
from collections.abc import Iterator
from pathlib import Path

KIBIBYTE = 1024


def free_memory_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what the machine has free, or what this process's control groups leave of it; None when unknown."""
    limits = [*_group_rooms(proc, groups)]
    machine = _machine_free_bytes(proc)
    return min([machine, *limits]) if machine is not None else min(limits, default=None)


def _machine_free_bytes(proc: Path) -> int | None:
    for line in _lines(proc / "meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * KIBIBYTE
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        if name in getattr(os, "sysconf_names", {}):
            return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")
    return None


def _group_rooms(proc: Path, groups: Path) -> Iterator[int]:
    """The room left in each control group that holds this process, from its own up to the root."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            names, root = ("memory.max", "memory.current"), groups
        elif "memory" in controllers.split(","):
            names, root = ("memory.limit_in_bytes", "memory.usage_in_bytes"), groups / "memory"
        else:
            continue
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            yield from _room(folder, *names)
            if folder == root:
                break


def _room(folder: Path, limit_name: str, usage_name: str) -> Iterator[int]:
    limit, usage = _number(folder / limit_name), _number(folder / usage_name)
    if limit is not None and usage is not None:
        yield max(limit - usage + _reclaimable_bytes(folder), 0)


def _reclaimable_bytes(folder: Path) -> int:
    """File pages that the kernel drops when memory is short; they count as used."""
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    """The number in a file; None when there is none, or `max`."""
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
