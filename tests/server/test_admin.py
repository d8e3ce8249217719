"""Health, metrics, version, and resetting the cache."""

from typing import Any

import pytest

from anaphora.config import ServerConfig
from tests.server.fakes import FakeEngine, call, make_app


@pytest.mark.parametrize(
    "method, path", [("GET", "/health"), ("HEAD", "/health"), ("GET", "/ping"), ("POST", "/ping")]
)
def test_health_is_200_only_while_the_engine_can_step(method: str, path: str) -> None:
    """A router must not send more to a server that hangs."""
    engine = FakeEngine()
    app = make_app(engine)
    assert call(app, method, path).status_code == 200
    engine.failure = "out of memory"
    assert call(app, method, path).status_code == 503


def test_health_does_not_show_what_the_engine_says_of_its_failure() -> None:
    """Anybody may ask, and the state in a failed assertion can hold tokens of a tenant."""
    engine = FakeEngine()
    engine.failure = "AssertionError: tokens (17, 4)"
    error = call(make_app(engine), "GET", "/health").json()["error"]
    assert error["type"] == "server_error"
    assert "must be restarted; its log has the details" in error["message"]
    assert "17" not in error["message"]


@pytest.mark.parametrize("api_keys, is_isolated", [((), False), (("k",), True)])
def test_health_says_whether_tenants_are_kept_apart(api_keys: tuple[str, ...], is_isolated: bool) -> None:
    """Isolation that is not there must not be pretended."""
    response = call(make_app(config=ServerConfig(api_keys=api_keys)), "GET", "/health")
    assert response.json() == {"status": "ok", "tenant_isolation": is_isolated}


def test_metrics_are_prometheus_text() -> None:
    """Version 0.0.4, which every scraper reads."""
    response = call(make_app(), "GET", "/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "vllm:prompt_tokens_total 0" in response.text


def test_version_has_name_and_version() -> None:
    """For tools."""
    body = call(make_app(), "GET", "/version").json()
    assert body["name"] == "anaphora"
    assert isinstance(body["version"], str)


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/flush_cache"])
def test_a_reset_says_whether_the_cache_is_empty_now(path: str) -> None:
    """409 when requests hold blocks, so that a 2xx status can be trusted."""
    engine = FakeEngine()
    app = make_app(engine)
    response = call(app, "POST", path)
    assert (response.status_code, response.json()) == (200, {"success": True})
    engine.can_reset = False
    response = call(app, "POST", path)
    assert response.status_code == 409
    assert response.json()["success"] is False
    assert "reset_running_requests=true" in response.json()["reason"]


@pytest.mark.parametrize(
    "query, passed",
    [
        ("", False),
        ("?reset_running_requests=true&reset_external=true", True),
        ("?reset_running_requests=1", True),
        ("?reset_running_requests=False&reset_external=0", False),
        ("?reset_running_requests=", False),
    ],
)
def test_a_reset_may_preempt_running_requests(query: str, passed: bool) -> None:
    """Only when asked to."""
    engine = FakeEngine()
    assert call(make_app(engine), "POST", f"/reset_prefix_cache{query}").status_code == 200
    assert engine.resets == [passed]


def test_a_reset_refuses_what_is_neither_true_nor_false() -> None:
    """And then does nothing."""
    engine = FakeEngine()
    response = call(make_app(engine), "POST", "/reset_prefix_cache?reset_external=maybe")
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "reset_external"
    assert engine.resets == []


ADMIN = ServerConfig(api_keys=("user",), admin_api_key="admin")


@pytest.mark.parametrize(
    "config, key, status",
    [
        (ServerConfig(), None, 200),
        (ServerConfig(host="::1"), None, 200),
        (ServerConfig(host="localhost"), None, 200),
        (ServerConfig(host="0.0.0.0"), None, 403),
        (ServerConfig(host="example.org"), None, 403),
        (ServerConfig(api_keys=("user",)), None, 403),
        (ServerConfig(api_keys=("user",)), "user", 403),
        (ADMIN, "admin", 200),
        (ADMIN, "user", 403),
        (ADMIN, "other", 401),
        (ADMIN, None, 401),
        (ServerConfig(admin_api_key="admin"), None, 401),
        (ServerConfig(admin_api_key="admin"), "admin", 200),
        (ServerConfig(admin_api_key="admin", host="0.0.0.0"), "admin", 200),
    ],
)
def test_who_may_reset(config: ServerConfig, key: str | None, status: int) -> None:
    """The holder of the admin key; without one, only callers on this machine while nobody needs a key."""
    engine = FakeEngine()
    headers: dict[str, Any] = {} if key is None else {"authorization": f"Bearer {key}"}
    response = call(make_app(engine, config), "POST", "/reset_prefix_cache", headers=headers)
    assert response.status_code == status
    assert len(engine.resets) == (status == 200)
    if status == 403:
        assert response.json()["error"]["type"] == "permission_error"
        assert "--admin-api-key" in response.json()["error"]["message"]
