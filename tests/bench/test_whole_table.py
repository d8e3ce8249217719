"""Tables on narrow terminals."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from anaphora.bench.whole_table import print_whole


@pytest.mark.parametrize("length", [10, 100, 500])
def test_a_table_is_as_wide_as_it_needs_to_be_and_the_console_as_it_was(length: int) -> None:
    """Whatever is in it."""
    table = Table("name", "number")
    table.columns[0].no_wrap = True
    table.add_row("x" * length, "7")
    console = Console(width=40, record=True, file=io.StringIO())
    print_whole(table, console)
    text = console.export_text()
    assert "x" * length in text
    assert "…" not in text
    assert console.width == 40
