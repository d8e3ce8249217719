"""`anaphora simulate`, from the command line to what it prints."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from anaphora.cli.main import build_parser, main
from anaphora.cli.simulate import Tick, default_pages, measure
from anaphora.cli.trace_files import ReadOptions, read_trace
from anaphora.sim.cost import CostModel
from tests.sim.recorded import RecordedRun
from tests.sim.test_steps import LAYOUTS
from tests.sim.traces import public_trace


def line(number: int, ids: list[int]) -> str:
    entry = {
        "timestamp": 1000 * number,
        "input_length": 512 * len(ids) - 9,
        "output_length": 3,
        "hash_ids": ids,
    }
    return json.dumps(entry) + "\n"


def write_trace(tmp_path: Path, num_requests: int = 40, rest: str = "") -> Path:
    """Four conversations by turns, each a block longer every time."""
    turns = [
        line(number, [100 * (number % 4) + depth for depth in range(2 + number // 4)])
        for number in range(num_requests)
    ]
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(gzip.compress(("".join(turns) + rest).encode()))
    return path


def simulate(*argv: Any) -> int:
    return main(["simulate", *map(str, argv)])


def output(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_every_policy_and_the_bound_at_every_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(write_trace(tmp_path), "--pages", 12, "--pages", 44, 20, "--json") == 0
    found = output(capsys)
    policies = ("lru", "slru", "lfu", "cost", "belady")
    assert [(point["pages"], point["policy"]) for point in found["curve"]] == [
        (pages, policy) for pages in (12, 20, 44) for policy in policies
    ]
    assert found["trace"]["block_size"] == found["trace"]["page_size"] == 512
    assert found["partial"] is None
    last = {point["policy"]: point for point in found["curve"] if point["pages"] == 44}
    assert last["lru"]["hit_rate_last_half"] == found["unbounded"]["hit_rate_last_half"]
    assert last["belady"]["hit_rate_all"] == found["unbounded"]["hit_rate_all"] > 0.5
    assert found["recommendation"]["pages"] == 44
    assert found["recommendation"]["confidence"] == "low"


def test_policies_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        simulate(write_trace(tmp_path), "--pages", 20, "--policy", "slru", "--policy", "lru", "--json") == 0
    )
    assert [point["policy"] for point in output(capsys)["curve"]] == ["lru", "slru", "belady"]


def test_people_read_what_is_counted_and_what_only_warms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(write_trace(tmp_path), "--pages", 20) == 0
    text = " ".join(capsys.readouterr().out.split())
    for said in (
        "warm-up all: none, from a cold cache; last half: the first 20 requests only warm it",
        "denominator all: ",
        "a partly filled last block counts with its true length",
        "recommendation",
        "confidence: low",
        "belady",
    ):
        assert said in text


@pytest.mark.parametrize("mode", ["order", "timed"])
def test_no_number_is_cut_on_a_narrow_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Of 100.0/100.0 there was 100.0/10… to read even with 80 columns, and of some nothing with 40."""
    path = tmp_path / "same"
    path.write_text("".join(line(number, [0, 1]) for number in range(8)))
    monkeypatch.setenv("COLUMNS", "30")
    cost = tmp_path / "cost.json"
    cost.write_text(json.dumps(asdict(CostModel(step_s=1.0))))
    assert simulate(path, "--pages", 2, 9, "--mode", mode, "--cost", cost) == 0
    table = capsys.readouterr().out.split("hit rate in")[1]
    assert "…" not in table
    assert ("87.5/100.0" in table) == (mode == "order")


def test_a_malformed_line_leaves_a_partial_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_trace(tmp_path, rest='{"timestamp": 1}\n' + line(99, [1, 2]))
    assert simulate(path, "--pages", 20, "--json") == 1
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["trace"]["requests"] == 40
    assert found["partial"] == "line 41 has no input_length"
    assert "error: the result is partial: line 41 has no input_length" in captured.err
    assert simulate(path, "--pages", 20) == 1
    assert "PARTIAL: line 41 has no input_length" in capsys.readouterr().out


def test_a_trace_without_prefix_ids_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lengths.jsonl"
    path.write_text('{"timestamp": 1, "input_length": 5, "output_length": 1}\n')
    assert simulate(path) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "line 1 has no hash_ids, messages, prompt or conversations" in captured.err


@pytest.mark.parametrize("num_ticks, num_points", [(0, None), (1, 0), (3, 2), (7, 6)])
def test_an_interruption_keeps_what_was_measured(
    tmp_path: Path, num_ticks: int, num_points: int | None
) -> None:
    """Each point ticks once here, the first being that of pages without end."""

    @contextmanager
    def interrupted(name: str, total: int) -> Iterator[Tick]:
        left = [num_ticks]

        def tick(count: int) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        yield tick

    path = write_trace(tmp_path)
    options = build_parser().parse_args(["simulate", str(path), "--pages", "20", "44"])
    report = measure(options, read_trace(path, ReadOptions(), no_tokenizer), None, interrupted)
    if num_points is None:
        assert report is None
        return
    assert report is not None
    assert (len(report.points), report.partial) == (num_points, "interrupted")
    assert (report.recommendation is None) == (num_points == 0)


def no_tokenizer() -> Any:
    raise AssertionError("this trace needs none")


def test_timed_mode_tells_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(write_trace(tmp_path), "--mode", "timed", "--pages", 44, "--json") == 0
    found = output(capsys)
    (point,) = found["curve"]
    assert point["policy"] == "lru"
    assert point["ttft_s"]["p50"] > 0
    assert point["steps"] > 40
    assert "assumed" in found["cost"]["source"]
    assert found["definitions"]["numerator"].endswith("the engine's law")
    assert simulate(write_trace(tmp_path), "--mode", "timed", "--pages", 44, "--max-num-seqs", 1) == 0
    assert "time" in capsys.readouterr().out


def test_a_cost_model_gives_order_mode_times_without_a_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cost = tmp_path / "cost.json"
    cost.write_text(json.dumps(asdict(CostModel(prefill_token_s=0.001))))
    assert simulate(write_trace(tmp_path), "--pages", 44, "--policy", "lru", "--cost", cost, "--json") == 0
    found = output(capsys)
    tokens = found["trace"]["prompt_tokens"] * (1 - found["curve"][0]["hit_rate_all"])
    assert found["curve"][0]["ttft_alone_s"]["mean"] == pytest.approx(0.001 * tokens / 40)
    assert simulate(write_trace(tmp_path), "--pages", 44, "--policy", "lru", "--cost", cost) == 0
    assert "each request alone" in capsys.readouterr().out


def test_a_recording_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RecordedRun(LAYOUTS[0])
    for name in "abc":
        run.add(name, range(10), 2)
        run.run()
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(run.lines))
    assert simulate(path, "--verify", "--json") == 0
    assert output(capsys) == {
        "requests": 3,
        "recorded_blocks": 4,
        "departures": [],
        "absent_requests": 0,
        "partial": None,
    }
    entries = [json.loads(line) for line in run.lines]
    entries[2]["cached_tokens"] = 4
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert simulate(path, "--verify") == 2
    assert "request 2: 1 blocks recorded, 2 replayed" in capsys.readouterr().out


def test_requests_that_a_recording_does_not_hold_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are what a departure is from, as after a server that was killed."""
    run = RecordedRun(LAYOUTS[0])
    for name in "abc":
        run.add(name, range(10), 2)
        run.run()
    path = tmp_path / "recording.jsonl"
    path.write_text("".join(run.lines[1:]))
    assert simulate(path, "--verify") == 2
    out = capsys.readouterr().out
    assert "1 of 2 requests reuse exactly" in out
    assert "not in the recording: 1 of 3 requests that came" in out


@pytest.mark.parametrize(
    "argv, message",
    [
        (["--pages", "0"], "--pages is 0, but must be at least 1"),
        (["--block-size", "16"], "is another --block-size right?"),
        (["--max-num-seqs", "4"], "mean nothing in order mode; add --mode timed"),
        (["--max-num-batched-tokens", "64"], "changes times only"),
        (["--mode", "timed", "--policy", "belady"], "knows the future"),
        (["--cost", "none.json"], "cannot be read"),
        (["--cost", "a", "--calibrate", "b"], "leave one out"),
        (["--save-cost", "a"], "go with --calibrate"),
        (["--model", "x"], "are for texts"),
        (["--verify"], "only a recording"),
        (["--policy", "mru"], "invalid choice"),
        (["--plot", "x.doc"], "must end in one of"),
        (["--max-num-batched-tokens", "0", "--mode", "timed"], "--max-num-batched-tokens is 0, but"),
        (["--max-num-seqs", "0", "--mode", "timed"], "--max-num-seqs is 0, but must be at least 1"),
        (["--verify", "--pages", "9", "--plot", "x.png"], "so --pages and --plot would be ignored"),
        (["--verify", "--mode", "timed"], "so --mode timed would be ignored"),
        (["--verify", "--limit", "9"], "--verify plays a recording as it was, so --limit would be ignored"),
        (["--export", "x", "--json"], "--export only writes the trace, so --json would be ignored"),
        (["--export-form", "bailian"], "give that too"),
        (["--calibrate", "http://127.0.0.1:9", "--save-cost", "/"], "is a folder"),
        (["--calibrate", "http://127.0.0.1:9", "--save-cost", "no/x"], "there is no folder"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    try:
        code = simulate(write_trace(tmp_path), *argv)
    except SystemExit as stopped:  # argparse
        code = int(str(stopped.code))
    assert code == 1
    assert message in capsys.readouterr().err


def test_the_trace_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A cost model that was saved under the trace's name took its place."""
    path = write_trace(tmp_path)
    link = tmp_path / "link.png"
    link.symlink_to(path)
    for argv in (["--calibrate", "http://127.0.0.1:9", "--save-cost", str(link)], ["--plot", str(link)]):
        assert simulate(path, *argv) == 1
        assert "link.png is the file that is read; choose another one" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["3", "{}", json.dumps(asdict(CostModel(step_s=-1))), json.dumps(asdict(CostModel())), "["],
)
def test_a_file_that_holds_no_cost_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    cost = tmp_path / "cost.json"
    cost.write_text(text)
    assert simulate(write_trace(tmp_path), "--cost", cost) == 1
    assert "--cost" in capsys.readouterr().err


def test_timed_mode_needs_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"input_length": 9, "output_length": 1, "hash_ids": [1, 2, 3]}\n')
    assert simulate(path, "--mode", "timed", "--block-size", 4) == 1
    assert "has no timestamps; use --mode order" in capsys.readouterr().err


def test_sizes_that_nobody_gave_hold_the_largest_request() -> None:
    trace = public_trace([[*range(100 * n, 100 * n + 3)] for n in range(64)])
    assert default_pages(trace) == [3, 6, 12, 24, 48]
    assert default_pages(public_trace([[*range(9)]])) == [9]
    assert default_pages(public_trace([[0, 1], [2, 3], [4, 5], [6, 7]])) == [2, 4, 5, 8]
    assert default_pages(public_trace([[number] for number in range(6400)])) == [100, 200, 400, 800, 1600]


def test_a_trace_is_exported_and_never_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.jsonl"
    path = write_trace(tmp_path)
    assert simulate(path, "--export", target) == 0
    assert "40 requests with 512 tokens a block" in capsys.readouterr().out
    assert len(target.read_text().splitlines()) == 40
    assert simulate(path, "--export", target) == 1
    assert "exists already" in capsys.readouterr().err
