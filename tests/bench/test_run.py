"""Runs that end early, and what is kept of them."""

import json

import httpx
import pytest

from anaphora.bench.boundary import BoundaryExperiment
from anaphora.bench.prefix import PrefixExperiment
from anaphora.bench.run import run_experiment
from anaphora.errors import ConfigError, TargetError
from tests.bench.fakes import ACCESS, FakeServer, bench, run

SMALL = PrefixExperiment(tokens=100, rounds=4, output_tokens=3)
NUM_PROBES = 2


def test_ctrl_c_prints_what_was_measured_and_says_that_it_is_partial() -> None:
    """After eleven of twenty requests; the signal is a real one."""
    report = bench(SMALL, FakeServer(trouble={NUM_PROBES + 11: "ctrl-c"}))
    assert report.partial == "interrupted after 11 of 20 requests"
    assert len(report.log) == 11
    assert report.exit_line.startswith("comparable: no (partial: interrupted after 11 of 20 requests")
    assert report.exit_code == 1
    assert report.conclusion.details["verdict"]["caching"] == "on"
    assert json.loads(json.dumps(report.as_json()))["partial"] == report.partial


def test_ctrl_c_before_the_first_request_leaves_nothing_to_print() -> None:
    """So it is an ordinary interruption."""
    with pytest.raises(KeyboardInterrupt):
        bench(SMALL, FakeServer(trouble={NUM_PROBES: "ctrl-c"}))


def test_a_server_that_goes_away_leaves_a_partial_report() -> None:
    """With the failure counted, and without hammering on."""
    server = FakeServer(trouble=dict.fromkeys(range(NUM_PROBES + 11, 99), "down"))
    report = bench(SMALL, server)
    assert (len(report.log), sum(entry.is_good for entry in report.log)) == (12, 11)
    assert "stopped after 1 failed requests in a row: no connection: refused" in (report.partial or "")


def test_three_failures_in_a_row_end_the_run_and_two_do_not() -> None:
    """A server that answers nothing but errors is not measured to the end."""
    bad = bench(SMALL, FakeServer(trouble=dict.fromkeys(range(NUM_PROBES + 4, 99), "500")))
    assert (len(bad.log), bad.exit_code) == (7, 1)
    poor = bench(SMALL, FakeServer(trouble={NUM_PROBES + 4: "500", NUM_PROBES + 5: "500"}))
    assert (len(poor.log), poor.partial, poor.exit_code) == (20, None, 2)


def test_a_run_of_which_nothing_was_answered_is_an_error_with_its_count() -> None:
    """And has no arm to show a time for."""
    report = bench(SMALL, FakeServer(trouble=dict.fromkeys(range(NUM_PROBES, 99), "500")))
    assert (report.exit_code, report.conclusion.findings) == (1, [])
    assert "no request was answered" in report.exit_line


def test_no_server_is_told_before_anything_is_measured() -> None:
    """By the URL, and what to do."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("All connection attempts failed")

    with pytest.raises(
        TargetError, match=r"no server answers at http://127\.0\.0\.1:1 \(All connection .*start it"
    ):
        run_experiment(SMALL, [ACCESS], 1, run=run, transport=httpx.MockTransport(refuse))


def test_prompts_that_do_not_fit_the_context_are_refused_before_anything_is_measured() -> None:
    """With both numbers."""
    with pytest.raises(ConfigError, match=r"takes 103 tokens, but tiny has a context of 64; choose shorter"):
        bench(SMALL, FakeServer(max_model_len=64))


def test_the_report_says_who_measured_what_with_which_prompts() -> None:
    """Two runs of one seed sent the same prompts; another seed sent others."""
    reports = [bench(SMALL, FakeServer(), seed=seed).as_json() for seed in (1, 1, 2)]
    assert reports[0]["prompt_set"] == reports[1]["prompt_set"] != reports[2]["prompt_set"]
    assert (reports[0]["seed"], reports[0]["requests_sent"], reports[0]["settings"]["tokens"]) == (1, 20, 100)
    assert set(reports[0]["client"]) == {"client", "git_commit", "time", "python", "machine", "cores", "load"}
    assert reports[0]["requests"][0]["gaps_s"] == [0.01, 0.01]


def test_progress_is_told_after_each_request() -> None:
    """Up to the number that was announced."""
    told: list[int] = []
    experiment = BoundaryExperiment(shared=(16, 32), rounds=2)
    run_experiment(experiment, [ACCESS], 1, run=run, transport=FakeServer(), progress=told.append)
    assert told == list(range(1, experiment.num_requests + 1))
