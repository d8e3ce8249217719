"""Files that a command is to write, looked at before it works for them in vain. Writes nothing itself."""

from pathlib import Path

from anaphora.errors import ConfigError


def check_can_write(flag: str, path: Path, *sources: Path) -> None:
    """Raise ConfigError when a file cannot be written, or is one that is read; `sources` are those."""
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"{flag} {path}: there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise ConfigError(f"{flag} {path} is a folder; give the name of a file")
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            raise ConfigError(f"{flag} {path} is the file that is read; choose another one")
