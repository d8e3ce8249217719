"""A few requests to a server that is running, from whose times a cost model is fitted."""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from anaphora.bench.client import bearer
from anaphora.cli.remote import API_KEY_VARIABLE
from anaphora.errors import ConfigError
from anaphora.nesting import parse_json
from anaphora.sim.cost import Fit, Sample, Work, fit

PREFILL_TOKENS = (64, 192, 512, 1024, 2048, 4096)
"""In rising order; what attention costs shows in the long ones only."""

ENOUGH_S = 10.0
"""After a prompt that took so long, no longer one is sent: it would take two to four times as long."""

DECODE_TOKENS = (64, 1024)
NUM_DECODES = 24
NUM_SEQUENCES = (1, 4)
ROUNDS = 2
_TIMEOUT_S = 300.0
_MOST_BYTES = 4 * 1024 * 1024
_MOST_TOKENS = 2**31
_SHOWN_BYTES = 200
_ASSUMED_MODEL_LEN = 4096
_NOT_COMPATIBLE = "is it an OpenAI-compatible server?"
# Short words of which most tokenizers make one token each; drawn at random, so that no prompt is cached.
_WORDS = (
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "life",
    "world",
    "school",
    "state",
    "family",
)


class Calibrator:
    """Measures one server. Every prompt is new from its first word, so that none of it is cached."""

    def __init__(
        self,
        client: httpx.Client,
        model: str,
        most_tokens_per_step: int,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._client = client
        self._model = model
        self._budget = most_tokens_per_step
        self._now = now
        self._draw = random.Random()  # noqa: S311 - draws words, guards nothing

    def measure(self, max_model_len: int, tick: Callable[[int], None]) -> Fit:
        """Return the cost model of the server; raises ConfigError when it cannot be measured."""
        if 1.5 * min(*PREFILL_TOKENS, *DECODE_TOKENS) + NUM_DECODES >= max_model_len:
            raise ConfigError(
                f"the model takes {max_model_len:,} tokens at most, which is too few to measure lengths"
            )
        self._ask(16, 1, 1)  # what is slow the first time is not measured
        samples = []
        prefills = [n for n in PREFILL_TOKENS if 1.5 * n + NUM_DECODES < max_model_len]
        decodes = [
            (n, s) for n in DECODE_TOKENS if 1.5 * n + NUM_DECODES < max_model_len for s in NUM_SEQUENCES
        ]
        for _ in range(ROUNDS):
            for num_words in prefills:
                num_tokens, seconds = self._ask(num_words, 1, 1)
                samples.append(Sample(Work.of_prefill(0, num_tokens, self._budget), seconds))
                tick(1)
                if seconds > ENOUGH_S:
                    break
            for num_words, num_sequences in decodes:
                samples.append(self._decode_sample(num_words, num_sequences))
                tick(1)
        found = fit(samples)
        if found is None:
            raise ConfigError("the measured times fit no cost model; is the server busy with other work?")
        return found

    def _decode_sample(self, num_words: int, num_sequences: int) -> Sample:
        """Return prefill and decodes of one request together."""
        num_tokens, seconds = self._ask(num_words, NUM_DECODES + 1, num_sequences)
        prefill = Work.of_prefill(0, num_tokens, self._budget)
        return Sample(prefill + Work.of_decodes(num_tokens, NUM_DECODES, num_sequences), seconds)

    def _ask(self, num_words: int, num_outputs: int, num_sequences: int) -> tuple[int, float]:
        """Return how many tokens a new prompt had, and how long its answer took."""
        words = self._draw.choices(_WORDS, k=max(1, num_words - 4))
        body = {
            "model": self._model,
            "prompt": f"{self._draw.randrange(10**9)} " + " ".join(words),
            "max_tokens": num_outputs,
            "min_tokens": num_outputs,
            "temperature": 0.7,
            "n": num_sequences,
        }
        start = self._now()
        answer = _json(self._client, "POST", "/v1/completions", body)
        seconds = self._now() - start
        usage = _object(answer.get("usage"), "usage")
        cached = _object(usage.get("prompt_tokens_details") or {}, "prompt_tokens_details").get(
            "cached_tokens"
        )
        if cached:
            raise ConfigError(
                f"{cached} tokens of a never-sent prompt were cached; cannot measure this server"
            )
        num_sent = _count(usage, "completion_tokens", 0)
        if num_sent != num_outputs * num_sequences:
            raise ConfigError(
                f"the server sent {num_sent:,} tokens instead of {num_outputs * num_sequences}; "
                "it must honour min_tokens to be measured"
            )
        return _count(usage, "prompt_tokens", 1), seconds


def _json(client: httpx.Client, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Return the object that a server answers; raises ConfigError for an answer that is none, or has no end."""
    content = bytearray()
    until = time.monotonic() + _TIMEOUT_S
    with client.stream(method, path, json=body) as response:
        for piece in response.iter_bytes():
            content += piece
            if len(content) > _MOST_BYTES or time.monotonic() > until:
                raise ConfigError(
                    f"{response.request.url} has not ended its answer after {len(content):,} bytes; "
                    f"{_NOT_COMPATIBLE}"
                )
    if response.status_code != 200:
        words = " ".join(content[:_SHOWN_BYTES].decode("utf-8", "replace").split())
        raise ConfigError(f"{response.request.url} answered {response.status_code}: {words or 'no words'}")
    try:
        return _object(parse_json(bytes(content)), "the answer")
    except ValueError as error:
        raise ConfigError(f"{response.request.url} did not answer in JSON: {error}") from error


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r:.60}, but must be an object; {_NOT_COMPATIBLE}")
    return value


def _count(values: dict[str, Any], name: str, least: int) -> int:
    value = values.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_TOKENS:
        raise ConfigError(
            f"{name} is {value!r:.60}, but must be a whole number of at least {least:,}; {_NOT_COMPATIBLE}"
        )
    return value


def num_requests() -> int:
    """Return how many requests are measured at most."""
    return ROUNDS * (len(PREFILL_TOKENS) + len(DECODE_TOKENS) * len(NUM_SEQUENCES))


def calibrate(
    base_url: str, api_key: str | None, most_tokens_per_step: int, tick: Callable[[int], None]
) -> Fit:
    """Return the cost model of the server at a URL; raises ConfigError when there is none that answers."""
    headers = bearer(api_key or os.environ.get(API_KEY_VARIABLE))
    try:
        with httpx.Client(
            base_url=base_url.rstrip("/").removesuffix("/v1"), headers=headers, timeout=_TIMEOUT_S
        ) as client:
            name, max_model_len = first_model(_json(client, "GET", "/v1/models"))
            return Calibrator(client, name, most_tokens_per_step).measure(max_model_len, tick)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--calibrate {base_url}: {error or type(error).__name__}") from error
    except ConfigError as error:
        raise ConfigError(f"--calibrate {base_url}: {error}") from error


def first_model(answer: dict[str, Any]) -> tuple[str, int]:
    """Return the name of the first model that a server has, and the most tokens it takes."""
    models = answer.get("data")
    if not isinstance(models, list) or not models:
        raise ConfigError(f"data is {models!r:.60}, but must be a list of models; {_NOT_COMPATIBLE}")
    model = _object(models[0], "data[0]")
    if not isinstance(model.get("id"), str):
        raise ConfigError(f"data[0].id is {model.get('id')!r:.60}, but must be a text; {_NOT_COMPATIBLE}")
    has_limit = model.get("max_model_len") is not None
    return model["id"], _count(model, "max_model_len", 1) if has_limit else _ASSUMED_MODEL_LEN
