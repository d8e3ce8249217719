"""A cost model from a server that takes exactly as long as one says."""

import itertools
import json

import httpx
import pytest

from anaphora.cli.calibrate import Calibrator, calibrate, first_model, num_requests
from anaphora.errors import ConfigError
from anaphora.sim.cost import CostModel, Work
from tests.fake_runner import FakeClock

TRUE = CostModel(step_s=0.01, prefill_token_s=0.001, prefill_pair_s=2e-7, decode_s=0.003, decode_pair_s=2e-6)


class CostlyServer:
    """Answers completions, and has its clock go on by what TRUE says; a word is a token."""

    def __init__(self, *, cached: int = 0, num_missing: int = 0, slowness: float = 1.0) -> None:
        self.clock = FakeClock()
        self.prompts: list[str] = []
        self._cached, self._num_missing, self._slowness = cached, num_missing, slowness

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.prompts.append(body["prompt"])
        num_tokens, num_outputs = len(body["prompt"].split()), body["max_tokens"]
        self.clock.advance(self._slowness * TRUE.time(Work.of_prefill(0, num_tokens, 512)))
        self.clock.advance(
            self._slowness * TRUE.time(Work.of_decodes(num_tokens, num_outputs - 1, body["n"]))
        )
        usage = {
            "prompt_tokens": num_tokens,
            "completion_tokens": num_outputs * body["n"] - self._num_missing,
            "prompt_tokens_details": {"cached_tokens": self._cached},
        }
        return httpx.Response(200, json={"usage": usage})

    def calibrator(self) -> Calibrator:
        client = httpx.Client(transport=httpx.MockTransport(self), base_url="http://server")
        return Calibrator(client, "m", 512, self.clock.now)


def test_the_model_of_the_server_comes_out() -> None:
    server, ticks = CostlyServer(), list[int]()
    found = server.calibrator().measure(8192, ticks.append)
    for name in ("step_s", "prefill_token_s", "prefill_pair_s", "decode_s", "decode_pair_s"):
        assert getattr(found.model, name) == pytest.approx(getattr(TRUE, name), rel=1e-6)
    assert found.worst_residual < 1e-6
    assert sum(ticks) == found.num_samples == num_requests()


def test_no_two_prompts_begin_alike() -> None:
    """Else the cache of the server would be measured."""
    server = CostlyServer()
    server.calibrator().measure(8192, lambda count: None)
    assert len({prompt.split()[0] for prompt in server.prompts}) == len(server.prompts)


def test_a_short_context_is_respected() -> None:
    server = CostlyServer()
    server.calibrator().measure(400, lambda count: None)
    assert max(len(prompt.split()) for prompt in server.prompts) < 300


def test_a_slow_server_is_not_asked_longer_prompts_than_one_that_took_ten_seconds() -> None:
    """2,048 tokens take 1.5 s times 8, and 4,096 would take four times as long."""
    server = CostlyServer(slowness=8.0)
    server.calibrator().measure(8192, lambda count: None)
    assert 2000 < max(len(prompt.split()) for prompt in server.prompts) < 2100


def test_cached_tokens_spoil_it() -> None:
    with pytest.raises(ConfigError, match="16 tokens of a never-sent prompt were cached"):
        CostlyServer(cached=16).calibrator().measure(8192, lambda count: None)


def test_a_server_that_stops_early_cannot_be_measured() -> None:
    with pytest.raises(ConfigError, match="sent 0 tokens instead of 1"):
        CostlyServer(num_missing=1).calibrator().measure(8192, lambda count: None)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_a_server_that_is_not_there_is_said(url: str) -> None:
    with pytest.raises(ConfigError, match=f"--calibrate {url}"):
        calibrate(url, None, 512, lambda count: None)


def failure(answer: httpx.Response, *, max_model_len: int = 8192) -> str:
    """Return what is said of a server that answers so to a completion."""
    client = httpx.Client(transport=httpx.MockTransport(lambda request: answer), base_url="http://server")
    with pytest.raises(ConfigError) as raised:
        Calibrator(client, "m", 512, FakeClock().now).measure(max_model_len, lambda count: None)
    return str(raised.value)


@pytest.mark.parametrize(
    "usage, message",
    [
        ([], "usage is [], but must be an object"),
        (None, "usage is None"),
        (
            {"prompt_tokens": None, "completion_tokens": 1},
            "prompt_tokens is None, but must be a whole number",
        ),
        ({"prompt_tokens": -5, "completion_tokens": 1}, "prompt_tokens is -5, but must be a whole number"),
        ({"prompt_tokens": 3.7, "completion_tokens": 1}, "prompt_tokens is 3.7"),
        ({"prompt_tokens": 9, "completion_tokens": True}, "completion_tokens is True"),
        ({"prompt_tokens_details": "x"}, "prompt_tokens_details is 'x', but must be an object"),
    ],
)
def test_numbers_that_are_none_are_named(usage: object, message: str) -> None:
    """Some ended in a traceback, and some were fitted."""
    assert message in failure(httpx.Response(200, json={"usage": usage}))


def test_an_answer_that_is_no_json_or_an_error_is_told_in_one_line() -> None:
    assert "did not answer in JSON" in failure(httpx.Response(200, text="<html>"))
    assert "nested deeper" in failure(httpx.Response(200, text="[" * 100_000))
    told = failure(httpx.Response(500, text="it\nis\tbroken"))
    assert told == "http://server/v1/completions answered 500: it is broken"


def test_an_answer_without_end_is_not_read_for_ever() -> None:
    endless = (b" " * 2**20 for _ in itertools.count())
    assert "has not ended its answer after 5,242,880 bytes" in failure(httpx.Response(200, content=endless))


def test_a_context_that_is_too_short_is_said() -> None:
    assert "takes 50 tokens at most" in failure(httpx.Response(500), max_model_len=50)


def test_a_key_that_no_header_can_hold_is_said() -> None:
    with pytest.raises(ConfigError, match="the API key has a character that no HTTP header can carry"):
        calibrate("http://127.0.0.1:9", "ключ", 512, lambda count: None)


@pytest.mark.parametrize(
    "answer, message",
    [
        ({"data": []}, "data is []"),
        ({"data": ["m"]}, r"data[0] is 'm', but must be an object"),
        ({"data": [{"id": 3}]}, r"data[0].id is 3, but must be a text"),
        (
            {"data": [{"id": "m", "max_model_len": 1e300}]},
            "max_model_len is 1e+300, but must be a whole number",
        ),
    ],
)
def test_a_list_of_models_that_is_none_is_named(answer: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        first_model(answer)
    assert message in str(raised.value)
