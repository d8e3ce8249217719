"""Our own server, started twice; here a small script plays it."""

import sys
from pathlib import Path

import pytest

from anaphora.bench.own_servers import on_and_off
from anaphora.errors import TargetError

SCRIPT = """
import json, signal, sys, pathlib
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(f"{sys.argv[-1]}.stopped").touch(), sys.exit(0)))
print(json.dumps({"url": "http://" + " ".join(sys.argv[1:])}), flush=True)
signal.pause()
"""


def test_two_servers_run_with_caching_on_and_off_and_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On free ports; the URL is read from the start screen."""
    monkeypatch.chdir(tmp_path)
    with on_and_off("m.gguf", (sys.executable, "-c", SCRIPT)) as urls:
        assert urls == (
            "http://serve m.gguf --port 0 --json --enable-prefix-caching",
            "http://serve m.gguf --port 0 --json --no-enable-prefix-caching",
        )
    stopped = sorted(path.name for path in tmp_path.glob("*.stopped"))
    assert stopped == ["--enable-prefix-caching.stopped", "--no-enable-prefix-caching.stopped"]


def test_a_server_that_does_not_start_is_told_with_its_own_words() -> None:
    """In one line."""
    script = "import sys; sys.exit('error: there is no model gpt-7')"
    with (
        pytest.raises(
            TargetError, match=r"^`anaphora serve --enable-prefix-caching` did not start: there is no model"
        ),
        on_and_off("gpt-7", (sys.executable, "-c", script)),
    ):
        pass


def test_the_first_is_stopped_when_the_second_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process is left behind."""
    monkeypatch.chdir(tmp_path)
    script = f"import sys\nif '--no-enable-prefix-caching' in sys.argv: sys.exit('no memory')\n{SCRIPT}"
    with pytest.raises(TargetError, match="no memory"), on_and_off(None, (sys.executable, "-c", script)):
        pass
    assert [path.name for path in tmp_path.glob("*.stopped")] == ["--enable-prefix-caching.stopped"]
