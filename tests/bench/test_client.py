"""One request, timed, and every way in which it can fail."""

import pytest

from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.target import Access
from tests.bench.fakes import DECODE_S, PREFILL_S, URL, FakeServer, run, session

PROMPT = Prompt(text=" ".join("abcdefghij"), num_tokens=10)
NUM_PROBES = 2


def _complete(server: FakeServer, prompt: Prompt = PROMPT, timeout_s: float = 5.0) -> Answer:
    async def go() -> Answer:
        found = await session(server, Access(base_url=URL, timeout_s=timeout_s))
        try:
            return await found.client.complete(prompt, 4)
        finally:
            await found.client.http.aclose()

    return run(go())


def test_times_are_those_of_the_content() -> None:
    """Ten tokens of prefill and four of output."""
    answer = _complete(FakeServer())
    assert answer.ttft_s == pytest.approx(10 * PREFILL_S + DECODE_S)
    assert answer.gaps_s == pytest.approx((DECODE_S,) * 3)
    assert answer.tpot_s == pytest.approx(DECODE_S)
    assert answer.e2e_s == pytest.approx(10 * PREFILL_S + 4 * DECODE_S)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.cached_tokens) == (10, 4, 0)
    assert (answer.failure, answer.finish_reason, len(answer.text.split())) == (None, "length", 4)


@pytest.mark.parametrize(
    ("trouble", "failure", "is_cut", "is_unreachable"),
    [
        ("500", "status 500: out of luck", False, False),
        ("html", "the answer is text/html, not a stream of events", False, False),
        ("cut", "the stream ended before [DONE]", True, False),
        ("error frame", "lost the engine", False, False),
        ("hang", "time-out: no full answer in 5 s", False, False),
        ("down", "no connection: refused", False, True),
    ],
)
def test_a_failure_is_an_answer_that_says_so(
    trouble: str, failure: str, is_cut: bool, is_unreachable: bool
) -> None:
    """And is sent once."""
    server = FakeServer(trouble={NUM_PROBES: trouble})
    answer = _complete(server)
    assert (answer.failure, answer.is_cut, answer.is_unreachable) == (failure, is_cut, is_unreachable)
    assert len(server.bodies) == NUM_PROBES + 1


def test_a_stream_that_ends_without_saying_done_is_whole_if_it_says_why_it_ended() -> None:
    """As those of transformers do."""
    answer = _complete(FakeServer(trouble={NUM_PROBES: "no [DONE]"}))
    assert (answer.failure, answer.is_cut, answer.finish_reason) == (None, False, "length")


def test_requests_are_greedy_and_streamed() -> None:
    """With the usage at the end, and no end before all tokens are there."""
    server = FakeServer()
    _complete(server)
    assert server.bodies[-1] == {
        "model": "tiny",
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
        "prompt": PROMPT.text,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def test_ids_are_sent_as_ids() -> None:
    """And stand for the prompt."""
    server = FakeServer()
    _complete(server, Prompt(text="", num_tokens=3, ids=(1, 2, 3)))
    assert server.bodies[-1]["prompt"] == [1, 2, 3]
