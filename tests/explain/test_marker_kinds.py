"""Markers for hosted services, where what they mark looks like it changes, or is too little."""

import copy
from typing import Any

from anaphora.explain.marker_kinds import marker
from tests.explain.support import STORY, record

MARK = {"cache_control": {"type": "ephemeral"}}


def body(text: str, size: int = 60) -> dict[str, Any]:
    """A long system text under a marker."""
    return {
        "system": [{"type": "text", "text": f"{text} {STORY * size}", **MARK}],
        "messages": [{"role": "user", "content": "Who is there?"}],
    }


def test_what_stood_there_before_does_not_change() -> None:
    """Opening hours and dates of foundation are no clocks."""
    request = record("new", body("Order 2026-11-29 14:02 is the first."))
    assert marker(request) is not None
    assert marker(request, record("old", copy.deepcopy(body("Order 2026-11-29 14:02 is the first.")))) is None
    assert marker(request, record("old", body("Order 2026-11-29 14:01 is the first."))) is not None


def test_years_and_percentages_are_no_clocks_even_alone() -> None:
    """So a marker behind them is left alone."""
    assert marker(record("new", body("Since 1998, 10% off, open 9:00 to 17:00."))) is None


def test_a_marker_counts_what_stands_before_it() -> None:
    """Not the whole prompt."""
    request = body("Hello.")
    del request["system"][0]["cache_control"]
    request["system"].insert(0, {"type": "text", "text": "Be kind.", **MARK})
    found = marker(record("new", request))
    assert found is not None
    assert found.path == "system[0]"
    assert "below 1,024" in found.advice


def test_markers_in_a_responses_body_are_seen() -> None:
    """In its instructions' place and in its input."""
    part = {"type": "input_text", "text": STORY, "prompt_cache_breakpoint": {"mode": "explicit"}}
    request = {"input": [{"role": "user", "content": [part] * 5}]}
    found = marker(record("new", request))
    assert found is not None
    assert found.path == "input[0].content[4]"
