"""One request, timed, and every way in which it can fail."""

import pytest

from anaphora.bench.client import MAX_STREAM_BYTES, open_http
from anaphora.bench.measurement import Answer, Prompt
from anaphora.bench.target import Access
from anaphora.errors import ConfigError
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
        ("deep", f"an event of the stream is not JSON: {b'[' * 80!r}", False, False),
        ("endless", f"connection lost: the answer is over {MAX_STREAM_BYTES:,} bytes long", False, False),
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


def test_an_answer_in_one_piece_has_no_time_per_token() -> None:
    """Nothing was seen between its tokens, which is not 0 ms."""
    answer = _complete(FakeServer(in_one_piece=True))
    assert (answer.completion_tokens, answer.gaps_s, answer.tpot_s) == (4, (), None)


def test_done_is_the_end_though_the_server_keeps_the_stream_open() -> None:
    """It is complete, and ended when it said so."""
    answer = _complete(FakeServer(lingers_s=1000.0))
    assert answer.failure is None
    assert answer.e2e_s == pytest.approx(10 * PREFILL_S + 4 * DECODE_S)


def test_half_a_surrogate_pair_can_be_sent_back() -> None:
    """As a reply that was cut within a sign is, in the next turn."""
    server = FakeServer()
    assert _complete(server, Prompt(text="a \ud83d b", num_tokens=3)).failure is None
    assert server.bodies[-1]["prompt"] == "a \ud83d b"


@pytest.mark.parametrize("key", ["clé", "two\nlines"])
@pytest.mark.parametrize("is_admin", [True, False])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str, is_admin: bool) -> None:
    """Rather than a traceback with the key in it."""
    access = Access(base_url=URL, api_key=None if is_admin else key, admin_api_key=key if is_admin else None)
    with pytest.raises(ConfigError, match="no HTTP header can carry") as caught:
        run(session(FakeServer(), access))
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://", "names no host"),
        ("http://127.0.0.1:99999", "port 99999 is not within 1 to 65535"),
        ("http://127.0.0.1:1/v1?key=x", "a part behind"),
    ],
)
def test_a_url_that_leads_to_no_server_is_refused(url: str, words: str) -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigError, match=words):
        open_http(Access(base_url=url))
