"""Questions to a server: its words when it refuses, and one clear line when there is none."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from anaphora.cli.remote import get_json
from anaphora.errors import ConfigError, ServerCallError
from anaphora.server.sse import Stopping
from tests.server.fakes import live


async def _answer(request: Request) -> Response:
    match request.path_params["what"]:
        case "echo":
            key = request.headers.get("authorization")
            return JSONResponse({"key": key, "query": dict(request.query_params)})
        case "refuse":
            return JSONResponse({"error": {"message": "ask another time"}}, 404)
        case "list":
            return JSONResponse([1])
        case _:
            return PlainTextResponse("<html>", 502)


APP = Starlette(routes=[Route("/v1/{what}", _answer)])
APP.state.stopping = Stopping()


def test_the_key_and_the_query_are_sent_and_the_base_url_may_end_in_v1() -> None:
    with live(APP) as server:
        for base_url in (server.url, f"{server.url}/", f"{server.url}/v1"):
            answer = get_json(base_url, "/v1/echo", api_key="k", params={"against": "r-1"})
            assert answer == {"key": "Bearer k", "query": {"against": "r-1"}}


def test_the_key_of_the_environment_is_used_if_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAPHORA_API_KEY", "from-outside")
    with live(APP) as server:
        assert get_json(server.url, "/v1/echo")["key"] == "Bearer from-outside"


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("refuse", "answered 404: ask another time"),
        ("list", r"answered 200: \[1\]"),
        ("page", "502 with no JSON"),
    ],
)
def test_a_refusal_is_one_line_with_the_words_of_the_server(what: str, words: str) -> None:
    with live(APP) as server, pytest.raises(ServerCallError, match=words) as caught:
        get_json(server.url, f"/v1/{what}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("base_url", ["http://127.0.0.1:1", "nonsense", "http://[", "http://127.0.0.1:99999"])
def test_no_server_is_one_line_that_names_the_flag(base_url: str) -> None:
    with pytest.raises(ServerCallError, match=r"--base-url|give one such as") as caught:
        get_json(base_url, "/v1/echo")
    assert "\n" not in str(caught.value)


def test_a_key_that_no_header_can_hold_is_said() -> None:
    """It was a traceback."""
    with pytest.raises(ConfigError, match="the API key has a character that no HTTP header can carry"):
        get_json("http://127.0.0.1:1", "/v1/echo", api_key="ключ")
