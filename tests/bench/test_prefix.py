"""Whether caching is on, by three witnesses, and what is said when they disagree."""

import itertools
from typing import Any

import pytest

from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.run import run_experiment
from anaphora.bench.target import Access
from tests.bench.fakes import ACCESS, DECODE_S, PREFILL_S, URL, FakeServer, bench, run

SMALL = PrefixExperiment(tokens=100, rounds=4, output_tokens=3)


def test_caching_that_is_on_is_found_by_all_three_and_its_worth_is_told_with_its_conditions() -> None:
    """100 tokens of which 96 are cached: 4 ms of prefill and a decode against 100 ms and a decode."""
    report = bench(SMALL, FakeServer())
    arms = {arm.arm: arm for arm in report.arms}
    assert arms["warm"].ttft and arms["warm"].ttft.median == pytest.approx(4 * PREFILL_S + DECODE_S)
    assert arms["control"].ttft and arms["control"].ttft.median == pytest.approx(100 * PREFILL_S + DECODE_S)
    assert [(arm.arm, arm.sent, arm.achievable, arm.reported, arm.counted) for arm in report.arms] == [
        ("cold", 4, 0, 0, 0),
        ("warm", 8, 768, 768, 768),
        ("control", 4, 0, 0, 0),
    ]
    verdict, times, worth = report.findings
    assert verdict == "prefix caching: on (usage: yes, /metrics: yes, timing: yes)"
    assert times == (
        "time to first token at a hit rate of 96.0% on prompts of 100 tokens, one request at a time: "
        "warm 14.0 ms [14.0 to 14.0], control 110.0 ms [110.0 to 110.0]"
    )
    assert worth == (
        "warm takes 0.127 to 0.127 of the control's time, at a hit rate of 96.0% on prompts of 100 tokens, "
        "one request at a time"
    )
    assert report.conclusion.equality and (
        report.conclusion.equality.compared,
        report.conclusion.equality.different,
    ) == (8, 0)
    assert (report.exit_line, report.exit_code) == ("comparable: yes", 0)


@pytest.mark.parametrize(
    ("settings", "caching", "words"),
    [
        ({"caching": False}, "off", []),
        ({"caching": False, "reports": "nothing", "counts": "nothing"}, "off", []),
        ({"reports": "nothing", "counts": "nothing"}, "on", []),
        (
            {"reports": "zero", "counts": "nothing"},
            "on",
            ["usage reports no reuse, but warm requests are faster"],
        ),
        ({"counts": "zero"}, "on", ["usage says reuse, /metrics says no reuse"]),
        (
            {"caching": False, "reports": "all"},
            "doubtful",
            ["usage reports reuse, but warm", "never-seen prompts are"],
        ),
        (
            {"caching": False, "counts": "all"},
            "doubtful",
            ["/metrics reports reuse, but warm requests are not faster"],
        ),
    ],
)
def test_the_verdict_and_the_disagreements(settings: dict[str, Any], caching: str, words: list[str]) -> None:
    """Reuse that is only reported, only counted, or only felt."""
    report = bench(SMALL, FakeServer(**settings))
    assert report.conclusion.details["verdict"]["caching"] == caching
    text = "\n".join(report.conclusion.disagreements)
    assert all(word in text for word in words)
    assert bool(text) == bool(words)
    assert report.exit_code == (0 if caching == "on" and not words else 2)


def test_reuse_inferred_from_timing_names_its_test() -> None:
    """Because nobody else says anything."""
    report = bench(SMALL, FakeServer(reports="nothing", counts="nothing"))
    assert (
        "reuse is inferred from timing only, by one-sided exact Mann-Whitney" in report.conclusion.findings[0]
    )


def test_no_gain_is_claimed_where_warm_is_not_below_control() -> None:
    """And planned reuse that did not come speaks against the comparison."""
    report = bench(SMALL, FakeServer(caching=False))
    assert report.findings[2].startswith(
        "no gain is claimed, since warm is not clearly below control (ratio 1.000"
    )
    assert report.exit_line == (
        "comparable: no (planned and seen reuse differ in 8 of 8 warm requests (achievable 96, seen 0))"
    )


def test_a_seed_that_was_used_before_is_found_out() -> None:
    """Cold prompts are then warm, and must not pass as cold."""
    server = FakeServer(reset=None)
    bench(SMALL, server, seed=7)
    report = bench(SMALL, server, seed=7)
    assert "never-seen prompts are reported as cached" in "\n".join(report.conclusion.disagreements)
    assert not report.is_comparable


def test_other_users_of_the_server_are_noticed_by_its_counters() -> None:
    """Five prompt tokens more per request than were sent."""
    report = bench(SMALL, FakeServer(foreign_tokens=5))
    assert "others use the server too" in report.exit_line


def test_control_is_sent_right_after_warm_and_the_order_is_the_seeds() -> None:
    """Two seeds, two orders; one seed, one order."""
    orders = [[entry.arm for entry in bench(SMALL, FakeServer(), seed=seed).log] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        assert all(before == "warm" for before, arm in itertools.pairwise(order) if arm == "control")


def test_it_works_without_tokenize_metrics_and_usage_and_says_so() -> None:
    """Only a streaming endpoint is needed."""
    server = FakeServer(tokenize=None, counts="nothing", has_usage=False, reset=None)
    report = bench(SMALL, server, Access(base_url=f"{URL}/v1/"))
    assert report.conclusion.details["verdict"]["caching"] == "on"
    assert report.lengths == "estimated at one token per word, since the server has no /tokenize"
    assert report.targets[0].reset == "unsupported"
    assert report.reasons == [
        "prompt lengths are estimates: the server neither counts tokens nor reports usage"
    ]


def test_a_chat_server_works_too_and_the_head_of_its_template_is_no_reuse_of_ours() -> None:
    """The template's first token is part of every prompt."""
    report = bench(SMALL, FakeServer(apis=("chat",)))
    assert report.targets[0].api == "chat"
    assert (report.conclusion.details["verdict"]["caching"], report.is_comparable) == ("on", True)
    assert {entry.prompt_tokens for entry in report.log} == {100}


def test_failures_are_counted_and_stand_in_the_exit_line() -> None:
    """Two of twenty: one refused, one cut short. The two before are the probes."""
    report = bench(SMALL, FakeServer(trouble={5: "500", 9: "cut"}))
    words = "2 of 20 requests failed, 1 of them cut short; the first: status 500: out of luck"
    assert words in report.exit_line
    assert report.findings[-1] == "no gain is claimed, since the run is not comparable"
    primes = sum(not entry.is_good for entry in report.log if entry.phase == "prime")
    assert sum(arm.failed for arm in report.arms) + primes == 2
    assert report.as_json()["retries"] == 0
    assert report.exit_code == 2


def test_words_of_several_tokens_do_not_make_reuse_more_than_achievable() -> None:
    """100 words that turn out to be 200 tokens, at a server that does not count them beforehand."""
    report = bench(SMALL, FakeServer(tokenize=None, per_word=2, counts="nothing"))
    warm = next(arm for arm in report.arms if arm.arm == "warm")
    assert (warm.prompt_tokens, warm.achievable, warm.reported) == (1600, 8 * 199, 8 * 192)
    assert "on prompts of 200 tokens" in report.findings[1]
    assert report.exit_line == "comparable: yes"


def test_the_head_of_a_template_is_no_reuse_where_the_server_does_not_count_either() -> None:
    """Its length shows in the usage of the first question."""
    report = bench(SMALL, FakeServer(apis=("chat",), tokenize=None, counts="nothing", block_size=1))
    assert {e.answer.cached_tokens for e in report.log.good("cold", "control")} == {1}
    assert (report.conclusion.disagreements, report.exit_line) == ([], "comparable: yes")


FAR: dict[str, Any] = {"wait_s": 1.0, "jitter_s": 0.2}


@pytest.mark.parametrize(
    ("settings", "caching"),
    [
        (FAR | {"reports": "nothing", "counts": "nothing"}, "unknown"),
        (FAR | {"reports": "nothing", "counts": "nothing", "caching": False}, "unknown"),
        (FAR, "on"),
        (FAR | {"caching": False}, "off"),
    ],
)
def test_where_prompts_cost_next_to_nothing_the_clock_says_neither(
    settings: dict[str, Any], caching: str
) -> None:
    """A far server: each request takes a second, with or without what the cache saves."""
    small = PrefixExperiment(tokens=40, rounds=5, output_tokens=3)
    report = bench(small, FakeServer(**settings))
    assert report.conclusion.details["verdict"]["timing"] == "cannot tell"
    assert report.conclusion.details["verdict"]["caching"] == caching
    assert any(text.startswith("a never-seen prompt of 8 tokens takes") for text in report.findings)
    assert sum(entry.phase == "probe" for entry in report.log) == 5


def test_reuse_that_only_the_counters_tell_has_a_hit_rate_and_says_whose_it_is() -> None:
    """As vLLM does by default."""
    report = bench(SMALL, FakeServer(reports="nothing"))
    assert "at a hit rate of 96.0% by /metrics on prompts of 100 tokens" in report.findings[1]


@pytest.mark.parametrize("counts", ["truth", "nothing"])
def test_a_server_that_reports_only_hits_has_its_cache_on(counts: str) -> None:
    """What is silent are the requests that nothing is cached for."""
    report = bench(SMALL, FakeServer(reports="hits", counts=counts))
    assert {entry.answer.cached_tokens for entry in report.log.good("cold", "control")} == {None}
    assert report.findings[0].startswith("prefix caching: on (usage: yes, ")
    assert "at a hit rate of 96.0% on prompts of 100 tokens" in report.findings[1]
    assert (report.conclusion.disagreements, report.exit_code) == ([], 0)


def test_a_given_seed_proves_nothing_at_a_server_that_says_nothing() -> None:
    """Its prompts may have been sent before, and nobody would know."""
    silent: dict[str, Any] = {"reports": "nothing", "counts": "nothing"}
    doubt = "the seed was given, the cache was not reset, and the server reports no reuse"
    for server, is_told in (
        (FakeServer(reset=None, **silent), True),
        (FakeServer(**silent), False),
        (FakeServer(reset=None), False),
    ):
        report = run_experiment(SMALL, [ACCESS], 7, is_new_seed=False, run=run, transport=server)
        assert any(text.startswith(doubt) for text in report.reasons) == is_told
    again = bench(SMALL, FakeServer(reset=None, **silent), seed=7)
    assert again.is_comparable  # the seed is a new one
