"""Conversations replayed as text and as ids."""

import statistics

import pytest

from anaphora.bench.measurement import Log
from anaphora.bench.multiturn import MultiturnExperiment
from tests.bench.fakes import FakeServer, bench, measured, target

SMALL = MultiturnExperiment(turns=3, rounds=3, tokens=40, output_tokens=24)


def test_each_turn_finds_the_turns_before_it_replies_included() -> None:
    """40, 104 and 168 tokens; 63 and 127 of them were there before, in whole blocks 48 and 112."""
    report = bench(SMALL, FakeServer())
    rows = [row for row in report.conclusion.details["turns"] if row["arm"] == "text"]
    assert [(row["prompt_tokens"], row["achievable"], row["cached_tokens"]) for row in rows] == [
        (40, 0, 0),
        (104, 48, 48),
        (168, 112, 112),
    ]
    assert "ids replayed: not measured, since the server gives no token ids" in report.conclusion.findings[2]
    assert (report.is_comparable, report.exit_code) == (True, 0)


def test_replies_that_are_tokenized_otherwise_are_lost_as_text_and_kept_as_ids() -> None:
    """The reply is one word to the tokenizer, and was 24 tokens to the model."""
    report = bench(SMALL, FakeServer(gives_ids=True, splits_replies=True))
    lost = report.conclusion.details["lost_tokens_per_turn"]
    assert lost["ids"] == 0
    assert lost["text"] > 16
    assert report.conclusion.findings[-1].startswith("lost by replaying text instead of ids: ")


def test_a_chat_is_sent_as_messages() -> None:
    """Two of the user's and one reply between them."""
    server = FakeServer(apis=("chat",))
    bench(MultiturnExperiment(turns=2, rounds=1, tokens=20, output_tokens=4), server)
    longest = max(server.bodies, key=lambda body: len(body["messages"]))
    assert [message["role"] for message in longest["messages"]] == ["user", "assistant", "user"]


def test_a_conversation_whose_reply_failed_is_not_continued() -> None:
    """Its later turns would be other prompts."""
    report = bench(
        MultiturnExperiment(turns=3, rounds=1, tokens=20, output_tokens=4), FakeServer(trouble={2: "500"})
    )
    assert [(entry.arm, entry.axis) for entry in report.log] == [("text", 1), ("control", 1)]


def test_the_time_of_a_turn_is_the_median_of_its_rounds() -> None:
    """Of an even number too."""
    experiment = MultiturnExperiment(turns=2, rounds=4, tokens=40, output_tokens=4)
    report = bench(experiment, FakeServer(jitter_s=0.05))
    for row in report.conclusion.details["turns"]:
        own = [e.answer.ttft_s for e in report.log.good(row["arm"]) if e.axis == row["turn"]]
        assert row["ttft_ms"] == pytest.approx(statistics.median(filter(None, own)) * 1000)


def test_the_control_is_as_long_as_the_turn_where_words_are_several_tokens() -> None:
    """And what was achievable is in tokens too."""
    report = bench(SMALL, FakeServer(tokenize=None, per_word=2, counts="nothing"))
    lengths = {arm: [entry.prompt_tokens for entry in report.log.good(arm)] for arm in ("text", "control")}
    assert lengths["text"] == lengths["control"]
    assert all(e.planned < e.prompt_tokens for e in report.log.good("text"))
    assert report.exit_line == "comparable: yes"


def test_a_control_of_another_length_is_not_compared() -> None:
    """A time says something only beside one of a prompt as long."""
    log = Log([measured("text", axis=2), measured("control", axis=2, prompt_tokens=150)])
    assert SMALL.conclude(log, [target()]).doubts == ["prompts differ in length: text 100, control 150"]


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ("nothing", "hit rate not reported, achieved ÷ achievable unknown"),
        ("truth", "by /metrics, achieved ÷ achievable 1.000"),
    ],
)
def test_turns_of_which_nothing_is_reported_are_not_left_out_of_what_was_achieved(
    counts: str, words: str
) -> None:
    """The second turn is too short for a block, and a server that reports only hits is silent about it."""
    short = MultiturnExperiment(turns=4, rounds=2, tokens=8, output_tokens=4)
    report = bench(short, FakeServer(reports="hits", counts=counts))
    assert {entry.answer.cached_tokens for entry in report.log.good("text")} > {None}
    assert words in report.conclusion.findings[0]
