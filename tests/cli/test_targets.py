"""Files that are to be written, looked at beforehand."""

from pathlib import Path

import pytest

from anaphora.cli.targets import check_can_write
from anaphora.errors import ConfigError


def test_a_new_file_and_an_older_one_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    (tmp_path / "source").touch()
    for name in ("new", "old"):
        check_can_write("--plot", tmp_path / name, tmp_path / "source", tmp_path / "none")


def test_what_cannot_be_or_is_read_is_refused_with_the_flag(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.touch()
    (tmp_path / "link").symlink_to(source)
    for name, message in (
        ("no/x", "there is no folder"),
        ("", "is a folder; give the name of a file"),
        ("source", "is the file that is read"),
        ("link", "is the file that is read"),
    ):
        with pytest.raises(ConfigError, match=f"--plot .*{message}"):
            check_can_write("--plot", tmp_path / name, source)
