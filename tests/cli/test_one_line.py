"""What is quoted in an error neither breaks its line nor commands the terminal."""

import pytest

from anaphora.cli.one_line import one_line


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("a plain é × 字", "a plain é × 字"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\u2028\udcff", "\\u2028\\udcff"),
    ],
)
def test_what_cannot_be_printed_is_written_as_an_escape(message: str, shown: str) -> None:
    assert one_line(message) == shown
