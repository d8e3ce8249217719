"""API keys, and the salt that keeps the caches of their holders apart."""

import hashlib
import hmac

import pytest

from anaphora.config import ServerConfig
from anaphora.server.tenants import derive_salt, exposure_warning, is_loopback
from tests.server.fakes import FakeEngine, call, make_app

KEYED = ServerConfig(api_keys=("alpha", "beta", "schlüssel"), tenant_salt_secret=b"server secret")
PROTECTED = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/small"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/v1/cache/pin"),
]


@pytest.mark.parametrize("method, path", PROTECTED)
@pytest.mark.parametrize(
    "header",
    [None, "alpha", "Basic alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa", "Bearer ALPHA"],
)
def test_without_a_known_key_nothing_is_answered(method: str, path: str, header: str | None) -> None:
    """401 before the body is looked at."""
    headers = {} if header is None else {"authorization": header}
    response = call(make_app(config=KEYED), method, path, content=b"no json", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = response.json()["error"]
    assert error["type"] == "authentication_error"
    assert error["code"] == "invalid_api_key"
    assert "Authorization: Bearer KEY" in error["message"]
    assert "alph" not in error["message"]


@pytest.mark.parametrize(
    "method, path", [("GET", "/health"), ("GET", "/ping"), ("GET", "/metrics"), ("GET", "/version")]
)
def test_probes_and_scrapers_need_no_key(method: str, path: str) -> None:
    """They have none."""
    assert call(make_app(config=KEYED), method, path).status_code == 200


@pytest.mark.parametrize("header", [b"Bearer alpha", b"bearer beta", "Bearer schlüssel".encode()])
def test_every_known_key_opens(header: bytes) -> None:
    """Whatever the case of the scheme, and beyond ASCII too."""
    response = call(make_app(config=KEYED), "GET", "/v1/models", headers={"authorization": header})
    assert response.status_code == 200


def salt_of(config: ServerConfig, key: str | None, **body: object) -> bytes | None:
    """Return the salt under which the engine got a request."""
    engine = FakeEngine()
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    response = call(
        make_app(engine, config), "POST", "/v1/completions", json={"prompt": "x"} | body, headers=headers
    )
    assert response.status_code == 200
    return engine.requests[0].tenant_salt


def test_each_key_has_its_own_salt() -> None:
    """Keyed with the secret of the server, so that nobody who knows a key can work it out."""
    expected = hmac.new(b"server secret", b"alpha", hashlib.sha256).digest()
    assert salt_of(KEYED, "alpha") == expected == derive_salt(b"server secret", "alpha")
    assert salt_of(KEYED, "beta") != expected


def test_servers_without_a_shared_secret_derive_other_salts() -> None:
    """Each start draws its own."""
    config = ServerConfig(api_keys=("alpha",))
    assert salt_of(config, "alpha") != salt_of(config, "alpha")


def test_without_keys_there_is_no_salt() -> None:
    """All callers are one tenant then."""
    assert salt_of(ServerConfig(), None) is None
    assert salt_of(ServerConfig(), "anything") is None


def test_a_client_cannot_name_a_tenants_salt() -> None:
    """What it sends travels beside the salt, never in its place."""
    engine = FakeEngine()
    app = make_app(engine, KEYED)
    salt = derive_salt(b"server secret", "beta").hex()
    body = {"prompt": "x", "cache_salt": salt, "tenant_salt": salt}
    call(app, "POST", "/v1/completions", json=body, headers={"authorization": "Bearer alpha"})
    assert engine.requests[0].tenant_salt == derive_salt(b"server secret", "alpha")
    assert engine.requests[0].cache_salt == salt


@pytest.mark.parametrize(
    "host, expected",
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("a", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """Names other than localhost may lead anywhere."""
    assert is_loopback(host) == expected


def test_serving_others_without_a_key_is_warned_of() -> None:
    """The warning names the flag that would help."""
    assert exposure_warning(ServerConfig()) is None
    assert exposure_warning(ServerConfig(host="0.0.0.0", api_keys=("k",))) is None
    warning = exposure_warning(ServerConfig(host="0.0.0.0"))
    assert warning is not None
    assert "0.0.0.0" in warning and "--api-key" in warning
