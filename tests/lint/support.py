"""Logs for tests: bodies rendered by plain templates and cut into words, linted without a model."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from anaphora.explain.log_entries import read_entry
from anaphora.explain.records import HitLaw
from anaphora.lint.hosted import HostedLimit
from anaphora.lint.image_rules import DecodePixels, with_stand_ins
from anaphora.lint.linter import Means, Report, lint
from anaphora.lint.log import Log, LoggedRequest
from anaphora.lint.suspect import LintFinding
from anaphora.models.chat_template import ChatTemplate
from anaphora.server.prompt_records import BodyRenderer
from tests.explain.word_tokenizer import WordTokenizer

LAW = HitLaw(block_size=4, min_prefill_tokens=2)
STAND_IN = resources.files("anaphora.lint").joinpath("stand_in.jinja").read_text("utf-8")
STORY = (
    "You look after the harbour of a small town. Ships arrive in the morning and leave at night. "
    "Be polite to captains, be strict with smugglers, and never lend anybody the key of the lighthouse."
)
QUESTIONS = (
    "When does the ferry to the islands leave?",
    "Who repairs the old crane by the pier?",
    "How deep is the water at the north quay?",
    "May we sell fish on the market square?",
)


def renderer(template: str = STAND_IN) -> BodyRenderer:
    """A renderer that needs no model."""
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    return BodyRenderer(ChatTemplate(template, special_tokens=special), WordTokenizer())


def chat(*texts: str, system: str = STORY, **fields: Any) -> dict[str, Any]:
    """A body of a system text and turns that alternate, the user first."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return {"messages": [{"role": "system", "content": system}, *turns], **fields}


def tool(name: str, **parameters: Any) -> dict[str, Any]:
    """A tool with a description and a schema."""
    schema = {"type": "object", "properties": parameters or {"text": {"type": "string"}}}
    return {
        "type": "function",
        "function": {"name": name, "description": f"To {name} things.", "parameters": schema},
    }


def log_of(bodies: Sequence[Mapping[str, Any]], made: BodyRenderer | None = None) -> Log:
    """A log of some bodies, one a line."""
    made = made or renderer()
    requests = []
    for line, body in enumerate(bodies, start=1):
        record = made.record(f"r{line}", with_stand_ins(body))
        requests.append(LoggedRequest(line, read_entry(body), record))
    return Log(requests, LAW)


def means_of(
    template: str = STAND_IN,
    *,
    is_own: bool = False,
    limits: Sequence[HostedLimit] = (),
    decode: DecodePixels | None = None,
) -> Means:
    """What rules may use; `is_own` says that the template is the model's own."""
    made = renderer(template)
    return Means(
        render=made,
        count=made.token_ids,
        template_source=template if is_own else None,
        limits=limits,
        decode_pixels=decode,
    )


def lint_bodies(
    bodies: Sequence[Mapping[str, Any]],
    template: str = STAND_IN,
    *,
    is_own: bool = False,
    limits: Sequence[HostedLimit] = (),
    decode: DecodePixels | None = None,
) -> Report:
    """The report of a log of some bodies."""
    means = means_of(template, is_own=is_own, limits=limits, decode=decode)
    assert isinstance(means.render, BodyRenderer)
    return lint(log_of(bodies, means.render), means)


def found(report: Report, rule: str) -> list[LintFinding]:
    """The findings of one rule."""
    return [finding for finding in report.findings if finding.suspect.rule == rule]


def only(report: Report, rule: str) -> LintFinding:
    """The one finding of one rule."""
    (finding,) = found(report, rule)
    return finding
