"""The staircase of whole blocks."""

from anaphora.bench.boundary import BoundaryExperiment, Step
from anaphora.bench.measurement import Log
from anaphora.bench.target import Access
from tests.bench.fakes import URL, FakeServer, bench, measured, target

SMALL = BoundaryExperiment(shared=(15, 16, 31, 95, 96, 97, 111), rounds=3)


def _seen(report: object) -> list[tuple[int, list[int]]]:
    steps = report.conclusion.details["steps"]  # type: ignore[attr-defined]
    return [(step["shared"], step["seen"]) for step in steps]


def test_hits_round_down_to_whole_blocks() -> None:
    """15, 16, 31, 95, 96, 97, 111 shared tokens give 0, 16, 16, 80, 96, 96, 96."""
    report = bench(SMALL, FakeServer())
    assert _seen(report) == [
        (shared, [cached] * 3)
        for shared, cached in [(15, 0), (16, 16), (31, 16), (95, 80), (96, 96), (97, 96), (111, 96)]
    ]
    assert report.conclusion.findings[:2] == [
        "shared → cached tokens: 15→0, 16→16, 31→16, 95→80, 96→96, 97→96, 111→96",
        "every hit is the shared beginning rounded down to blocks of 16 tokens (/metrics)",
    ]
    assert report.exit_code == 0


def test_timing_shows_the_steps_only_where_they_are_larger_than_the_noise() -> None:
    """Without noise a block of 16 is 16 ms; what the clock could show is told with both numbers."""
    report = bench(SMALL, FakeServer())
    assert report.conclusion.findings[2] == (
        "timing alone could show the steps: one block of 16 is worth 16.00 ms by the fitted line, "
        "and the intervals of the medians are 0.00 ms wide"
    )
    for server in (FakeServer(jitter_s=0.1), FakeServer(slow=0.0)):
        still = bench(SMALL, server)
        assert still.conclusion.findings[2].startswith("timing alone cannot show the steps: one block of 16")
        assert still.exit_code == 0


def test_a_server_of_another_block_size_is_named_with_what_was_expected() -> None:
    """Blocks of 32, though --block-size says 16."""
    report = bench(SMALL, FakeServer(block_size=32), Access(base_url=URL, block_size=16))
    assert (
        "hits are not those of blocks of 16 tokens (--block-size; /metrics says 32): 16→0 instead of 16"
        in report.conclusion.findings[1]
    )
    assert report.exit_code == 2


def test_an_unknown_block_size_is_inferred_from_the_hits() -> None:
    """Hits of 32 and 96 can only be blocks of 32, or parts of that."""
    report = bench(SMALL, FakeServer(block_size=32, counts="nothing"))
    assert report.conclusion.details["block_size"] == 32
    assert "inferred" in report.conclusion.findings[1]


def test_no_reuse_and_no_report_are_two_different_findings() -> None:
    """Nothing was reused; or nobody says."""
    off = bench(SMALL, FakeServer(caching=False))
    silent = bench(SMALL, FakeServer(reports="nothing", counts="nothing"))
    assert "nothing was reused at any length: caching is off, or not reported" in off.conclusion.findings
    assert "the server reports no cached tokens" in silent.conclusion.findings[0]
    assert (off.exit_code, silent.exit_code) == (2, 2)


def test_the_staircase_shows_by_the_counters_where_the_answers_are_silent() -> None:
    """As with vLLM's defaults."""
    report = bench(SMALL, FakeServer(reports="nothing"))
    assert report.conclusion.findings[0].startswith("shared → cached tokens: 15→0, 16→16, 31→16")
    assert (
        "the answers report no cached tokens; theirs above are counted by /metrics"
        in report.conclusion.findings
    )
    assert report.exit_code == 0


def test_estimated_lengths_are_not_held_against_blocks() -> None:
    """Fifteen words may well be sixteen tokens."""
    report = bench(SMALL, FakeServer(tokenize=None, per_word=2))
    assert "the shared lengths are estimates, so hits cannot be held against" in report.conclusion.findings[1]
    assert report.exit_code == 2


def test_a_server_that_reports_only_hits_is_silent_where_nothing_is_shared() -> None:
    """The counters say that it was nothing; without them nobody does, and no other step is doubted for it."""
    counted, alone = (
        bench(SMALL, FakeServer(reports="hits", counts=counts)) for counts in ("truth", "nothing")
    )
    assert counted.conclusion.findings[0].startswith("shared → cached tokens: 15→0, 16→16")
    assert (
        "3 of 21 answers report no cached tokens; theirs above are counted by /metrics"
        in counted.conclusion.findings
    )
    assert alone.conclusion.findings[0].startswith("shared → cached tokens: 16→16")
    assert (
        "3 of 21 answers report no cached tokens, and nobody counts them (sharing 15): "
        "a server that reports only hits found nothing there"
    ) in alone.conclusion.findings
    assert (counted.exit_code, alone.exit_code) == (0, 0)


def test_a_hit_that_should_have_been_and_is_not_reported_is_something_to_look_at() -> None:
    """One of two requests that share a block says so; the other may have found nothing."""
    log = Log(
        [
            measured("shares 16", number, axis=16, planned=16, cached=cached)
            for number, cached in ((0, 16), (1, None))
        ]
    )
    conclusion = BoundaryExperiment(shared=(16,)).conclude(log, [target()])
    assert (
        "1 of 2 answers report no cached tokens, and nobody counts them (sharing 16)"
        in conclusion.findings[2]
    )
    assert conclusion.is_flagged


def test_each_request_is_held_against_what_its_own_prompt_shared() -> None:
    """Some lengths cannot be shared exactly; against the middle one, half of these hits would be wrong."""

    def step_of(planned: tuple[int, ...], seen: tuple[int | None, ...]) -> Step:
        return Step(unit=16, planned=planned, seen=seen, ttft_ms=None, ttft_low_ms=None, ttft_high_ms=None)

    step = step_of((15, 16, 16), (0, 16, None))
    assert (step.is_ideal, step.text, step.shared) == (True, "15/16→0/16", 16)
    assert not step_of((15, 16), (16, 16)).is_ideal
