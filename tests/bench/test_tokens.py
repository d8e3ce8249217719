"""Counting by a server's own /tokenize."""

import pytest

from anaphora.bench.client import open_http
from anaphora.bench.tokens import TokenCounter
from anaphora.errors import TargetError
from tests.bench.fakes import ACCESS, FakeServer, run, target


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"tokens": "abc"}', "answers with tokens that are no list: {"),
        ('{"tokens": {"0": 1}}', "answers with tokens that are no list: {"),
        ('{"count": 3}', "answers without tokens: {"),
        ("[1, 2]", "answers without tokens: \\["),
        ("<html>", "answers without tokens: <html>"),
    ],
)
def test_an_answer_that_counts_nothing_is_told_as_it_is(answer: str, words: str) -> None:
    """Three letters are not three tokens."""
    server = FakeServer(pages={"/tokenize": ("application/json", answer)})
    counter = TokenCounter(open_http(ACCESS, server), target(tokenize="vllm"))
    with pytest.raises(TargetError, match=words):
        run(counter.count("some words"))
