"""The docs: what they link to, name and count must exist, so that they cannot rot."""

import argparse
import ast
import re
from functools import cache
from pathlib import Path

import pytest

from anaphora.cli.serve import add_arguments
from anaphora.metrics.exposition import FAMILIES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "anaphora"
NUM_CASES = 67
OUT_OF_SCOPE = "not in scope yet"

LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
TEST_LINK = re.compile(r"\[`(test_\w+)`\]\((\.\./tests/[\w/]+\.py)\)")


def section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of the same level."""
    level = heading.split(maxsplit=1)[0]
    return (DOCS / page).read_text().split(f"\n{heading}\n")[1].split(f"\n{level} ")[0]


def first_cells(text: str) -> list[str]:
    """Return the first cell of each row of a table, its head left out."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")][2:]


CASES = [
    line for line in section("prefix-caching.md", "## Conformance").splitlines() if line.startswith("|")
][2:]


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file."""
    body = ast.parse(path.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef))


def test_every_case_has_one_row() -> None:
    """In ascending order."""
    assert [row.split("|")[1].strip() for row in CASES] == [str(number) for number in range(1, NUM_CASES + 1)]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row.split("|")[1].strip())
def test_every_case_is_proven_or_out_of_scope(row: str) -> None:
    """Each linked test exists, under that name, in that file."""
    links = TEST_LINK.findall(row)
    assert row.count("](") == len(links), "a link that names no test"
    assert bool(links) != (row.split("|")[3].strip() == OUT_OF_SCOPE)
    missing = [f"{path}::{name}" for name, path in links if name not in functions_of((DOCS / path).resolve())]
    assert not missing


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_link_between_our_files_leads_somewhere(page: Path) -> None:
    """To a file, and where it names a heading, to one that is there."""
    for _, target in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_test_file_that_is_named_exists(page: Path) -> None:
    """Such as `tests/cache/test_pins.py`."""
    named = re.findall(r"`(tests/[\w/]+\.py)`", page.read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_lifecycle_names_files_that_exist_and_all_that_decide() -> None:
    """A newcomer finds every module of the pure world in one step."""
    named = set(re.findall(r"`([\w/]+\.py)`", (DOCS / "lifecycle.md").read_text()))
    assert [path for path in sorted(named) if not (SOURCE / path).exists()] == []
    deciding = {
        path.relative_to(SOURCE).as_posix()
        for folder in ("cache", "scheduler", "metrics", "cost")
        for path in (SOURCE / folder).rglob("*.py")
        if path.name != "__init__.py"
    }
    assert deciding - named == set()


def test_the_flags_table_names_flags_that_exist() -> None:
    """Spelt as on the command line."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    known = {option for action in parser._actions for option in action.option_strings}
    named = re.findall(r"`(--[\w-]+)`", " ".join(first_cells(section("cache-semantics.md", "## 3 Flags"))))
    assert named
    assert set(named) - known == set()


def test_the_metrics_table_names_metrics_that_exist_with_their_types() -> None:
    """Spelt as they are scraped."""
    rows = re.findall(
        r"^\| `([\w:]+)` \| (\w+) \|", section("cache-semantics.md", "## 4 Metrics"), re.MULTILINE
    )
    assert rows
    assert set(rows) - {(family.name, family.kind) for family in FAMILIES} == set()
