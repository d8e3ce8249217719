"""Each provider's usage object by its real field names, and the traps: null, absent, 0, counted twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.cost.shapes import read_usage
from anaphora.cost.usage import CLASSES, TokenSplit, Usage, UsageShapeError

OPENAI_CHAT = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 64, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
OPENAI_RESPONSES = {
    "input_tokens": 2006,
    "input_tokens_details": {"cached_tokens": 1920, "cache_write_tokens": 64},
    "output_tokens": 300,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2306,
}
ANTHROPIC = {
    "input_tokens": 22,
    "cache_creation_input_tokens": 64,
    "cache_read_input_tokens": 1920,
    "cache_creation": {"ephemeral_5m_input_tokens": 48, "ephemeral_1h_input_tokens": 16},
    "output_tokens": 300,
    "service_tier": "standard",
}
GEMINI = {
    "promptTokenCount": 2006,
    "cachedContentTokenCount": 1920,
    "candidatesTokenCount": 250,
    "thoughtsTokenCount": 50,
    "totalTokenCount": 2306,
}
DEEPSEEK = {
    "prompt_tokens": 2006,
    "completion_tokens": 300,
    "total_tokens": 2306,
    "prompt_tokens_details": {"cached_tokens": 1920},
    "prompt_cache_hit_tokens": 1920,
    "prompt_cache_miss_tokens": 86,
}
TRACE = {"prompt_tokens": 2006, "cached_tokens": 1920, "completion_tokens": 300}


@pytest.mark.parametrize(
    ("body", "provider", "split"),
    [
        (OPENAI_CHAT, "openai", TokenSplit(fresh=22, read=1920, write_short=64)),
        (OPENAI_RESPONSES, "openai", TokenSplit(fresh=22, read=1920, write_short=64)),
        (ANTHROPIC, "anthropic", TokenSplit(fresh=22, read=1920, write_short=48, write_long=16)),
        (GEMINI, "gemini", TokenSplit(fresh=86, read=1920)),
        (DEEPSEEK, "deepseek", TokenSplit(fresh=86, read=1920)),
        (TRACE, "server", TokenSplit(read=1920, fresh_or_written=86)),
    ],
    ids=["chat", "responses", "anthropic", "gemini", "deepseek", "trace"],
)
def test_each_shape_is_read_by_its_own_rule(body: dict[str, Any], provider: str, split: TokenSplit) -> None:
    """All six tell of the same prompt of 2,006 tokens, of which 1,920 were cached."""
    usage = read_usage(body)
    assert (usage.provider, usage.split, usage.output) == (provider, split, 300)
    assert split.total == 2006


def test_the_same_name_means_two_things() -> None:
    """`input_tokens` is everything in one API and the uncached rest in the other."""
    responses = read_usage({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}})
    message = read_usage(
        {"input_tokens": 100, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 0}
    )
    assert responses.split and responses.split.total == 100
    assert message.split and message.split.total == 190


def test_the_providers_own_fields_are_kept() -> None:
    assert read_usage(DEEPSEEK).raw == {
        "prompt_cache_hit_tokens": 1920,
        "prompt_cache_miss_tokens": 86,
        "prompt_tokens": 2006,
        "completion_tokens": 300,
    }


RECORDED = {"input_length": 2006, "cached_tokens": 1920, "output_length": 300, "hash_ids": ["a"]}


def test_a_line_that_our_server_recorded_is_read() -> None:
    usage = read_usage({**RECORDED, "turn_record": {"fork_of": None}})
    assert (usage.provider, usage.output) == ("server", 300)
    assert usage.split == TokenSplit(read=1920, fresh_or_written=86)


def test_the_prompt_of_several_sequences_counts_once() -> None:
    usage = read_usage({**RECORDED, "turn_record": {"fork_of": 5}})
    assert (usage.split, usage.output) == (TokenSplit(), 300)


def test_a_public_trace_reports_no_reads() -> None:
    assert read_usage({"input_length": 9, "output_length": 1, "hash_ids": [1]}).not_said is not None


def test_gemini_is_read_as_its_python_client_writes_it() -> None:
    body = {
        "prompt_token_count": 2006,
        "cached_content_token_count": 1920,
        "candidates_token_count": 250,
        "thoughts_token_count": 50,
        "tool_use_prompt_token_count": None,
    }
    assert read_usage(body) == read_usage({**GEMINI, "toolUsePromptTokenCount": None})


def test_what_tools_gave_gemini_to_read_is_fresh_and_beside_the_prompt() -> None:
    usage = read_usage({**GEMINI, "toolUsePromptTokenCount": 500})
    assert usage.split == TokenSplit(fresh=586, read=1920)


def test_tokens_of_sound_are_told_apart() -> None:
    chat = {
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 90},
        "completion_tokens_details": {"audio_tokens": 7},
    }
    usage = read_usage({**OPENAI_CHAT, **chat})
    assert (usage.audio, usage.audio_output) == (90, 7)
    parts = [{"modality": "TEXT", "tokenCount": 6}, {"modality": "AUDIO", "tokenCount": 2000}]
    usage = read_usage({**GEMINI, "promptTokensDetails": parts, "candidatesTokensDetails": parts})
    assert (usage.audio, usage.audio_output) == (2000, 2000)
    assert read_usage({**GEMINI, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 6}]}).audio == 0


def test_more_tokens_than_any_request_has_are_an_error() -> None:
    """Such a number made the seconds overflow."""
    with pytest.raises(UsageShapeError, match=r"^prompt_tokens is above 1,000,000,000,000,000, "):
        read_usage({"prompt_tokens": 10**400, "prompt_tokens_details": {"cached_tokens": 0}})


# Null, absent and 0.


@pytest.mark.parametrize(
    "body",
    [
        {"prompt_tokens": 10, "completion_tokens": 1},
        {"prompt_tokens": 10, "prompt_tokens_details": None},
        {"prompt_tokens": 10, "prompt_tokens_details": {}},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}},
        {"prompt_tokens": 10, "cached_tokens": None},
        {"input_tokens": 10, "input_tokens_details": {"cached_tokens": None}},
        {"input_tokens": 10, "cache_read_input_tokens": None, "cache_creation_input_tokens": 4},
        {"promptTokenCount": 10},
        {"prompt_tokens": 10, "prompt_cache_miss_tokens": 10},
    ],
)
def test_a_count_that_is_null_or_absent_was_not_reported(body: dict[str, Any]) -> None:
    usage = read_usage(body)
    assert usage.split is None
    assert usage.not_said == "the provider did not report how many tokens were read from the cache"


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}, 0),
        ({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}, 0),
        ({"promptTokenCount": 10, "cachedContentTokenCount": 0}, 0),
        ({"prompt_cache_hit_tokens": 0, "prompt_cache_miss_tokens": 10}, 0),
    ],
)
def test_a_count_of_zero_is_a_count(body: dict[str, Any], read: int) -> None:
    """Not dropped as falsy."""
    assert read_usage(body).split == TokenSplit(fresh=10, read=read)


def test_writes_that_were_not_reported_leave_the_rest_without_a_class() -> None:
    usage = read_usage({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 4}})
    assert usage.split == TokenSplit(read=4, fresh_or_written=6)
    assert usage.split.exact("read") == 4
    assert usage.split.exact("fresh") is None
    assert usage.split.exact("write_short") is None
    assert usage.split.exact("write_long") == 0


def test_a_write_whose_life_was_not_reported_is_neither_short_nor_long() -> None:
    usage = read_usage(
        {
            "input_tokens": 3,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 7,
            "output_tokens": 1,
        }
    )
    assert usage.split == TokenSplit(fresh=3, short_or_long=7)
    assert (usage.split.exact("write_short"), usage.split.exact("write_long")) == (None, None)
    assert usage.split.exact("fresh") == 3


def test_no_write_has_no_life_to_report() -> None:
    usage = read_usage(
        {
            "input_tokens": 3,
            "cache_read_input_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_creation": None,
        }
    )
    assert usage.split == TokenSplit(fresh=3, read=5)
    assert usage.split.is_complete


@pytest.mark.parametrize(
    "body",
    [
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 11}},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 5}},
        {"prompt_tokens": 10, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 6},
        {**ANTHROPIC, "cache_creation_input_tokens": 65},
        {"promptTokenCount": 10, "cachedContentTokenCount": 11},
        {"prompt_tokens": 10, "cached_tokens": 11},
    ],
)
def test_counts_that_do_not_add_up_are_no_counts(body: dict[str, Any]) -> None:
    usage = read_usage(body)
    assert usage.split is None and usage.not_said is not None
    assert usage.not_said.startswith("does not add up: ")


@pytest.mark.parametrize("value", [-1, 1.5, "10", True, [1]])
def test_what_is_no_number_of_tokens_is_an_error(value: Any) -> None:
    with pytest.raises(UsageShapeError, match=r"^prompt_tokens is .*, but must be a whole number from 0 up$"):
        read_usage({"prompt_tokens": value, "prompt_tokens_details": {"cached_tokens": 0}})


def test_details_that_are_no_object_are_an_error() -> None:
    with pytest.raises(UsageShapeError, match=r"^prompt_tokens_details is '7', but must be an object$"):
        read_usage({"prompt_tokens": 9, "prompt_tokens_details": 7})


# Whose it is.


BARE = {"input_tokens": 10, "output_tokens": 2}


def test_input_tokens_alone_may_be_of_two_providers() -> None:
    with pytest.raises(UsageShapeError, match="--provider openai or --provider anthropic"):
        read_usage(BARE)
    assert read_usage(BARE, "openai").provider == "openai"
    assert read_usage(BARE, "anthropic").provider == "anthropic"


def test_fields_of_two_providers_in_one_object_are_not_guessed_at() -> None:
    """A proxy that translates: whether `prompt_tokens` includes the cached ones depends on its version."""
    mixed = {
        "prompt_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 90},
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 0,
    }
    with pytest.raises(UsageShapeError, match="may be OpenAI chat or Anthropic"):
        read_usage(mixed)
    assert read_usage(mixed, "openai").split == TokenSplit(read=90, fresh_or_written=10)
    assert read_usage(mixed, "anthropic").not_said == (
        "the provider did not report the uncached rest of the prompt"
    )


def test_a_choice_does_not_overrule_fields_that_tell() -> None:
    """So a log of several providers can be read with --provider."""
    assert read_usage(ANTHROPIC, "openai") == read_usage(ANTHROPIC)


@pytest.mark.parametrize("body", [{}, {"inputTokens": 3, "cacheReadInputTokens": 2}])
def test_an_unknown_shape_is_an_error_that_names_its_fields(body: dict[str, Any]) -> None:
    names = ", ".join(body) or "none at all"
    with pytest.raises(UsageShapeError, match=f"has no known field; it has: {names}$"):
        read_usage(body)


# The sums.

counts = st.none() | st.integers(0, 50)


@st.composite
def usages(draw: st.DrawFn) -> dict[str, Any]:
    shape: dict[str, Any] = draw(
        st.sampled_from([OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC, GEMINI, DEEPSEEK, TRACE])
    )

    def vary(body: dict[str, Any]) -> dict[str, Any]:
        return {
            name: vary(value) if isinstance(value, dict) else draw(counts)
            for name, value in body.items()
            if not isinstance(value, str)
        }

    return vary(shape)


@given(usages())
def test_the_classes_sum_to_the_total_or_there_are_none(body: dict[str, Any]) -> None:
    usage: Usage = read_usage(body)
    if usage.split is None:
        assert usage.not_said
        return
    split = usage.split
    if split.is_complete:
        assert sum(split.exact(name) or 0 for name in CLASSES) == split.total
        assert None not in [split.exact(name) for name in CLASSES]
    if usage.provider == "anthropic":
        lives = body["cache_creation"]
        written = body["cache_creation_input_tokens"]
        if written is None:
            written = lives["ephemeral_5m_input_tokens"] + lives["ephemeral_1h_input_tokens"]
        total = body["input_tokens"] + body["cache_read_input_tokens"] + written
    elif usage.provider == "deepseek" and body["prompt_tokens"] is None:
        total = body["prompt_cache_hit_tokens"] + body["prompt_cache_miss_tokens"]
    else:
        total = next(body[n] for n in ("prompt_tokens", "input_tokens", "promptTokenCount") if n in body)
    assert split.total == total
    assert all(getattr(split, name) >= 0 for name in (*CLASSES, "fresh_or_written", "short_or_long"))
