"""What people read."""

import io
from dataclasses import replace

from rich.console import Console

from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.replay import ReplayExperiment, TracedRequest
from anaphora.bench.report import Report
from anaphora.bench.table import lines, show
from tests.bench.fakes import FakeServer, bench


def _text(report: Report) -> str:
    console = Console(width=130)
    with console.capture() as captured:
        show(report, console)
    return captured.get()


def test_the_table_has_both_witnesses_and_the_ideal_beside_them() -> None:
    """An unknown block size counts as 1; the exit line comes last."""
    text = _text(bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer(counts="nothing")))
    rows = {line.split("│")[1].strip(): line.split("│")[2:-1] for line in text.splitlines() if "│" in line}
    assert [cell.strip() for cell in rows["warm"]] == ["600", "594", "576", "not said", "0.970"]
    assert "fake 1.2 at http://127.0.0.1:1, model tiny" in text
    assert "requests: 15 sent, 0 failed (0 by time-out), 0 cut short, 0 retries" in text
    assert text.rstrip().splitlines()[-1] == "comparable: yes"


def test_a_time_is_never_shown_faster_without_hit_rate_length_and_concurrency() -> None:
    """One line holds all of them."""
    report = bench(PrefixExperiment(tokens=100, rounds=4, output_tokens=2), FakeServer())
    claims = [line for line in lines(report) if "of the control's time" in line]
    assert len(claims) == 1
    for word in ("hit rate of 96.0%", "prompts of 100 tokens", "one request at a time"):
        assert word in claims[0]
    assert "faster" not in " ".join(lines(report))


def test_the_client_queue_is_shown_where_there_can_be_one() -> None:
    """In an open loop the client may be late; here it waits for one that takes its time to count tokens."""
    trace = tuple(TracedRequest(number / 1000, 32, 2, (number,)) for number in range(3))
    report = bench(ReplayExperiment(requests=trace, block_size=32, scale=1.0), FakeServer())
    assert "the client sent each request at most 0.0 ms late" in lines(report)


def test_a_busy_machine_is_mentioned() -> None:
    """Other work is then in the times."""
    report = bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer())
    for load, is_said in ((1.9, False), (2.1, True), (None, False)):
        report.client.update(load=load, cores=2)
        assert any("what else ran" in line for line in lines(report)) is is_said


def test_partial_comes_first() -> None:
    """So that nobody overlooks it."""
    report = bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer(trouble={9: "ctrl-c"}))
    assert lines(report)[0] == "PARTIAL: interrupted after 7 of 15 requests"


def test_a_narrow_terminal_cuts_no_number_short() -> None:
    """It breaks lines instead."""
    report = bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer())
    console = Console(width=40, record=True, file=io.StringIO())
    show(report, console)
    text = console.export_text()
    assert "…" not in text
    assert "achieved ÷ achievable" in text


def test_a_table_that_is_wider_than_others_is_not_cut_either() -> None:
    """Names of arms may be long."""
    report = bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer())
    odd = replace(report, arms=[replace(report.arms[0], arm="x" * 200)])
    assert _text(odd).count("x" * 200) == 2


def test_a_server_that_does_not_say_its_version_is_named_without() -> None:
    report = bench(PrefixExperiment(tokens=100, rounds=3, output_tokens=2), FakeServer())
    unnamed = replace(report, targets=[replace(target, version=None) for target in report.targets])
    assert "server   fake at http://127.0.0.1:1, model tiny" in _text(unnamed)
