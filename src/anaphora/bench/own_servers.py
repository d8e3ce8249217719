"""Starts our own server twice, with caching on and off, for the time of a comparison."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from anaphora.errors import TargetError

FLAGS = ("--enable-prefix-caching", "--no-enable-prefix-caching")
_STOP_S = 15.0


@contextmanager
def on_and_off(
    model: str | None, command: Sequence[str] = (sys.executable, "-m", "anaphora")
) -> Iterator[tuple[str, str]]:
    """Run two servers on free loopback ports and give their URLs: caching on, caching off. Both are stopped after."""
    with ExitStack() as stack:
        on, off = (stack.enter_context(_served(command, model, flag)) for flag in FLAGS)
        yield on, off


@contextmanager
def _served(command: Sequence[str], model: str | None, flag: str) -> Iterator[str]:
    argv = [*command, "serve", *([model] if model else []), "--port", "0", "--json", flag]
    # A file, since nobody reads along: a pipe would be full one day, and the server would wait for ever.
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        # In a session of its own, so that Ctrl-C stops the measuring first and the server after it.
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True
        )
        try:
            yield _url_of(process, flag, said)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _url_of(process: subprocess.Popen[str], flag: str, said: IO[str]) -> str:
    """Wait for the start screen, which comes once the server answers, and return the URL on it."""
    line = process.stdout.readline() if process.stdout else ""
    try:
        facts: dict[str, Any] = json.loads(line)
        return str(facts["url"])
    except (ValueError, KeyError) as error:
        process.terminate()
        process.communicate(timeout=_STOP_S)
        said.seek(0)
        last = said.read().strip().splitlines()[-1:] or [line.strip() or "nothing was said"]
        raise TargetError(
            f"`anaphora serve {flag}` did not start: {last[0].removeprefix('error: ')}"
        ) from error
