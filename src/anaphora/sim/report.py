"""What a simulation has to say, as one object for machines and as sentences for people."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anaphora.sim.cost import CostModel, Fit, Work
from anaphora.sim.order import Hits, Point
from anaphora.sim.recommend import Recommendation
from anaphora.sim.timed import TimedPoint, percentile
from anaphora.sim.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a step costs, where that is known from, and how many tokens of a prompt a step takes."""

    model: CostModel
    source: str
    most_tokens_per_step: int
    fit: Fit | None = None

    def ttfts_s(self, hits: Hits) -> list[float]:
        """Return the time each request would need to its first token if it were alone."""
        budget = self.most_tokens_per_step
        return [
            self.model.time(Work.of_prefill(found, asked, budget))
            for found, asked in zip(hits.hit_tokens, hits.prompt_tokens, strict=True)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that was measured. `partial` is why that is not everything, or None."""

    file: str
    trace: Trace
    mode: str
    unbounded: Hits
    points: Sequence[Point | TimedPoint]
    block_sizes: Mapping[int, float]
    recommendation: Recommendation | None
    costs: Costs | None = None
    partial: str | None = None

    @property
    def recorded(self) -> Hits | None:
        """What the server found when it was recorded, or None if nobody says."""
        found = self.trace.recorded_tokens
        return None if found is None else Hits(found, self.unbounded.prompt_tokens)

    def definitions(self) -> dict[str, str]:
        """Return what the numbers mean."""
        num_requests = len(self.trace.requests)
        half = num_requests // 2
        return {
            "hit_rate": "tokens found in the cache / prompt tokens sent, each request once",
            "numerator": (
                "all leading blocks that are stored; a partly filled last block counts with its true length"
                if self.trace.counts_tail
                else "whole leading blocks that are stored, never the last token: the engine's law"
            ),
            "denominator": f"all: {self.trace.num_prompt_tokens:,} tokens of {num_requests:,} requests; last half: "
            f"{sum(r.num_prompt_tokens for r in self.trace.requests[half:]):,} tokens of {num_requests - half:,}",
            "warm_up": f"all: none, from a cold cache; last half: the first {half:,} requests only warm it",
        }

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints; rates are shares from 0 to 1."""
        trace, costs = self.trace, self.costs
        return {
            "trace": {
                "file": self.file,
                "format": trace.format,
                "requests": len(trace.requests),
                "prompt_tokens": trace.num_prompt_tokens,
                "output_tokens": sum(request.num_output_tokens for request in trace.requests),
                "block_size": trace.block_size,
                "page_size": trace.page_size,
                "unique_blocks": trace.num_unique_blocks,
                "notes": list(trace.notes),
            },
            "mode": self.mode,
            "definitions": self.definitions(),
            "unbounded": _rates(self.unbounded),
            "recorded": self.recorded and _rates(self.recorded),
            "curve": [self._point(point) for point in self.points],
            "block_sizes": [
                {"block_size": size, "unbounded_last_half": rate} for size, rate in self.block_sizes.items()
            ],
            "cost": costs
            and {
                "source": costs.source,
                **asdict(costs.model),
                "most_tokens_per_step": costs.most_tokens_per_step,
                "num_samples": costs.fit and costs.fit.num_samples,
                "mean_residual": costs.fit and costs.fit.mean_residual,
                "worst_residual": costs.fit and costs.fit.worst_residual,
            },
            "recommendation": self.recommendation and asdict(self.recommendation),
            "partial": self.partial,
        }

    def _point(self, point: Point | TimedPoint) -> dict[str, Any]:
        entry = {"policy": point.policy, "pages": point.pages, **_rates(point.hits)}
        entry["refused_requests"] = point.num_refused
        if isinstance(point, TimedPoint):
            return entry | timed_facts(point)
        if self.costs:
            entry["ttft_alone_s"] = spread(self.costs.ttfts_s(point.hits))
        return entry


def _rates(hits: Hits) -> dict[str, Any]:
    return {"hit_rate_all": hits.rate_all, "hit_rate_last_half": hits.rate_last_half}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the mean of some times and the percentiles that people ask for."""
    return {
        "mean": sum(values) / len(values) if values else 0.0,
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p99": percentile(values, 0.99),
    }


def timed_facts(point: TimedPoint) -> dict[str, Any]:
    """Return what only timed mode knows."""
    return {
        "ttft_s": spread(point.ttfts_s),
        "queueing_s": spread(point.queueing_s),
        "end_s": point.end_s,
        "steps": point.num_steps,
        "most_waiting": point.most_waiting,
        "coalesced_requests": point.num_coalesced,
        "coalesced_tokens": point.coalesced_tokens,
        "coalesce_timeouts": point.coalesce_timeouts,
        "preemptions": point.num_preemptions,
        "recomputed_tokens": point.recomputed_tokens,
    }


def advice(recommendation: Recommendation, trace: Trace) -> list[str]:
    """Return the recommendation in sentences."""
    tokens = recommendation.pages * trace.page_size
    lines = [
        (
            f"{recommendation.pages:,} pages of {trace.page_size} tokens ({tokens:,} tokens of K/V), "
            f"policy {recommendation.policy}, block size {recommendation.block_size}"
        ),
        (
            f"expected: {recommendation.hit_rate:.1%} of prompt tokens need not be computed"
            + (
                f", {100 * recommendation.gain_over_lru:+.1f} points against lru with as many pages"
                if recommendation.policy != "lru"
                else ""
            )
        ),
        f"pages without end would add {100 * recommendation.missing_to_unbounded:.1f} points",
    ]
    if trace.engine:
        lines.append(
            f"anaphora serve --num-pages {recommendation.pages + 1} --eviction-policy {recommendation.policy} "
            f"--block-size {recommendation.block_size}"
        )
    reasons = (
        "; ".join(recommendation.reasons) or "enough requests, and no drift between the last two quarters"
    )
    return [*lines, f"confidence: {recommendation.confidence} ({reasons})"]
