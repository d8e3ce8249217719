"""`anaphora cost`: both outputs, partial results, and one clear line for every error."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from anaphora.cli.cost import MAX_PROBLEMS_SHOWN, load_prices
from anaphora.cli.main import main
from anaphora.errors import ConfigError
from tests.cost.test_server_metrics import VLLM
from tests.cost.test_shapes import ANTHROPIC, BARE, DEEPSEEK, OPENAI_CHAT

CHAT = {"id": "c1", "object": "chat.completion", "model": "gpt-5.6", "usage": OPENAI_CHAT}
MESSAGE = {"id": "m1", "type": "message", "model": "claude-x", "usage": ANTHROPIC}
PRICES = "as_of = 2026-01-02\ncurrency = 'USD'\n[[price]]\nprovider='openai'\nmodels=['gpt-5.6']\ninput=2\n"


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., str]:
    """Write a log of lines, those that are no text as JSON, and return its path."""

    def write(*lines: Any) -> str:
        path = tmp_path / "usage.jsonl"
        path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), "utf-8")
        return str(path)

    return write


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "my.toml"
    path.write_text(PRICES)
    return str(path)


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_log_becomes_figures(
    log: Callable[..., str], prices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """2,006 tokens: 22 fresh, 1,920 read at 0.1, 64 written at 1.25."""
    assert main(["cost", log(CHAT, ""), "--prices", prices, "--prefill-rate", "960", "--json"]) == 0
    report = read_json(capsys)
    (figures,) = report["models"]
    assert figures["seconds_saved"] == 2.0
    assert figures["money"]["paid"] == pytest.approx((22 + 192 + 80) * 2e-6)
    assert (report["partial"], report["problems"], report["total"]) == (False, [], None)
    assert report["prefill_rate"] == {"tokens_per_second": 960.0, "unknown": None, "source": "--prefill-rate"}
    assert report["prices"] == {prices: "2026-01-02", "the built-in price table": "2026-11-30"}


def test_the_table_says_the_same_to_people(
    log: Callable[..., str], prices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log(CHAT, MESSAGE), "--prices", prices]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "openai gpt-5.6",
        "prompt tokens 2,006 fresh 22 read from the cache 1,920 written, short life 64",
        "prefill saved prefill rate unknown: pass --prefill-rate or --base-url",
        "money saved 0.003424 USD (85.3%): 0.000588 paid, 0.004012 without caching, for prompts",
        "short write pays from use 2 on (write 1.25, read 0.1)",
        "reads per write 30.000 tokens read per token written: the writes paid",
        "anthropic claude-x",
        "× the price of one fresh prompt token",
        "no base price, give it with --prices",
        "all models requests 2 prompt tokens 4,012",
        "the built-in price table, of 2026-11-30",
    ):
        assert words in text
    assert "PARTIAL" not in text


def test_what_a_provider_did_not_report_is_said_and_not_shown_as_zero(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {"prompt_tokens": 10, "prompt_tokens_details": None}
    assert main(["cost", log({"model": "gpt-5.6", "usage": usage})]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1: the provider did not report how many tokens were read from the cache" in text
    assert "prompt tokens provider did not report" in text
    assert " 0 " not in text


def test_bad_lines_are_named_and_the_rest_is_partial(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = log(CHAT, "{oops", {"usage": BARE}, MESSAGE)
    assert main(["cost", path, "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["partial"] is True
    assert [figures["requests"] for figures in report["models"]] == [1, 1]
    assert [(each["source"], each["line"]) for each in report["problems"]] == [(path, 2), (path, 3)]
    first, second = captured.err.splitlines()
    assert first.startswith(f"error: {path}:2: is not JSON: ")
    assert second.startswith(f"error: {path}:3: ") and second.endswith(
        "pass --provider openai or --provider anthropic"
    )
    assert main(["cost", path]) == 1
    assert "PARTIAL" in capsys.readouterr().out


def test_a_line_that_does_not_tell_is_read_as_it_is_said_to_be(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    usage = {**BARE, "cache_read_input_tokens": 5, "input_tokens_details": {"cached_tokens": 5}}
    for provider, tokens in (("openai", 10), ("anthropic", None)):
        assert main(["cost", log({"usage": usage}), "--provider", provider, "--json"]) == 0
        assert read_json(capsys)["models"][0]["tokens"]["total"] == tokens


def test_many_bad_lines_are_cut_short(log: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", log(*["x"] * (MAX_PROBLEMS_SHOWN + 5))]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == MAX_PROBLEMS_SHOWN + 1
    assert errors[-1] == "error: and 5 more; --json lists them all"


def test_a_model_without_a_price_is_an_error_and_its_tokens_count(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log({"model": "deepseek-chat", "usage": DEEPSEEK}, CHAT), "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert (
        "no price for the model 'deepseek-chat' of deepseek; it has: none; add it with --prices"
        in captured.err
    )
    assert report["partial"] is True
    assert report["models"][0]["tokens"]["read"] == 1920
    assert report["models"][0]["money"] is None
    assert report["models"][1]["money"]["saved"] > 0


def test_a_model_can_be_named_for_lines_that_name_none(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log(OPENAI_CHAT), "--json"]) == 0
    assert "pass --model" in read_json(capsys)["models"][0]["unknown"]["money"]
    assert main(["cost", log(OPENAI_CHAT), "--model", "gpt-5.6", "--json"]) == 0
    assert read_json(capsys)["models"][0]["money"]["saved"] == pytest.approx(2006 - 294)


def test_one_file_of_several_may_fail(
    log: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, binary = tmp_path / "empty.jsonl", tmp_path / "binary.jsonl"
    empty.write_text("\n\n")
    binary.write_bytes(b"\xff\xfe\n")
    gone = tmp_path / "gone.jsonl"
    assert main(["cost", str(gone), str(empty), str(binary), str(tmp_path), log(CHAT), "--json"]) == 1
    captured = capsys.readouterr()
    assert [figures["requests"] for figures in json.loads(captured.out)["models"]] == [1]
    assert captured.err.splitlines() == [
        f"error: {gone}: cannot be read: No such file or directory",
        f"error: {empty}: is empty; it must hold one JSON object a line",
        f"error: {binary}:1: is not UTF-8 text: invalid start byte",
        f"error: {tmp_path}: cannot be read: Is a directory",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to read; name a USAGE.jsonl or pass --base-url"),
        (["u.jsonl", "--watch", "1"], "--watch is about the counters of a server"),
        (["u.jsonl", "--base-url", "http://x", "--watch", "1"], "--watch is about the counters of a server"),
        (["--base-url", "http://x", "--watch", "1e9"], "the limit is 86,400"),
        (["--base-url", "http://x", "--model", "m"], "--model and --provider are about the lines of files"),
        (["u.jsonl", "--prefill-rate", "0"], "'0' is not a number above 0"),
        (["u.jsonl", "--prefill-rate", "inf"], "'inf' is not a number above 0"),
        (["u.jsonl", "--prices", "/nowhere.toml"], "/nowhere.toml cannot be read: No such file or directory"),
    ],
)
def test_arguments_that_cannot_be_honoured_are_one_clear_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: Any = main(["cost", *arguments])
    except SystemExit as error:
        code = error.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (1, "")
    assert words in captured.err and "Traceback" not in captured.err


def test_a_price_table_that_is_wrong_is_one_clear_line(
    log: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.toml"
    for content in (b"as_of = 2026-01-02\n", b"\xff"):
        path.write_bytes(content)
        assert main(["cost", log(CHAT), "--prices", str(path)]) == 1
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.startswith(f"error: {path} ")
        assert captured.err.count("\n") == 1


# A server.


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "127.0.0.1:9", "http://[", "ftp://127.0.0.1"])
def test_a_server_that_is_down_leaves_the_log_and_makes_it_partial(
    url: str, log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log(CHAT), "--base-url", url, "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["partial"] is True and report["models"][0]["tokens"]["read"] == 1920
    assert report["models"][0]["seconds_saved"] is None
    assert "does not answer: " in captured.err and captured.err.count("\n") == 1


def test_a_server_that_is_down_and_nothing_else_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--base-url", "http://127.0.0.1:9"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: http://127.0.0.1:9: ") and captured.err.count("\n") == 1


def test_a_saved_scrape_of_a_server_is_read_as_the_server_itself(
    tmp_path: Path, log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a log it says only how fast the server is."""
    path = tmp_path / "metrics.txt"
    path.write_text(VLLM)
    assert main(["cost", str(path), "--json"]) == 0
    report = read_json(capsys)
    assert report["models"][0]["tokens"]["read"] == 800
    assert report["prefill_rate"]["source"] == f"measured by {path} since its start"
    assert main(["cost", str(path), log(CHAT), "--json"]) == 0
    report = read_json(capsys)
    assert [figures["provider"] for figures in report["models"]] == ["openai"]
    assert report["models"][0]["seconds_saved"] == 1920 / report["prefill_rate"]["tokens_per_second"]


@pytest.mark.parametrize("with_log", [False, True])
def test_a_saved_scrape_beside_a_server_is_an_error(
    with_log: bool, tmp_path: Path, log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(VLLM)
    files = [str(path), log(CHAT)] if with_log else [str(path)]
    assert main(["cost", *files, "--base-url", "http://127.0.0.1:9", "--json"]) == 1
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["models"]) == with_log
    first, second = captured.err.splitlines()
    assert first == f"error: {path}: holds metrics, and those of --base-url are asked for too; give one"
    assert second.startswith("error: http://127.0.0.1:9: ")


@pytest.mark.parametrize("option", ["--model", "--provider"])
def test_what_is_about_lines_is_refused_where_the_only_file_is_a_scrape(
    option: str, tmp_path: Path, log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong with a file goes before that."""
    path = tmp_path / "metrics.txt"
    path.write_text(VLLM)
    assert main(["cost", str(path), option, "openai"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "error: --model and --provider are about the lines of files; name a USAGE.jsonl\n",
    )
    assert main(["cost", str(path), log(CHAT), option, "openai"]) == 0
    capsys.readouterr()
    assert main(["cost", str(path), "/nowhere", option, "openai"]) == 1
    assert capsys.readouterr().err == "error: /nowhere: cannot be read: No such file or directory\n"


# Odd inputs and ends.


def test_a_log_in_which_nothing_has_a_usage_is_an_error(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log({"error": {"message": "x"}}, {"type": "ping"})]) == 1
    assert capsys.readouterr().err == (
        "error: nothing to report: no line has a usage: 1 requests that failed, expired or were canceled, "
        "1 lines of streams without usage\n"
    )


def test_an_error_is_one_line_whatever_a_file_is_called(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", log(CHAT), "no\nsuch\x1b[31m"]) == 1
    assert capsys.readouterr().err == "error: no\\nsuch\\x1b[31m: cannot be read: No such file or directory\n"


def test_an_anthropic_stream_is_one_request_with_the_output_of_its_end(
    log: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    start = {"type": "message_start", "message": {**MESSAGE, "usage": {**ANTHROPIC, "output_tokens": 1}}}
    delta = {"type": "message_delta", "usage": {"output_tokens": 250}}
    assert main(["cost", log(start, delta, {"type": "message_stop"}), "--json"]) == 0
    (figures,) = read_json(capsys)["models"]
    assert (figures["requests"], figures["tokens"]["total"], figures["tokens"]["output"]) == (1, 2006, 250)


def test_prices_of_a_day_to_come_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text(PRICES)
    assert load_prices(path, date(2026, 1, 1)).as_of == "2026-01-02"  # it is later elsewhere
    with pytest.raises(ConfigError, match="as_of is 2026-01-02, but today is 2025-12-31"):
        load_prices(path, date(2025, 12, 31))


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_what_an_output_cannot_show_is_written_as_a_number(
    arguments: list[str], log: Callable[..., str]
) -> None:
    """Half a surrogate pair is no UTF-8, and an ASCII terminal has no ×."""
    told = subprocess.run(
        [sys.executable, "-m", "anaphora", "cost", log({**CHAT, "model": "gpt-5.6-\ud800é"}), *arguments],
        env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, b"")
    assert b"gpt-5.6-\\ud800" in told.stdout
    if arguments:
        assert json.loads(told.stdout)["models"][0]["model"] == "gpt-5.6-\ud800é"


def test_ctrl_c_prints_what_was_read_until_then(tmp_path: Path) -> None:
    """The log is a pipe that stays open: the command waits in it for the next line."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    run = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # as in a terminal
        "from anaphora.cli.main import main; sys.exit(main())"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", run, "cost", str(pipe), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with pipe.open("wb", buffering=0) as writer:  # waits until the command has opened it
        line = json.dumps(CHAT).encode() + b"\n"
        filler = b"\n" * 65536
        writer.write(line)
        for _ in range(4):  # more than a pipe holds: when it is written, the first line has been read
            writer.write(filler)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 1
    report = json.loads(out)
    assert report["partial"] is True
    assert report["models"][0]["tokens"]["read"] == 1920
    assert err == b"error: Ctrl-C: broken off; what was read until then is counted\n"
