"""`anaphora explain`: exit codes, both outputs, one clear line for every error."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from anaphora.assemble import build_app
from anaphora.cli.explain import read_request, records_of, show
from anaphora.cli.main import main
from anaphora.config import ExplainConfig, ServerConfig
from anaphora.errors import ConfigError
from anaphora.explain.endless_cache import explain_after
from tests.e2e.test_whole import make_engine
from tests.explain.support import LAW, RENDERER, STORY, chat
from tests.server.fakes import live


def _write(folder: Path, name: str, body: Any) -> Path:
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[1]", "must be an object that holds a request")],
)
def test_a_file_that_is_no_request_is_one_clear_line(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 1, before a model is looked for."""
    path = tmp_path / "r.json" if text is None else _write(tmp_path, "r.json", text)
    assert main(["explain", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and words in captured.err and captured.err.count("\n") == 1


def test_a_body_is_found_inside_an_entry_of_a_log(tmp_path: Path) -> None:
    """With the id that the log gave it."""
    path = _write(tmp_path, "r.json", {"id": "r-7", "body": chat("Hi.")})
    records = records_of([path], [read_request(path)], RENDERER)
    assert records[0].request_id == "r-7"


def test_a_body_that_cannot_be_rendered_names_its_file(tmp_path: Path) -> None:
    """There may be many."""
    path = _write(tmp_path, "odd.json", {"messages": []})
    with pytest.raises(ConfigError, match=r"odd\.json: messages is an empty list"):
        records_of([path], [read_request(path)], RENDERER)


def test_people_get_a_table_and_markup_in_prompts_stays_text(tmp_path: Path) -> None:
    """`[bold]` in a prompt is the caller's, not a style."""
    bodies = [chat("Hi.", system=f"[bold]It is {clock}.[/oops] {STORY}") for clock in ("12:01", "12:02")]
    records = records_of([tmp_path / "a.json", tmp_path / "b.json"], bodies, RENDERER)
    console = Console(width=100)
    with console.capture() as captured:
        show(explain_after(records[1], records[:1], LAW, RENDERER), console)
    assert "volatile_value" in captured.get()


@pytest.mark.model
def test_a_clock_is_found_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 says that there is something to mend, 0 that there is not."""
    early, late = (
        _write(tmp_path, f"{i}.json", chat("Hi.", system=f"It is {clock}. {STORY}"))
        for i, clock in enumerate(["12:01:31", "12:02:58"])
    )
    assert main(["explain", str(late), "--against", str(early), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["cause"], found["path"], found["compared_with"]) == (
        "volatile_value",
        "messages[0].content",
        "0",
    )
    assert sum(found["uncached"].values()) == found["prompt_tokens"] - found["reused_tokens"]
    assert main(["explain", str(late), "--against", str(late)]) == 0
    assert "ok_partial" in capsys.readouterr().out
    template = _write(tmp_path, "t.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")
    assert main(["explain", str(late), "--chat-template", str(template), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cause"] == "never_seen"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "either REQUEST.json or --request-id"),
        (["r.json", "--request-id", "r-1"], "not both"),
        (["--request-id", "r-1", "--model", "m"], "--model and --chat-template are for files"),
        (["--request-id", "r-1", "--against", "a", "b"], "names 2 requests"),
        (["r.json", "--base-url", "http://127.0.0.1:1"], "add --request-id"),
    ],
)
def test_flags_that_say_nothing_together_are_refused(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not one of them is ignored."""
    assert main(["explain", *flags]) == 1
    assert words in capsys.readouterr().err


def test_a_running_server_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The object is the server's own; the exit code says whether there is something to mend."""
    engine = make_engine(explain=ExplainConfig())
    with live(build_app(engine, ServerConfig())) as server:
        for clock in ("12:01", "12:02"):
            body = {"prompt": f"It is {clock}. {STORY}", "max_tokens": 1}
            answer = httpx.post(f"{server.url}/v1/completions", json=body).json()
        ask = ["explain", "--request-id", answer["id"], "--base-url", server.url]
        assert main([*ask, "--json"]) == 2
        found = json.loads(capsys.readouterr().out)
        assert found == httpx.get(f"{server.url}/v1/cache/requests/{answer['id']}").json()
        assert (found["cause"], found["old"], found["new"]) == ("volatile_value", "12:01", "12:02")
        assert main(ask) == 2
        assert "volatile_value" in capsys.readouterr().out
        assert main([*ask, "--against", answer["id"], "--json"]) == 0
        assert main(["explain", "--request-id", "a/b ?", "--base-url", server.url]) == 1
        assert "records are kept for 3,600 seconds" in capsys.readouterr().err
