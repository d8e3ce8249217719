"""Scores the explanations on the corpus; as a command, writes the table of docs/explain.md.

python -m tests.explain.accuracy            # with the tokenizer of the tests
python -m tests.explain.accuracy --model    # and once more with the demo model's
"""

import functools
import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from anaphora.explain.endless_cache import explain_after
from anaphora.explain.records import Explanation
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer, TextTokenizer
from tests.explain.corpus import cases
from tests.explain.corpus_words import Case
from tests.explain.support import LAW
from tests.explain.word_tokenizer import WordTokenizer

DOCS = Path(__file__).parents[2] / "docs" / "explain.md"


@dataclass
class Score:
    """How many cases there are of each kind, and how many were answered rightly."""

    total: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    places: Counter[str] = field(default_factory=Counter)
    books: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, case: Case, found: Explanation) -> None:
        is_cause = found.cause in {case.kind, *case.also_right}
        is_place = case.path is None or (found.path or "").startswith(case.path)
        is_booked = sum(found.uncached.values()) == found.prompt_tokens - found.reused_tokens
        self.total[case.kind] += 1
        self.causes[case.kind] += is_cause
        self.places[case.kind] += is_place
        self.books[case.kind] += is_booked
        if not (is_cause and is_place and is_booked):
            self.wrong.append(f"{case.kind} {case.name} at {case.path}: {found.as_json()}")

    def table(self) -> str:
        rows = [
            f"| `{kind}` | {n} | {self.causes[kind]} | {self.places[kind]} | {self.books[kind]} |"
            for kind, n in self.total.items()
        ]
        sums = [c.total() for c in (self.total, self.causes, self.places, self.books)]
        return "\n".join(
            [
                "| kind | cases | right cause | right place | books exact |",
                "|---|---|---|---|---|",
                *rows,
                f"| all | {' | '.join(map(str, sums))} |",
            ]
        )


@functools.cache
def compiled(source: str) -> ChatTemplate:
    """Return the template of a text, compiled once."""
    return ChatTemplate(source, special_tokens={"bos_token": "<|bos|>"})


@functools.cache
def word_score(seed: int = 0) -> Score:
    """Return the score of a seed with the tokenizer of the tests, computed once."""
    return score(WordTokenizer(), seed=seed)


def explain_case(case: Case, tokenizer: TextTokenizer) -> Explanation:
    """Return what is said of a case."""
    renderer = BodyRenderer(compiled(case.template), tokenizer)
    earlier = [renderer.record(f"earlier-{i}", body) for i, body in enumerate(case.earlier)]
    return explain_after(renderer.record("request", case.request), earlier, LAW, renderer)


def score(tokenizer: TextTokenizer, *, seed: int = 0, every: int = 1) -> Score:
    """Score the cases of a seed, or every n-th of them."""
    result = Score()
    for index, case in enumerate(cases(lambda text: list(tokenizer.encode(text)), seed)):
        if index % every == 0:
            result.add(case, explain_case(case, tokenizer))
    return result


def examples(tokenizer: TextTokenizer) -> str:
    """Return a row for the first case of each kind: what is answered to it."""
    rows, seen = [], set()
    for case in cases(lambda text: list(tokenizer.encode(text))):
        if case.kind not in seen:
            seen.add(case.kind)
            found = explain_case(case, tokenizer)
            fix = found.counterfactual
            reused = f"{found.reused_tokens} of {found.prompt_tokens}"
            mended = f"{fix.change}: {fix.reused_tokens}" if fix else ""
            cells = (f"`{case.kind}`", found.path or "", _cell(found.old), _cell(found.new), reused, mended)
            rows.append(f"| {' | '.join(cells)} |")
    head = "| cause | `path` | `old` | `new` | reused | `counterfactual` |\n|---|---|---|---|---|---|"
    return "\n".join([head, *rows])


def _cell(text: str | None) -> str:
    if not text:
        return ""
    shown = text if len(text) <= 36 else text[:35] + "…"
    return "`" + json.dumps(shown, ensure_ascii=False)[1:-1].replace("|", "¦").replace("`", "'") + "`"


def tables() -> dict[str, str]:
    """Return what the docs hold between their marks."""
    return {"accuracy": word_score().table(), "examples": examples(WordTokenizer())}


def documented(name: str) -> str:
    """Return the table that stands in the docs."""
    begin, end = _marks(name)
    return DOCS.read_text("utf-8").partition(begin)[2].partition(end)[0].strip()


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: written by `python -m tests.explain.accuracy` -->", f"<!-- end of {name} -->"


def main() -> None:
    """Write the tables into the docs."""
    for name, table in tables().items():
        begin, end = _marks(name)
        text = DOCS.read_text("utf-8")
        head, tail = text.partition(begin)[0], text.partition(end)[2]
        DOCS.write_text(f"{head}{begin}\n\n{table}\n\n{end}{tail}", "utf-8")
    if "--model" in sys.argv:
        from tests.models.conftest import load_demo_tokenizer

        print(score(load_demo_tokenizer()).table())


if __name__ == "__main__":
    main()
