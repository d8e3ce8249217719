"""Requests with a known fault each: for every kind that can be told without a server, cases made from a seed.

A case says which code is right, and with what its path must begin. The texts are put together from words, the
templates are in the manner of well-known families, and nothing is taken from anybody's logs.
"""

from collections.abc import Iterator

from tests.explain.corpus_fields import json_cases, settings_cases, tool_order_cases, tool_set_cases
from tests.explain.corpus_fine import (
    bypassed_cases,
    fine_cases,
    law_cases,
    marker_cases,
    namespace_cases,
    new_cases,
    short_cases,
    unseen_setting_cases,
)
from tests.explain.corpus_forms import docs_cases, unicode_cases, whitespace_cases
from tests.explain.corpus_history import (
    condensed_cases,
    dropped_cases,
    edited_cases,
    helper_cases,
    inserted_cases,
    moved_cases,
    retokenised_cases,
    special_cases,
    system_cases,
    template_cases,
)
from tests.explain.corpus_shapes import shape_cases
from tests.explain.corpus_values import stamp_cases, user_cases, volatile_cases
from tests.explain.corpus_words import Case, Encode


def cases(encode: Encode, seed: int = 0) -> Iterator[Case]:
    """All cases; `encode` is the tokenizer's, without added tokens."""
    yield from volatile_cases(seed)
    yield from stamp_cases(seed)
    yield from user_cases(seed)
    yield from tool_order_cases(seed)
    yield from tool_set_cases(seed)
    yield from settings_cases(seed)
    yield from json_cases(seed, "json_order")
    yield from json_cases(seed, "json_format")
    yield from whitespace_cases(seed)
    yield from unicode_cases(seed)
    yield from docs_cases(seed)
    yield from template_cases(seed)
    yield from retokenised_cases(seed, encode)
    yield from special_cases(seed)
    yield from dropped_cases(seed)
    yield from edited_cases(seed)
    yield from condensed_cases(seed)
    yield from moved_cases(seed)
    yield from inserted_cases(seed)
    yield from helper_cases(seed)
    yield from system_cases(seed)
    yield from marker_cases(seed)
    yield from short_cases(seed)
    yield from law_cases(seed, encode)
    yield from new_cases(seed)
    yield from fine_cases(seed)
    yield from unseen_setting_cases(seed)
    yield from namespace_cases(seed)
    yield from bypassed_cases(seed)
    yield from shape_cases(seed)
