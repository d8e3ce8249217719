"""Which lines at the beginning of a system text are a client's stamps."""

import pytest

from anaphora.explain.stamps import LeadingStamps, leading_stamps, stamp_at

NONE = LeadingStamps((), 0)


@pytest.mark.parametrize(
    "stamps, names",
    [
        ("x-anthropic-billing-header: cc_version=2.1; cch=1f00a;\n", ("x-anthropic-billing-header",)),
        ("X-Anthropic-Billing-Header: whatever\r\n", ("X-Anthropic-Billing-Header",)),
        ("x-client: v=1 req_id=77; os=linux\n", ("x-client",)),
        ("traceparent: trace-id=00-4bf9\nx-client: cch=1\n", ("traceparent", "x-client")),
    ],
)
def test_header_lines_at_the_beginning_are_stamps(stamps: str, names: tuple[str, ...]) -> None:
    text = stamps + "You are a careful assistant.\nx-client: cch=2"
    assert leading_stamps(text) == (names, len(stamps))


def test_a_stamp_may_be_all_there_is() -> None:
    assert leading_stamps("x-client: cch=2") == (("x-client",), 15)
    assert leading_stamps("x-client: cch=2\n") == (("x-client",), 16)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "You are a careful assistant.\nx-anthropic-billing-header: cch=1",
        "Note: answer in English.",
        "Note: the request id= is secret",
        " x-client: cch=1",
        "x client: cch=1",
    ],
)
def test_other_beginnings_are_none(text: str) -> None:
    assert leading_stamps(text) == NONE


def test_a_stamp_is_the_whole_line_around_a_character() -> None:
    text = "x-client: cch=2\nYou are."
    assert stamp_at(text, 14) == "x-client: cch=2"
    assert stamp_at(text, 17) is None
