"""A cost model from a server that takes exactly as long as one says."""

import json

import httpx
import pytest

from anaphora.cli.calibrate import Calibrator, calibrate, num_requests
from anaphora.errors import ConfigError
from anaphora.sim.cost import CostModel, Work
from tests.fake_runner import FakeClock

TRUE = CostModel(step_s=0.01, prefill_token_s=0.001, prefill_pair_s=2e-7, decode_s=0.003, decode_pair_s=2e-6)


class CostlyServer:
    """Answers completions, and has its clock go on by what TRUE says; a word is a token."""

    def __init__(self, *, cached: int = 0, num_missing: int = 0) -> None:
        self.clock = FakeClock()
        self.prompts: list[str] = []
        self._cached, self._num_missing = cached, num_missing

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.prompts.append(body["prompt"])
        num_tokens, num_outputs = len(body["prompt"].split()), body["max_tokens"]
        self.clock.advance(TRUE.time(Work.of_prefill(0, num_tokens, 512)))
        self.clock.advance(TRUE.time(Work.of_decodes(num_tokens, num_outputs - 1, body["n"])))
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
