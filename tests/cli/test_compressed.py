"""Files that may be compressed."""

import gzip
from pathlib import Path

import pytest

from anaphora.cli.compressed import DAMAGE, damage_text, is_compressed, unpacked

TEXT = b"".join(b"%d\n" % number for number in range(20_000))


@pytest.mark.parametrize("data", [TEXT, b"", b"\x1f", b"\x8b\x1f"])
def test_the_content_is_the_same_packed_or_not(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    for content, is_packed in ((data, False), (gzip.compress(data), True)):
        path.write_bytes(content)
        with path.open("rb") as file:
            assert is_compressed(file) is is_packed
            assert unpacked(file).read() == data


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(TEXT)[:-2000],
        gzip.compress(TEXT)[:-8] + b"rubbish.",
        gzip.compress(TEXT)[:20_000] + b"rubbish." * 100,
    ],
)
def test_what_stands_before_damage_can_be_read(tmp_path: Path, content: bytes) -> None:
    """Cut short, with a wrong sum, or overwritten."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file:
        lines = unpacked(file)
        assert lines.readline() == b"0\n"
        with pytest.raises(DAMAGE) as found:
            lines.read()
    assert damage_text(found.value).startswith("the compressed file is damaged: ")
