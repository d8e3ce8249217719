"""A few requests to a server that is running, from whose times a cost model is fitted."""

import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from anaphora.errors import ConfigError
from anaphora.sim.cost import Fit, Sample, Work, fit

PREFILL_TOKENS = (64, 192, 512, 1024, 2048)
DECODE_TOKENS = (64, 1024)
NUM_DECODES = 24
NUM_SEQUENCES = (1, 4)
ROUNDS = 2
_TIMEOUT_S = 300.0
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
        answer = _json(self._client.post("/v1/completions", json=body))
        seconds = self._now() - start
        usage = answer["usage"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        if cached:
            raise ConfigError(
                f"{cached} tokens of a never-sent prompt were cached; cannot measure this server"
            )
        if usage["completion_tokens"] != num_outputs * num_sequences:
            raise ConfigError(
                f"the server sent {usage['completion_tokens']} tokens instead of {num_outputs * num_sequences}; "
                "it must honour min_tokens to be measured"
            )
        return int(usage["prompt_tokens"]), seconds


def _json(response: httpx.Response) -> Any:
    if response.status_code != 200:
        raise ConfigError(f"{response.request.url} answered {response.status_code}: {response.text[:200]}")
    return response.json()


def num_requests() -> int:
    """Return how many requests are measured at most."""
    return ROUNDS * (len(PREFILL_TOKENS) + len(DECODE_TOKENS) * len(NUM_SEQUENCES))


def calibrate(
    base_url: str, api_key: str | None, most_tokens_per_step: int, tick: Callable[[int], None]
) -> Fit:
    """Return the cost model of the server at a URL; raises ConfigError when there is none that answers."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with httpx.Client(
            base_url=base_url.rstrip("/").removesuffix("/v1"), headers=headers, timeout=_TIMEOUT_S
        ) as client:
            model = _json(client.get("/v1/models"))["data"][0]
            calibrator = Calibrator(client, model["id"], most_tokens_per_step)
            return calibrator.measure(int(model.get("max_model_len") or 4096), tick)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConfigError(f"--calibrate {base_url}: {error or type(error).__name__}") from error
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise ConfigError(
            f"--calibrate {base_url}: the answer is not that of an OpenAI-compatible server"
        ) from error
