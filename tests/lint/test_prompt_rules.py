from importlib import resources
from typing import Any

import pytest

from anaphora.lint.hosted import limit_of, read_limits
from tests.lint.support import QUESTIONS, STORY, chat, found, lint_bodies, only

LIMITS = read_limits(resources.files("anaphora.lint").joinpath("hosted_limits.toml").read_text("utf-8"))
MARK = {"cache_control": {"type": "ephemeral"}}


def test_a_doubled_begin_of_text_is_found_and_costs_what_the_others_share() -> None:
    bodies = [{"prompt": f"{'<s>' * (1 + i % 2)}{STORY} {q}"} for i, q in enumerate(QUESTIONS)]
    finding = only(lint_bodies(bodies), "L9")
    assert finding.suspect.indices == (1, 3)
    assert finding.tokens_lost > 0


def test_one_begin_of_text_is_fine() -> None:
    assert not lint_bodies([{"prompt": f"<s>{STORY} {q}"} for q in QUESTIONS]).findings


def test_a_prompt_without_room_for_a_block_and_a_short_match_are_two_findings() -> None:
    bodies = [{"prompt": "Go."}, {"prompt": STORY}, {"prompt": f"You look {QUESTIONS[0]} {STORY[::-1]}"}]
    assert [f.suspect.evidence.split(";")[0] for f in found(lint_bodies(bodies), "L10")] == [
        "2 tokens in a prompt",
        "2 tokens are shared",
    ]


def test_what_fills_a_block_is_not_too_short() -> None:
    assert not found(lint_bodies([chat(question) for question in QUESTIONS], limits=LIMITS), "L10")


def test_a_prompt_below_the_minimum_of_a_hosted_model_is_found() -> None:
    finding = only(lint_bodies([chat("Hi.", model="gpt-4o-mini")], limits=LIMITS), "L10")
    assert (finding.severity, finding.suspect.certainty) == ("low", "inferred")
    assert "OpenAI caches from 1,024 (as of 2026-11)" in finding.suspect.evidence


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("anthropic/claude-opus-4-5", 4096),
        ("claude-sonnet-4-5-20250929", 1024),
        ("claude-opus-5", 512),
        ("gemini-2.5-pro", 2048),
        ("my-model", None),
    ],
)
def test_the_table_of_hosted_models_knows_names_and_their_forms(model: str, minimum: int | None) -> None:
    limit = limit_of(model, LIMITS)
    assert (limit.min_tokens if limit else None) == minimum


def _marked(numbers: list[int], count: int) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": f"{STORY} Part.", **(MARK if i in numbers else {})} for i in range(count)
    ]
    return {"system": parts, "messages": [{"role": "user", "content": "Hi."}]}


def test_too_many_markers_are_found_once_for_all_requests() -> None:
    finding = only(lint_bodies([_marked([0, 1, 2, 3, 4], 45)] * 2), "L11")
    assert (finding.severity, finding.suspect.indices) == ("medium", (0, 1))
    assert finding.suspect.evidence.startswith("5 markers")
    assert finding.suspect.fix == "Keep the last one of each stable part."


def test_a_marker_near_the_end_is_fine() -> None:
    assert not found(lint_bodies([_marked([44], 45)]), "L11")


def test_a_short_match_that_a_clock_explains_is_not_reported_twice() -> None:
    bodies = [chat(q, system=f"12:0{i}:31. {STORY}") for i, q in enumerate(QUESTIONS)]
    assert [f.suspect.rule for f in lint_bodies(bodies).findings] == ["L1"]


def test_two_applications_share_nothing_that_is_too_short() -> None:
    bodies = [chat(QUESTIONS[0]), chat(QUESTIONS[1], system="Name the tide, " * 9)]
    assert not found(lint_bodies(bodies), "L10")
