"""Reads the Prometheus text of our server or of vLLM: prompt tokens, cached ones, and the prefill rate."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from anaphora.cost.bill import Unknown
from anaphora.cost.tally import Tally
from anaphora.cost.usage import TokenSplit
from anaphora.errors import ConfigError

PROMPT, CACHED = "vllm:prompt_tokens_total", "vllm:prompt_tokens_cached_total"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
GENERATED = "vllm:generation_tokens_total"
REQUESTS = "vllm:request_prompt_tokens_count"
PREFILLS = (
    # Of our server: the prefills of requests that reused nothing.
    (
        "anaphora:uncached_prefill_tokens_total",
        "anaphora:uncached_prefill_time_seconds_sum",
        "anaphora:uncached_prefill_time_seconds_count",
    ),
    # Of vLLM: all prefills.
    (
        "vllm:request_prefill_kv_computed_tokens_sum",
        "vllm:request_prefill_time_seconds_sum",
        "vllm:request_prefill_time_seconds_count",
    ),
)
"""Where a server says how many tokens its prefills computed, in how many seconds, and how many they were."""

MIN_TOKENS_PER_PREFILL = 512
"""Shorter ones measure what a step costs whatever it computes; the rate would be too low, the savings too high."""

NAMES = frozenset({PROMPT, CACHED, QUERIES, HITS, GENERATED, REQUESTS, *PREFILLS[0], *PREFILLS[1]})

SAMPLE = re.compile(
    r'([A-Za-z_:][\w:]*)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)(?:\s+-?[\d.]+)?(?:\s+#.*)?'
)
"""A name, its labels, its value, perhaps a time and, in OpenMetrics, an example behind a `#`."""

MAX_VALUE = 1e15
"""More tokens or seconds than any server has seen."""

LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class ServerReading:
    """The counters of one scrape, by model; a counter that the server does not export is missing."""

    counters: Mapping[str | None, Mapping[str, float]] = field(default_factory=dict)

    def since(self, earlier: "ServerReading") -> "ServerReading":
        """Return what was counted after an earlier scrape; ConfigError when the server began anew in between."""
        grown: dict[str | None, dict[str, float]] = {}
        for model, values in self.counters.items():
            before = earlier.counters.get(model, {})
            grown[model] = {name: value - before.get(name, 0.0) for name, value in values.items()}
            if min(grown[model].values()) < 0:
                raise ConfigError("a counter went back between the two readings: the server was restarted")
        return ServerReading(grown)

    def tallies(self) -> list[Tally]:
        """Return the sums of each model."""
        return [_tally(model, values) for model, values in self.counters.items()]

    def prefill_rate(self) -> float | Unknown:
        """Return the prompt tokens computed per second of prefill, over all requests that ended.

        A request whose prompt is nearly all cached computes a few tokens in the time of a whole step, so many of
        those make the server look slow: our server counts the prefills apart that reused nothing, and of any
        server the prefills must be long enough on average.
        """
        for names in PREFILLS:
            sums = [sum(values.get(name, 0.0) for values in self.counters.values()) for name in names]
            if any(names[1] in values for values in self.counters.values()):
                return _rate(*sums)
        return _no_rate(f"the server exports no {PREFILLS[-1][1]}")


def _rate(num_tokens: float, seconds: float, num_prefills: float) -> float | Unknown:
    if not (num_tokens > 0 and seconds > 0 and num_prefills > 0):
        return _no_rate("the server has measured no prefill yet")
    mean = num_tokens / num_prefills
    if mean < MIN_TOKENS_PER_PREFILL:
        return _no_rate(
            f"the prefills of the server have {mean:,.0f} tokens on average, and below "
            f"{MIN_TOKENS_PER_PREFILL} they tell more of the cost of a step"
        )
    return num_tokens / seconds


def _no_rate(reason: str) -> Unknown:
    return Unknown(f"prefill rate unknown: {reason}; pass --prefill-rate")


def parse_metrics(text: str) -> ServerReading:
    """Return the counters of a scrape; ConfigError when it is none of these servers."""
    counters: dict[str | None, dict[str, float]] = {}
    for line in text.splitlines():
        name = re.split(r"[{\s]", line.strip(), maxsplit=1)[0]
        if name not in NAMES:
            continue
        sample = SAMPLE.fullmatch(line.strip())
        if sample is None:
            raise ConfigError(f"{name} has no value that can be read: {line.strip()[:80]!r}")
        labels = dict(LABEL.findall(sample[2] or ""))
        values = counters.setdefault(labels.get("model_name"), {})
        values[sample[1]] = values.get(sample[1], 0.0) + _value(sample[1], sample[3])
    if not counters:
        raise ConfigError(f"it has none of the counters of a vLLM or anaphora server, such as {PROMPT}")
    return ServerReading(counters)


def _value(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 <= value <= MAX_VALUE:
        raise ConfigError(f"{name} is {text[:40]!r}, but must be a number from 0 to {MAX_VALUE:g}")
    return value


def _tally(model: str | None, values: Mapping[str, float]) -> Tally:
    output, requests = values.get(GENERATED), values.get(REQUESTS)
    tally = Tally(
        "server",
        model,
        num_requests=None if requests is None else int(requests),
        output=None if output is None else int(output),
    )
    unsaid = max(1, tally.num_requests or 0)
    for total, cached in ((PROMPT, CACHED), (QUERIES, HITS)):
        if total in values and cached in values:
            num_tokens, num_read = int(values[total]), int(values[cached])
            if num_read > num_tokens:
                tally.not_said = Counter({f"does not add up: {cached} is above {total}": unsaid})
            else:
                tally.split = TokenSplit(read=num_read, fresh_or_written=num_tokens - num_read)
            return tally
    tally.not_said = Counter({f"the server exports no {CACHED}": unsaid})
    return tally
