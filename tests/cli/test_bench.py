"""`anaphora bench`: its command line, and a whole run over a real socket."""

import json
from pathlib import Path

import pytest

from anaphora.assemble import build_app
from anaphora.bench.replay import ReplayExperiment, TracedRequest
from anaphora.cli import bench
from anaphora.cli.bench import CHOICES
from anaphora.cli.main import build_parser, main
from anaphora.config import ServerConfig
from tests.e2e.test_whole import make_engine
from tests.server.fakes import live

NOBODY = ["--base-url", "http://127.0.0.1:9"]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: choice.name)
def test_every_experiment_has_help_with_an_example_and_its_exit_codes(
    choice: object, capsys: pytest.CaptureFixture[str]
) -> None:
    """The example is a command that its parser takes."""
    name = choice.name  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as stop:
        main(["bench", name, "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"example:\n  anaphora bench {name}" in out and "exit codes:" in out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["EXPERIMENT"]),
        (["fly"], ["fly"]),
        (["prefix"], ["--base-url"]),
        (["prefix", *NOBODY], ["no server answers at http://127.0.0.1:9", "check --base-url"]),
        (["prefix", "--base-url", "localhost:8000"], ["localhost:8000 is no URL", "http://"]),
        (["prefix", *NOBODY, "--rounds", "0"], ["'0' is below 1"]),
        (["prefix", *NOBODY, "--timeout", "-1"], ["'-1' is not a number above 0"]),
        (["prefix", *NOBODY, "--plot", "p.gif"], ["p.gif ends in .gif", ".svg"]),
        (["prefix", *NOBODY, "--json", "/no/such/folder/x.json"], ["there is no folder /no/such/folder"]),
        (["boundary", *NOBODY, "--shared", "16,many"], ["'many' is not a number"]),
        (["ab", *NOBODY], ["ab needs two servers", "--other-url"]),
        (["ab", *NOBODY, "--serve"], ["--serve starts its own servers"]),
        (["ab", *NOBODY, "--other-url", "http://127.0.0.1:9/v1/"], ["are the same one"]),
        (["replay", "/no/such/trace", *NOBODY], ["/no/such/trace cannot be read"]),
        (
            ["replay", "/no/such/trace", "--trace-block-size", "16", *NOBODY],
            ["/no/such/trace cannot be read"],
        ),
    ],
)
def test_a_wrong_command_line_is_one_clear_message_and_exit_code_1(
    argv: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and nothing on standard output."""
    try:
        code = main(["bench", *argv])
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else -1
    captured = capsys.readouterr()
    assert (code, captured.out) == (1, "")
    assert "error: " in captured.err and "Traceback" not in captured.err
    for word in words:
        assert word in captured.err


def test_a_run_against_our_own_server_over_a_socket(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Server, scheduler and cache are real, the model below is not: bytes are tokens, so words have several."""
    path, picture = tmp_path / "r.json", tmp_path / "r.svg"
    with live(build_app(make_engine(), ServerConfig())) as server:
        argv = [
            "bench",
            "boundary",
            "--base-url",
            server.url,
            "--rounds",
            "1",
            "--shared",
            "20,50,100,150,200",
        ]
        code = main([*argv, "--json", str(path), "--plot", str(picture)])
    out = capsys.readouterr().out
    found = json.loads(path.read_text())
    assert code == 0, out
    steps = found["details"]["steps"]
    assert len(steps) == 5 and steps[-1]["shared"] > 150
    assert [step["seen"] for step in steps] == [[step["shared"] // 16 * 16] for step in steps]
    assert found["targets"][0]["name"] == "anaphora"
    assert out.rstrip().splitlines()[-1] == "comparable: yes"
    assert picture.read_text().startswith("<?xml")


def test_json_alone_is_one_line_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else, so that it can be piped."""
    with live(build_app(make_engine(), ServerConfig())) as server:
        main(["bench", "burst", "--base-url", server.url, "--rounds", "1", "--tokens", "100", "--json"])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    found = json.loads(out)
    assert found["requests_sent"] == 17
    assert found["details"]["computed"][0] <= found["details"]["limit"]


def test_an_unknown_model_is_named_with_those_that_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    with live(build_app(make_engine(), ServerConfig())) as server:
        code = main(["bench", "prefix", "--base-url", server.url, "--model", "gpt-7"])
    assert code == 1
    assert "serves no model 'gpt-7'; it serves fake: choose one of them" in capsys.readouterr().err


def test_a_replay_takes_the_traces_that_the_simulator_takes(tmp_path: Path) -> None:
    """With the block size that fits, which need not be said."""
    path = tmp_path / "trace.jsonl"
    line = '{"timestamp": %d, "input_length": %d, "output_length": 3, "hash_ids": [%s]}\n'
    path.write_text(line % (1500, 1030, "0, 1, 2") + line % (0, 513, "0, 1"), "utf-8")
    options = build_parser().parse_args(["bench", "replay", str(path), *NOBODY])
    found = bench._make_replay(options)
    assert isinstance(found, ReplayExperiment)
    assert found.requests == (TracedRequest(0.0, 513, 3, (0, 1)), TracedRequest(1.5, 1030, 3, (0, 1, 2)))
    assert found.block_size == 512


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{oops", "line 1 is not JSON"),
        ('{"input_length": 20, "output_length": 3, "hash_ids": [0, 1]}', "does not say when"),
        ('{"messages": [{"role": "user", "content": "hi"}]}', "a trace of texts has no pace"),
    ],
)
def test_a_trace_without_a_pace_is_one_clear_line(
    line: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a server is asked anything."""
    path = tmp_path / "trace.jsonl"
    path.write_text(line + "\n", "utf-8")
    assert main(["bench", "replay", str(path), "--trace-block-size", "16", *NOBODY]) == 1
    assert words in capsys.readouterr().err


def test_a_wrong_block_size_is_told_by_the_flag_that_this_command_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--block-size is something else here: that of the server."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 96, "output_length": 3, "hash_ids": [1, 2]}\n', "utf-8")
    assert main(["bench", "replay", str(path), "--trace-block-size", "16", *NOBODY]) == 1
    assert "but with --trace-block-size 16 it must have 6" in capsys.readouterr().err
