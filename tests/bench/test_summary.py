"""Arms summed up, and what speaks against comparing them."""

from dataclasses import replace

import pytest

from anaphora.bench.measurement import Answer, CounterDelta, Log, Measurement, Prompt
from anaphora.bench.summary import achievable, counter_gaps, doubts, summarise
from tests.bench.fakes import measured, target

TARGET = target()


def _doubts(*entries: Measurement, same_length: bool = True, as_planned: bool = True) -> list[str]:
    return doubts(Log(list(entries)), TARGET, same_length=same_length, as_planned=as_planned)


@pytest.mark.parametrize(("planned", "tokens"), [(0, 0), (15, 0), (16, 16), (97, 96), (100, 96)])
def test_achievable_is_whole_blocks_and_never_the_last_token(planned: int, tokens: int) -> None:
    """Of a prompt of 100 tokens."""
    assert achievable(measured(planned=planned), 16) == tokens
    assert achievable(measured(planned=100), 1) == 99


def test_sums_are_over_complete_requests_and_unknown_unless_all_are_known() -> None:
    """A failure is counted and adds no tokens; priming is no arm."""
    log = Log(
        [
            measured("prime", phase="prime"),
            measured("warm", 0, cached=96, counted=96, planned=100),
            measured("warm", 1, cached=80, planned=100),
            measured("warm", 2, cached=0, planned=100, failure="lost", is_cut=True),
        ]
    )
    (arm,) = summarise(log, TARGET, ("cold", "warm"))
    assert (arm.arm, arm.sent, arm.failed, arm.cut) == ("warm", 3, 1, 1)
    assert (arm.prompt_tokens, arm.achievable, arm.reported, arm.counted) == (200, 192, 176, None)
    assert arm.achieved == pytest.approx(176 / 192)


def test_reuse_may_be_one_block_less_than_achievable_and_no_token_more_than_planned() -> None:
    """A runner that prefills no single token gives a block back."""
    assert _doubts(measured(cached=80, planned=100)) == []
    assert _doubts(measured(cached=100, planned=100)) == []
    assert "1 of 1 warm requests (achievable 96, seen 79)" in _doubts(measured(cached=79, planned=100))[0]
    assert "(achievable 0, seen 16)" in _doubts(measured(cached=16, planned=2))[0]
    assert _doubts(measured(cached=0, planned=100), as_planned=False) == []


def test_an_unknown_block_size_may_cost_128_tokens() -> None:
    """Hosted servers round down to that."""
    unknown = target(block_size=None)
    for cached, num_doubts in ((1871, 0), (1870, 1)):
        entry = measured(cached=cached, planned=2000, prompt_tokens=2000)
        assert len(doubts(Log([entry]), unknown, same_length=True, as_planned=True)) == num_doubts


def test_arms_of_other_lengths_are_not_compared() -> None:
    """Neither prompts nor outputs."""
    found = _doubts(measured("cold", prompt_tokens=150), measured("warm", completion_tokens=4))
    assert found == [
        "prompts differ in length: cold 150, warm 100",
        "outputs differ in length: cold 1, warm 4",
    ]
    assert _doubts(measured("cold", prompt_tokens=150), measured("warm"), same_length=False) == []


def test_a_run_without_an_answer_is_not_comparable() -> None:
    """It has nothing to compare."""
    assert _doubts(measured(failure="lost")) == [
        "1 of 1 requests failed, 0 of them cut short; the first: lost",
        "no request was answered",
    ]


def test_usage_counters_and_headers_are_held_against_each_other() -> None:
    """Arm by arm."""
    log = Log(
        [
            measured("warm", cached=96, counted=96, header="hit=96; of=100"),
            measured("cold", cached=0, counted=16),
            measured("cold", cached=0, counted=0, header="hit=16; of=100"),
        ]
    )
    assert counter_gaps(log) == [
        "cold: usage says 0 cached tokens, /metrics 16",
        "1 answers have an x-anaphora-cache header that differs from their usage",
    ]


def test_silent_answers_leave_room_for_more_in_the_counters_and_not_for_less() -> None:
    """Of a burst, the first holds the counters of all."""
    for counted, gaps in ((192, []), (224, []), (160, ["warm: usage says 192 cached tokens, /metrics 160"])):
        first = measured("warm", cached=None, counted=counted)
        others = [measured("warm", cached=96, counted=0) for _ in range(2)]
        assert counter_gaps(Log([first, *others])) == gaps


def test_more_cached_tokens_than_the_prompt_has_are_no_reuse() -> None:
    """Whatever the experiment."""
    (found,) = _doubts(measured(cached=101, planned=100), as_planned=False)
    assert "1 answers report more cached tokens than their prompts have (101 of 100)" in found


def test_counters_that_go_back_are_told() -> None:
    """A server that was started anew has forgotten what it held."""
    entry = replace(measured(), counters=CounterDelta(-40, 0))
    (found,) = _doubts(entry)
    assert "the server's counters went back" in found


def test_a_failed_request_does_not_make_lengths_estimates() -> None:
    """It has no usage because it failed."""
    words = replace(measured(), prompt=Prompt(text="x", num_tokens=100, is_exact=False))
    failed = replace(words, answer=Answer(e2e_s=1.0, failure="lost"))
    assert not any("estimates" in text for text in _doubts(words, failed))


def test_estimated_lengths_may_differ_by_a_twentieth() -> None:
    """Words cannot be counted out where the server does not count."""
    words = Prompt(text="x", num_tokens=100, is_exact=False)
    near, far = (
        [measured("cold"), replace(measured("warm", prompt_tokens=tokens), prompt=words)]
        for tokens in (105, 110)
    )
    target_of_one = target(block_size=None)
    found = [
        doubts(Log(entries), target_of_one, same_length=True, as_planned=True) for entries in (near, far)
    ]
    assert found == [[], ["prompts differ in length: cold 100, warm 110"]]


def test_estimated_prompts_may_share_what_stands_around_every_text_and_no_more() -> None:
    """The head of a chat template is cached; more was sent before."""
    words = Prompt(text="x", num_tokens=100, is_exact=False)
    head, old = (replace(measured("cold", cached=cached), prompt=words) for cached in (30, 96))
    facts = target(num_around=20)
    assert doubts(Log([head]), facts, same_length=True, as_planned=True) == []
    (found,) = doubts(Log([head, old]), facts, same_length=True, as_planned=True)
    assert found == "1 of 2 never-seen prompts are reported as cached (96 tokens)"
