"""Metrics of several servers."""

import pytest

from anaphora.bench.counters import delta, read_counters
from anaphora.bench.measurement import CounterDelta

VLLM = """# HELP vllm:prefix_cache_hits_total x
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 50.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1.6e+01
vllm:cache_config_info{block_size="32",engine="0"} 1.0
vllm:num_requests_running{engine="0"} 0.0
"""


def test_engines_are_summed_and_the_block_size_is_read() -> None:
    """Two engines, one of which had no hit."""
    found = read_counters(VLLM)
    assert (found.prompt, found.cached, found.computed, found.running, found.block_size) == (
        150,
        16,
        None,
        0,
        32,
    )


def test_a_delta_is_what_lies_between() -> None:
    """And nothing where a reading is missing or nothing is counted."""
    later = read_counters(VLLM.replace("100.0", "140.0").replace("1.6e+01", "48"))
    assert delta(read_counters(VLLM), later, 40) == CounterDelta(40, 32)
    assert delta(None, later, 40) is None
    assert delta(read_counters("up 1\n"), read_counters("up 1\n"), 40) is None


def test_a_server_that_counts_computed_tokens_found_the_rest() -> None:
    """Older versions of llama.cpp count what they prefilled."""
    early, late = (read_counters(f"llamacpp:prompt_tokens_total {n}\n") for n in (10, 14))
    assert delta(early, late, 100) == CounterDelta(100, 96)


def test_computed_and_cached_tokens_make_a_prompt() -> None:
    """As newer versions of llama.cpp count."""
    text = "llamacpp:prompt_tokens_total {}\nllamacpp:prompt_tokens_cached_total {}\n"
    early, late = (read_counters(text.format(*pair)) for pair in ((10, 5), (14, 101)))
    assert delta(early, late, 100) == CounterDelta(100, 96)


def test_values_that_are_no_numbers_are_passed_over() -> None:
    """One odd line does not lose the others."""
    assert read_counters("sglang:cached_tokens_total oops\nsglang:prompt_tokens_total 3\n").prompt == 3


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "1e999"])
def test_values_without_end_count_nothing(odd: str) -> None:
    """They are no number of tokens."""
    assert read_counters(f"sglang:cached_tokens_total {odd}\nsglang:prompt_tokens_total 3\n").cached is None


@pytest.mark.parametrize("name", ["vllm:prefix_cache_hits_total", 'vllm:prefix_cache_hits_total{engine="0"}'])
@pytest.mark.parametrize(
    "rest", [' # {trace_id="a"} 1.0', ' 1700000000.5 # {trace_id="a"} 1.0 1700000000.4', " 1700000000"]
)
def test_an_example_behind_a_value_is_not_the_value(name: str, rest: str) -> None:
    """As OpenMetrics has them, with labels of their own."""
    assert read_counters(f"{name} 5000{rest}\n").cached == 5000


def test_a_brace_in_a_label_ends_no_labels() -> None:
    """Names of models may hold anything."""
    assert read_counters('vllm:prefix_cache_hits_total{model_name="a} 1 \\" b"} 7\n').cached == 7
