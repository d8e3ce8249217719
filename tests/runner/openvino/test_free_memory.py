from pathlib import Path

import pytest

from anaphora.runner.openvino.free_memory import free_memory_bytes

MIB = 1024**2


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine with 1,000 MiB available, and a process in the group /a/b."""
    folder = tmp_path / "proc"
    (folder / "self").mkdir(parents=True)
    (folder / "meminfo").write_text(f"MemTotal: 9999999 kB\nMemAvailable:   {1000 * 1024} kB\n")
    (folder / "self" / "cgroup").write_text("0::/a/b\n")
    return folder


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


def put(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def test_without_groups_it_is_what_the_machine_has(proc: Path, groups: Path) -> None:
    assert free_memory_bytes(proc, groups) == 1000 * MIB


def test_a_group_without_a_limit_changes_nothing(proc: Path, groups: Path) -> None:
    put(groups / "a" / "b", memory__max="max", memory__current=5 * MIB)
    assert free_memory_bytes(proc, groups) == 1000 * MIB


def test_a_lower_limit_of_the_group_counts(proc: Path, groups: Path) -> None:
    put(groups / "a" / "b", memory__max=500 * MIB, memory__current=200 * MIB)
    assert free_memory_bytes(proc, groups) == 300 * MIB


def test_a_limit_of_a_group_above_counts_too(proc: Path, groups: Path) -> None:
    put(groups / "a" / "b", memory__max=500 * MIB, memory__current=200 * MIB)
    put(groups / "a", memory__max=600 * MIB, memory__current=400 * MIB)
    assert free_memory_bytes(proc, groups) == 200 * MIB


def test_the_group_that_a_container_sees_as_its_root_counts(proc: Path, groups: Path) -> None:
    put(groups, memory__max=400 * MIB, memory__current=100 * MIB)
    assert free_memory_bytes(proc, groups) == 300 * MIB


def test_cached_files_are_as_good_as_free(proc: Path, groups: Path) -> None:
    put(groups / "a" / "b", memory__max=500 * MIB, memory__current=450 * MIB)
    put(groups / "a" / "b", memory__stat=f"anon 7\ninactive_file {100 * MIB}")
    assert free_memory_bytes(proc, groups) == 150 * MIB


def test_a_group_over_its_limit_leaves_nothing(proc: Path, groups: Path) -> None:
    put(groups / "a" / "b", memory__max=500 * MIB, memory__current=501 * MIB)
    assert free_memory_bytes(proc, groups) == 0


def test_groups_of_version_1_count(proc: Path, groups: Path) -> None:
    (proc / "self" / "cgroup").write_text("7:cpu,cpuacct:/x\n4:memory:/docker/c\n")
    put(groups / "memory" / "docker" / "c", memory__limit_in_bytes=300 * MIB)
    put(groups / "memory" / "docker" / "c", memory__usage_in_bytes=50 * MIB)
    assert free_memory_bytes(proc, groups) == 250 * MIB


def test_a_system_without_proc_is_asked_for_its_memory(tmp_path: Path) -> None:
    free = free_memory_bytes(tmp_path, tmp_path)
    assert free is not None
    assert free > MIB


def test_this_machine_has_memory() -> None:
    free = free_memory_bytes()
    assert free is not None
    assert free > MIB
