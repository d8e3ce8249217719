"""docs/api.md: whatever the code knows stands on it."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from anaphora.metrics.exposition import FAMILIES
from anaphora.server import fields
from anaphora.server.bodies import (
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    PinBody,
    StreamOptions,
    TokenizeBody,
)
from anaphora.server.messages import MESSAGE_FIELDS, PART_FIELDS, REFUSED_MESSAGE_FIELDS, ROLES
from anaphora.server.wire_errors import _KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
BODIES = (ChatBody, CompletionBody, TokenizeBody, DetokenizeBody, PinBody, StreamOptions)


def missing(names: Iterable[str]) -> list[str]:
    """Return the names that do not stand on the page as code."""
    return sorted(name for name in names if f"`{name}`" not in PAGE)


@pytest.mark.parametrize("body", BODIES)
def test_every_field_of_a_body_is_on_the_page(body: type[ChatBody]) -> None:
    assert missing({*body.model_fields, *body.refused, *body.ignored}) == []


def test_every_field_inside_messages_is_on_the_page() -> None:
    assert missing({*MESSAGE_FIELDS, *PART_FIELDS, *REFUSED_MESSAGE_FIELDS, *ROLES} - {"type"}) == []


def test_every_metric_is_on_the_page() -> None:
    assert missing(family.name for family in FAMILIES) == []


def test_every_kind_of_error_is_on_the_page() -> None:
    for _, status, type_ in _KINDS:
        assert f"| {status} | `{type_}` |" in PAGE


def test_no_honoured_field_is_said_to_be_refused_or_ignored() -> None:
    """The page is read by people who will not try it out."""
    refused = PAGE.partition("### Refused")[2].partition("## Keeping")[0]
    honoured = {*ChatBody.model_fields, *CompletionBody.model_fields}
    everywhere = honoured - set(fields.REFUSED_BY_CHAT) - set(fields.REFUSED_BY_COMPLETIONS)
    assert [name for name in sorted(everywhere) if f"`{name}`" in refused] == []
