"""The counters of /metrics, ours and vLLM's."""

import pytest

from anaphora.cost.bill import Unknown
from anaphora.cost.server_metrics import parse_metrics
from anaphora.cost.usage import TokenSplit
from anaphora.errors import ConfigError
from anaphora.metrics.exposition import FAMILIES

VLLM = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="org/m"} 1.0e+03
vllm:prompt_tokens_total{engine="1",model_name="org/m"} 500.0 1764460800000
vllm:prompt_tokens_cached_total{engine="0",model_name="org/m"} 700.0
vllm:prompt_tokens_cached_total{engine="1",model_name="org/m"} 100.0
vllm:generation_tokens_total{engine="0",model_name="org/m"} 40.0
vllm:request_prompt_tokens_count{engine="0",model_name="org/m"} 3.0
vllm:request_prefill_kv_computed_tokens_sum{engine="0",model_name="org/m"} 6000.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="org/m"} 2.5
vllm:request_prefill_time_seconds_count{engine="0",model_name="org/m"} 3.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="0.3",model_name="org/m"} 3.0
"""


def test_the_engines_of_a_model_are_added_up() -> None:
    (tally,) = parse_metrics(VLLM).tallies()
    assert (tally.provider, tally.model, tally.num_requests, tally.output) == ("server", "org/m", 3, 40)
    assert tally.split == TokenSplit(read=800, fresh_or_written=700)
    assert tally.is_reported


def test_models_are_told_apart() -> None:
    both = VLLM + VLLM.replace("org/m", 'quo\\"ted')
    assert [tally.model for tally in parse_metrics(both).tallies()] == ["org/m", 'quo\\"ted']


def test_the_prefill_rate_is_what_was_computed_over_the_time_it_took() -> None:
    assert parse_metrics(VLLM).prefill_rate() == 2400.0


def test_prefills_that_reused_nothing_go_before_all_others() -> None:
    """A thousand cached prompts would make the server look slow, and what they saved look large."""
    name = "anaphora:uncached_prefill"
    ours = (
        f"{name}_tokens_total 4000\n{name}_time_seconds_sum 1.25\n{name}_time_seconds_count 2\n"
        "vllm:prompt_tokens_total 0\n"
    )
    assert parse_metrics(VLLM + ours).prefill_rate() == 3200.0
    unmeasured = ours.replace("4000", "0").replace("1.25", "0").replace("count 2", "count 0")
    assert isinstance(parse_metrics(VLLM + unmeasured).prefill_rate(), Unknown)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "request_prefill_time_seconds_sum",
            "other",
            "the server exports no vllm:request_prefill_time_seconds_sum",
        ),
        ("} 2.5", "} 0.0", "the server has measured no prefill yet"),
        ("} 6000.0", "} 0.0", "the server has measured no prefill yet"),
        ("} 6000.0", "} 1500.0", "the prefills of the server have 500 tokens on average"),
    ],
)
def test_a_rate_that_was_not_measured_is_not_a_number(old: str, new: str, words: str) -> None:
    rate = parse_metrics(VLLM.replace(old, new)).prefill_rate()
    assert isinstance(rate, Unknown)
    assert rate.reason.startswith(f"prefill rate unknown: {words}") and "--prefill-rate" in rate.reason


def test_queries_and_hits_stand_in_for_cached_tokens_that_are_not_exported() -> None:
    text = (
        'vllm:prompt_tokens_total{model_name="m"} 900\n'
        'vllm:prefix_cache_queries_total{model_name="m"} 1000\nvllm:prefix_cache_hits_total{model_name="m"} 300\n'
    )
    (tally,) = parse_metrics(text).tallies()
    assert tally.split == TokenSplit(read=300, fresh_or_written=700)
    assert (tally.num_requests, tally.output) == (None, None)


@pytest.mark.parametrize("requests", ["", 'vllm:request_prompt_tokens_count{model_name="m"} 7\n'])
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            'vllm:prompt_tokens_total{model_name="m"} 9\n',
            "the server exports no vllm:prompt_tokens_cached_total",
        ),
        (
            'vllm:prompt_tokens_total{model_name="m"} 9\nvllm:prompt_tokens_cached_total{model_name="m"} 10\n',
            "does not add up: vllm:prompt_tokens_cached_total is above vllm:prompt_tokens_total",
        ),
    ],
)
def test_a_counter_that_is_not_exported_is_not_zero(text: str, reason: str, requests: str) -> None:
    (tally,) = parse_metrics(text + requests).tallies()
    assert list(tally.not_said) == [reason]
    assert not tally.is_reported


def test_a_fresh_server_reports_zeros() -> None:
    (tally,) = parse_metrics("vllm:prompt_tokens_total 0\nvllm:prompt_tokens_cached_total 0\n").tallies()
    assert tally.is_reported and tally.split.total == 0 and tally.model is None


def test_between_two_readings_only_what_grew_counts() -> None:
    later = VLLM.replace("} 700.0", "} 750.0").replace("1.0e+03", "1100")
    (tally,) = parse_metrics(later).since(parse_metrics(VLLM)).tallies()
    assert tally.split == TokenSplit(read=50, fresh_or_written=50)
    assert (tally.num_requests, tally.output) == (0, 0)


def test_a_restart_between_two_readings_is_an_error() -> None:
    with pytest.raises(ConfigError, match="the server was restarted"):
        parse_metrics(VLLM.replace("} 700.0", "} 1.0")).since(parse_metrics(VLLM))


@pytest.mark.parametrize("text", ["", "<html>", "# HELP x\nup 1\n"])
def test_what_is_no_such_server_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="has none of the counters of a vLLM or anaphora server"):
        parse_metrics(text)


@pytest.mark.parametrize("value", ["NaN", "-1", "many", "+Inf", "1e16"])
def test_a_counter_that_is_no_number_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"must be a number from 0 to 1e\+15"):
        parse_metrics(f"vllm:prompt_tokens_total {value}\n")


@pytest.mark.parametrize("rest", [' # {trace_id="x"} 1.0 1.7e9', " 1700000000.123", " 1700000000123"])
def test_what_stands_behind_a_value_is_not_the_value(rest: str) -> None:
    """An example behind it has labels and a value as well, which were taken for those of the counter."""
    text = f'vllm:prompt_tokens_total{{model_name="a{{b}}"}} 100{rest}\n'
    assert dict(parse_metrics(text).counters) == {"a{b}": {"vllm:prompt_tokens_total": 100.0}}


@pytest.mark.parametrize("line", ['vllm:prompt_tokens_total{model_name="m', "vllm:prompt_tokens_total"])
def test_half_a_line_of_a_counter_is_an_error(line: str) -> None:
    with pytest.raises(ConfigError, match="vllm:prompt_tokens_total has no value that can be read"):
        parse_metrics(f"vllm:prompt_tokens_cached_total 1\n{line}\n")


def test_our_own_server_exports_all_that_is_asked_for() -> None:
    ours = {family.name for family in FAMILIES}
    assert {
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:generation_tokens_total",
        "vllm:request_prompt_tokens",
        "anaphora:uncached_prefill_tokens_total",
        "anaphora:uncached_prefill_time_seconds",
    } <= ours
