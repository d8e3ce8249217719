"""The table of popular templates in docs/lint.md: `python -m tests.lint.template_table` writes it.

Each template is a small one in the manner of a family, from tests/models/templates.py, not the family's own file.
"""

from pathlib import Path

from anaphora.lint.template_rules import DIALOGUES, check_template, clock_in_template
from tests.explain.corpus_templates import EMPTY_THOUGHT
from tests.lint.support import renderer
from tests.models import templates

PAGE = Path(__file__).parents[2] / "docs" / "lint.md"
START = "<!-- templates: written by `python -m tests.lint.template_table` -->\n"
END = "<!-- end of templates -->"
ALL = {**templates.ALL, **templates.WITH_TOOLS, "empty_thought": EMPTY_THOUGHT}
WORDS = {True: "kept", False: "**rewritten**", None: "refused"}


def table() -> str:
    """Return the table as Markdown."""
    lines = [
        f"| in the manner of | {' | '.join(DIALOGUES)} | clock (L8) |",
        "|---" * (len(DIALOGUES) + 2) + "|",
    ]
    for name, source in ALL.items():
        cells = [WORDS[found.is_kept] for found in check_template(renderer(source))]
        clock = "yes" if list(clock_in_template(source, 1)) else "no"
        lines.append(f"| `{name}` | {' | '.join(cells)} | {clock} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """Return the table as it stands in the page."""
    return PAGE.read_text("utf-8").partition(START)[2].partition(END)[0].strip("\n") + "\n"


if __name__ == "__main__":
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    PAGE.write_text(f"{before}{START}\n{table()}\n{END}{rest.partition(END)[2]}", "utf-8")
