"""What a request may ask for."""

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.request import SamplingParams


@pytest.mark.parametrize("field", ["logprobs", "prompt_logprobs"])
def test_log_probabilities_are_given_for_at_most_twenty_others(field: str) -> None:
    """None is not asked for, 0 is the token alone."""
    for number in (None, 0, 20):
        assert getattr(SamplingParams.from_mapping({field: number}), field) == number
    for number in (-1, 21):
        with pytest.raises(
            InvalidRequestError, match=f"{field} is {number}, but must be between 0 and 20"
        ) as caught:
            SamplingParams.from_mapping({field: number})
        assert caught.value.param == field


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("max_tokens", 2.5, "a whole number or None"),
        ("max_tokens", "5", "a whole number or None"),
        ("n", True, "a whole number"),
        ("top_k", 1.5, "a whole number"),
        ("temperature", "warm", "a number"),
        ("temperature", None, "a number"),
        ("ignore_eos", 1, "True or False"),
        ("stop", "END", "a tuple of strings"),
        ("stop", ("a", 5), "a tuple of strings"),
        ("stop_token_ids", 5, "a tuple of token ids"),
        ("logit_bias", {"5": 1}, "a mapping of token ids to numbers"),
        ("logit_bias", {5: "much"}, "a mapping of token ids to numbers"),
        ("repetition_penalty", 1e-300, "between 0.01 and 10"),
        ("seed", 2**63, "between"),
        ("temperature", float("nan"), "between 0 and 2"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_by_name(field: str, value: object, words: str) -> None:
    """At once, rather than in the middle of a run."""
    with pytest.raises(InvalidRequestError, match=words) as caught:
        SamplingParams.from_mapping({field: value})
    assert caught.value.param == field


def test_an_unknown_name_is_refused() -> None:
    """With the known ones."""
    with pytest.raises(
        InvalidRequestError, match=r"unknown sampling parameter 'temprature'; known are .*temperature"
    ):
        SamplingParams.from_mapping({"temprature": 1})
