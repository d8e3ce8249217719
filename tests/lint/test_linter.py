from typing import Any

import pytest

from anaphora.errors import ContextLengthError
from anaphora.lint.linter import lint
from anaphora.lint.reuse import Prompt, replay
from anaphora.lint.suspect import severity_of
from tests.lint.support import LAW, QUESTIONS, STORY, chat, found, lint_bodies, log_of, means_of, tool


def _faulty(i: int, question: str) -> dict[str, Any]:
    tools = [tool("tide"), tool("crane")][:: 1 if i % 2 else -1]
    return chat(question, system=f"It is 12:0{i}:31 now. {STORY}", tools=tools)


def test_a_fault_that_another_one_hides_still_has_its_cost() -> None:
    """The tools stand in front of the clock: while they are shuffled, no clock costs anything alone."""
    report = lint_bodies([_faulty(i, question) for i, question in enumerate(QUESTIONS)])
    assert [finding.suspect.rule for finding in report.findings] == ["L1", "L2"]
    assert all(finding.tokens_lost > 50 for finding in report.findings)


def test_findings_are_ranked_and_say_their_lines() -> None:
    report = lint_bodies([_faulty(i % 4, QUESTIONS[i % 4]) for i in range(12)])
    lost = [finding.tokens_lost for finding in report.findings]
    assert lost == sorted(lost, reverse=True)
    assert report.findings[0].lines == (1, 2, 3, 4, 5)
    entry = report.as_json()["findings"][0]
    assert set(entry) >= {
        "rule",
        "severity",
        "code",
        "requests",
        "tokens_lost",
        "path",
        "evidence",
        "fix",
        "lines",
    }


@pytest.mark.parametrize(
    ("lost", "least", "severity"),
    [
        (100, "low", "high"),
        (99, "low", "medium"),
        (10, "low", "medium"),
        (9, "low", "low"),
        (0, "medium", "medium"),
    ],
)
def test_the_severity_is_the_share_of_the_log_that_is_lost(lost: int, least: Any, severity: str) -> None:
    assert severity_of(lost, 1000, least) == severity


def test_an_empty_log_has_no_findings() -> None:
    report = lint_bodies([])
    assert (report.findings, report.reuse.prompt_tokens, report.reuse.hit_rate) == ((), 0, 0.0)


def test_a_pool_that_is_too_small_evicts_and_one_that_holds_no_prompt_is_refused() -> None:
    log = log_of([chat(QUESTIONS[i % 2] * 3, system=STORY[i % 2 :]) for i in range(4)])
    prompts = [Prompt.of(record) for record in log.records]
    pages = -(-max(len(prompt.token_ids) for prompt in prompts) // 32)
    assert replay(prompts, LAW, pages).reused_tokens < replay(prompts, LAW).reused_tokens
    with pytest.raises(ContextLengthError, match="give it more pages"):
        replay(prompts, LAW, pages - 1)


def test_what_may_not_read_the_cache_reuses_nothing() -> None:
    bodies = [chat(QUESTIONS[0]), chat(QUESTIONS[0], prompt_logprobs=1), chat(QUESTIONS[0])]
    reused = lint(log_of(bodies), means_of()).reuse.reused
    assert reused[1] == 0 < reused[2]


def test_models_and_salts_do_not_share() -> None:
    bodies = [
        chat(QUESTIONS[0], model=m, cache_salt=s) for m, s in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x"))
    ]
    reused = lint(log_of(bodies), means_of()).reuse.reused
    assert reused[:3] == (0, 0, 0) and reused[3] > 0


def test_a_long_log_is_replayed_without_evictions() -> None:
    bodies = [chat(QUESTIONS[i % 4] + str(i)) for i in range(40)] * 2
    reused = lint(log_of(bodies), means_of()).reuse.reused
    assert min(reused[40:]) >= len(log_of(bodies[:1]).records[0].token_ids) - 8
    assert not found(lint_bodies(bodies), "L1")
