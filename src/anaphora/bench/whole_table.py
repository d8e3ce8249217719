"""Prints tables of numbers whole, however narrow the terminal is."""

from rich.console import Console
from rich.table import Table

_MOST_WIDTH = 10_000


def print_whole(table: Table, console: Console) -> None:
    """Print a table as wide as it is: a number that was cut is a wrong one, a line that breaks is ugly."""
    width = console.width
    console.width = _MOST_WIDTH
    console.width = max(width, console.measure(table).maximum)
    console.print(table)
    console.width = width
