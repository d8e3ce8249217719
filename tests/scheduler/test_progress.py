"""The budgets of one planning pass."""

from anaphora.ids import RequestId
from anaphora.request import Request, SamplingParams
from anaphora.scheduler.progress import MAX_PROMPT_LOGPROB_ROWS, PlanningPass, Progress


def notes(name: str, prompt_logprobs: int | None = None) -> Progress:
    """Notes on a request of 1,000 tokens."""
    params = SamplingParams(prompt_logprobs=prompt_logprobs)
    return Progress(
        Request(
            request_id=RequestId(name), token_ids=list(range(1000)), params=params, seed=0, arrival_time=0.0
        ),
        prefill_end=1000,
    )


def test_who_wants_log_probabilities_of_the_prompt_has_less_room() -> None:
    current = PlanningPass(num_tokens_left=700)
    plain, scored = notes("A"), notes("B", prompt_logprobs=0)
    assert (current.room(plain), current.room(scored)) == (700, MAX_PROMPT_LOGPROB_ROWS)
    current.give(plain, 500, [])
    assert (current.room(plain), current.room(scored)) == (200, 200)


def test_what_is_taken_back_is_there_for_others() -> None:
    current = PlanningPass(num_tokens_left=700)
    plain, scored = notes("A"), notes("B", prompt_logprobs=0)
    current.give(scored, 250, [])
    assert (current.room(plain), current.room(scored)) == (450, MAX_PROMPT_LOGPROB_ROWS - 250)
    current.take_back(scored.request)
    assert (current.room(plain), current.room(scored)) == (700, MAX_PROMPT_LOGPROB_ROWS)


def test_once_all_are_known_nothing_is_wanted_any_more() -> None:
    progress = notes("A", prompt_logprobs=0)
    progress.logprobs_end = 999
    assert progress.wants_prompt_logprobs
    progress.logprobs_end = 1000
    assert not progress.wants_prompt_logprobs
