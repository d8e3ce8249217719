"""Request ids, unknown paths, wrong verbs, and failures nobody foresaw."""

import logging

import pytest

from anaphora.errors import EngineDeadError, ShuttingDownError
from tests.server.fakes import FakeEngine, Say, call, complete, make_app


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/embeddings", "/v1/completions/", "/v1/chat/completions/x", "/health/"]
)
def test_an_unknown_path_is_answered_in_the_shape_of_errors(path: str) -> None:
    """No HTML, and no redirect that would turn a POST into a GET."""
    response = call(make_app(), "POST", path, json={})
    assert response.status_code == 404
    error = response.json()["error"]
    assert error["type"] == "not_found_error"
    assert error["param"] is None and error["code"] is None
    assert path in error["message"]


@pytest.mark.parametrize(
    "method, path, allowed",
    [
        ("GET", "/v1/completions", "POST"),
        ("DELETE", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("GET", "/reset_prefix_cache", "POST"),
        ("POST", "/health", "GET, HEAD"),
    ],
)
def test_a_wrong_verb_is_answered_with_the_right_one(method: str, path: str, allowed: str) -> None:
    """In the message and in the header."""
    response = call(make_app(), method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert allowed in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/health", 200),
        ("GET", "/v1/models", 200),
        ("POST", "/v1/completions", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/health", 405),
        ("POST", "/v1/chat/completions", 400),
    ],
)
def test_every_response_has_a_request_id(method: str, path: str, status: int) -> None:
    """A new one each time."""
    app = make_app()
    responses = [call(app, method, path, json={"prompt": "hi"}) for _ in range(2)]
    assert [response.status_code for response in responses] == [status, status]
    ids = [response.headers["x-request-id"] for response in responses]
    assert ids[0] != ids[1]
    assert all(request_id.startswith("req-") for request_id in ids)


@pytest.mark.parametrize(
    "given, is_kept",
    [
        ("abc-1", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ("", False),
        (b"\xc3\xa9", False),
    ],
)
def test_a_sane_request_id_of_the_client_is_sent_back(given: str | bytes, is_kept: bool) -> None:
    """Others could not be logged or found again."""
    response = call(make_app(), "GET", "/health", headers={"x-request-id": given})
    assert (response.headers["x-request-id"] == given) == is_kept


def test_the_engines_ids_differ_even_if_a_client_repeats_its_own() -> None:
    """Two requests of one id would be one to the engine."""
    engine = FakeEngine()
    app = make_app(engine)
    for _ in range(2):
        call(app, "POST", "/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "same"})
    assert len({request.request_id for request in engine.requests}) == 2


def test_an_unforeseen_failure_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The caller learns that it is not his fault, the operator where to look."""
    with caplog.at_level(logging.ERROR):
        response = call(
            make_app(FakeEngine(Say(fail_at=0))),
            "POST",
            "/v1/completions",
            json={"prompt": "x"},
            headers={"x-request-id": "mine"},
        )
    assert response.status_code == 500
    assert response.headers["x-request-id"] == "mine"
    message = "internal error; the server's log has the details"
    assert response.json() == {
        "error": {"message": message, "type": "server_error", "param": None, "code": None}
    }
    assert "request mine failed" in caplog.text
    assert "a secret of the engine" in caplog.text


@pytest.mark.parametrize(
    "error, words",
    [
        (EngineDeadError("tokens (17, 4)"), "the engine has stopped"),
        (ShuttingDownError("the server is stopping"), "the server is stopping"),
    ],
)
def test_a_server_that_cannot_work_says_that_another_might(
    error: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """503 is what routers look for; the log has one line and no traceback, and the caller none of the state."""
    response = complete(make_app(FakeEngine(Say(fail_at=0, error=error))))
    assert response.status_code == 503
    assert response.json()["error"]["type"] == "server_error"
    assert words in response.json()["error"]["message"]
    assert "17" not in response.text
    assert str(error) in caplog.text
    assert "Traceback" not in caplog.text


def test_two_apps_in_one_process_know_nothing_of_each_other() -> None:
    """There is no global state."""
    one, two = FakeEngine(), FakeEngine(Say(["two"]))
    apps = make_app(one), make_app(two)
    assert complete(apps[1]).json()["choices"][0]["text"] == "two"
    assert len(one.requests) == 0
    assert complete(apps[0]).json()["choices"][0]["text"] == "Hello, world"
