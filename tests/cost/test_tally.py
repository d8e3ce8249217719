"""What is added up, and what is counted once."""

from dataclasses import replace

from anaphora.cost.lines import Entry, LeftOut
from anaphora.cost.tally import COUNTED_BEFORE, Log, Tally
from anaphora.cost.usage import TokenSplit, Usage

READ = Usage(
    provider="openai", split=TokenSplit(read=4, fresh_or_written=6), output=3, raw={"a": 1, "b": None}
)
SPLIT = Usage(provider="openai", split=TokenSplit(fresh=5), output=2, raw={"a": 2})
UNSAID = Usage(provider="openai", not_said="why")


def unsaid(prompt: int, output: int) -> Usage:
    """What vLLM tells unless asked for more."""
    return replace(UNSAID, output=output, raw={"prompt_tokens": prompt, "completion_tokens": output})


def test_requests_add_up_and_those_not_reported_stay_outside() -> None:
    tally = Tally("openai", "m")
    for usage in (READ, SPLIT, UNSAID):
        tally.add(usage)
    assert (tally.num_requests, tally.num_not_said, tally.num_unclassed) == (3, 1, 1)
    assert tally.split == TokenSplit(fresh=5, read=4, fresh_or_written=6)
    assert (tally.output, tally.not_said, tally.raw) == (5, {"why": 1}, {"a": 3})
    assert tally.is_reported


def test_an_output_that_was_not_reported_leaves_no_sum() -> None:
    tally = Tally("openai", "m")
    for usage in (READ, Usage(provider="openai", split=TokenSplit(fresh=1)), READ):
        tally.add(usage)
    assert tally.output is None


def test_sums_about_nothing_are_not_reported() -> None:
    tally = Tally("openai", "m")
    tally.add(UNSAID)
    assert not tally.is_reported
    tally.add(SPLIT)
    assert tally.is_reported


def test_models_are_told_apart_and_a_default_names_the_nameless() -> None:
    log = Log()
    for entry in (Entry(READ, "a", None), Entry(READ, None, None), Entry(READ, "a", None)):
        log.take(entry, "b")
    assert [(tally.model, tally.num_requests) for tally in log.finish()] == [("a", 2), ("b", 1)]


def test_a_response_that_comes_again_is_counted_once() -> None:
    """Logs of streams repeat the usage in every chunk; the tokens must not be charged twice."""
    log = Log()
    for _ in range(3):
        log.take(Entry(READ, "m", "id-1"))
    log.take(Entry(READ, "m", "id-2"))
    log.take(Entry(SPLIT, "m", "id-1"))  # a server that uses its ids again
    assert [tally.num_requests for tally in log.finish()] == [3]
    assert log.left_out == {COUNTED_BEFORE: 2}


def test_lines_that_are_left_out_are_counted_by_reason() -> None:
    log = Log()
    log.take(LeftOut("why"))
    log.take(LeftOut("why"))
    assert (log.left_out, log.finish()) == ({"why": 2}, [])


def test_the_last_line_of_a_response_has_the_last_word_on_its_output() -> None:
    """A server that tells the usage in every chunk of a stream: the first has one output token."""
    log = Log()
    for output in (1, 2, None, 3):
        log.take(Entry(replace(READ, output=output), "m", "id-1"))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.output) == (1, 3)


def test_a_response_that_grows_is_counted_once_as_it_was_at_last() -> None:
    """Gemini sends the usage with every chunk; three chunks are no three requests."""
    log = Log()
    for fresh, output in ((4, 1), (5, 7)):
        usage = Usage(provider="gemini", split=TokenSplit(fresh=fresh, read=2), output=output)
        log.take(Entry(usage, "m", "r", is_growing=True))
    log.take(Entry(Usage(provider="gemini", not_said="why", output=9), "m", "r", is_growing=True))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.split, tally.output) == (1, TokenSplit(fresh=5, read=2), 9)
    assert log.left_out == {COUNTED_BEFORE: 2}


def test_a_line_without_counts_is_a_request_only_if_no_other_line_has_any() -> None:
    log = Log()
    log.take(Entry(UNSAID, "m", "id-1", is_empty=True))
    log.take(Entry(READ, "m", "id-1"))
    log.take(Entry(UNSAID, "m", "id-2", is_empty=True))
    log.take(Entry(UNSAID, "m", "id-2", is_empty=True))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.num_not_said) == (2, 1)


def test_a_stream_whose_usage_has_no_cached_tokens_is_one_request() -> None:
    """Its last choice has no usage, and the chunk behind it has one."""
    log = Log()
    log.take(Entry(UNSAID, "m", "id-1", is_empty=True))
    log.take(Entry(unsaid(9, 4), "m", "id-1"))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.num_not_said, tally.raw["prompt_tokens"]) == (1, 1, 9)
    assert log.left_out == {COUNTED_BEFORE: 1}


def test_a_stream_that_repeats_a_usage_without_cached_tokens_is_one_request() -> None:
    log = Log()
    for output in range(1, 6):
        log.take(Entry(unsaid(9, output), "m", "id-1"))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.raw) == (1, {"prompt_tokens": 9, "completion_tokens": 5})
    assert log.left_out == {COUNTED_BEFORE: 4}


def test_responses_with_one_id_and_other_prompts_are_several_requests() -> None:
    """A server that uses its ids again, and never tells the cached tokens."""
    log = Log()
    for prompt in (9, 12, 9):
        log.take(Entry(unsaid(prompt, 1), "m", "id-1"))
    (tally,) = log.finish()
    assert (tally.num_requests, tally.raw["prompt_tokens"]) == (2, 21)


def test_a_stream_that_tells_its_cached_tokens_only_at_its_end_is_one_request() -> None:
    """Another one with the same id and another prompt is not of it."""
    said = replace(READ, raw={"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4})
    for order in (1, -1):
        log = Log()
        for usage in (unsaid(10, 1), unsaid(10, 2), said, unsaid(11, 1))[::order]:
            log.take(Entry(usage, "m", "id-1"))
        (tally,) = log.finish()
        assert (tally.num_requests, tally.num_not_said, tally.split) == (2, 1, READ.split)
        assert tally.raw == {"prompt_tokens": 21, "completion_tokens": 4, "cached_tokens": 4}


def test_tokens_of_sound_are_counted_beside_the_others() -> None:
    tally = Tally("openai", "m")
    for _ in range(2):
        tally.add(replace(SPLIT, audio=3, audio_output=1))
    assert (tally.audio, tally.audio_output) == (6, 2)
