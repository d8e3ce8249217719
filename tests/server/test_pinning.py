"""/v1/cache/pin: what it answers, what it refuses, and for whom it pins."""

from typing import Any

import httpx
import pytest

from anaphora.config import ServerConfig
from anaphora.request import FinishReason, Retention, SamplingParams
from anaphora.server.tenants import derive_salt
from tests.server.fakes import FakeEngine, Say, call, make_app

PIN = "/v1/cache/pin"
USER = [{"role": "user", "content": "hi"}]
PINNED = Say([""], finish_reason=FinishReason.LENGTH, cached_tokens=1, pinned_tokens=2)


def pin(engine: FakeEngine, config: ServerConfig | None = None, /, **options: Any) -> httpx.Response:
    """Send a pin."""
    options = {"json": {"prompt": "hey", "add_special_tokens": False}} | options
    return call(make_app(engine, config), "POST", PIN, **options)


def test_a_pin_computes_the_prompt_and_generates_nothing() -> None:
    engine = FakeEngine(PINNED)
    response = pin(engine)
    assert response.status_code == 200
    assert response.headers["x-anaphora-cache"] == "hit=1; of=3"
    body = response.json()
    assert isinstance(body.pop("expires_at"), int)
    assert body == {"object": "cache.pin", "prompt_tokens": 3, "pinned_tokens": 2, "cached_tokens": 1}
    (request,) = engine.requests
    assert (bytes(request.prompt_token_ids), request.params) == (b"hey", SamplingParams(max_tokens=0))
    assert request.retention == (Retention(3, 300.0),)


def test_the_end_of_the_pin_is_told_in_seconds_of_unix_time() -> None:
    """An hour and five minutes from now are 55 minutes apart, give or take the time between two requests."""
    ends = [
        pin(FakeEngine(PINNED), json={"prompt": "hey", "ttl": ttl}).json()["expires_at"]
        for ttl in ("5m", "1h")
    ]
    assert 3300 <= ends[1] - ends[0] < 3360


def test_what_is_shorter_than_a_block_is_not_pinned_and_so_never_ends() -> None:
    """0 is the truth, and no error: there is nothing that a later prompt could reuse."""
    body = pin(FakeEngine(Say([""], pinned_tokens=0))).json()
    assert (body["pinned_tokens"], body["expires_at"]) == (0, None)


@pytest.mark.parametrize(
    "body, ids",
    [
        ({"prompt": "a"}, [256, 97]),
        ({"prompt": "a", "add_special_tokens": False}, [97]),
        ({"prompt": [97, 98]}, [97, 98]),
        ({"prompt": ["a"]}, [256, 97]),
        ({"messages": USER}, list(b"<user>hi")),
        ({"messages": USER, "add_special_tokens": False, "model": "small"}, list(b"<user>hi")),
    ],
)
def test_a_prompt_or_messages_are_pinned_without_a_generation_prompt(body: Any, ids: list[int]) -> None:
    """Which no longer conversation would continue."""
    engine = FakeEngine(PINNED)
    assert pin(engine, json=body).status_code == 200
    assert list(engine.requests[0].prompt_token_ids) == ids


def test_a_pin_over_the_limit_is_a_conflict_with_the_limit_and_a_remedy() -> None:
    """Clients may try again: other pins lapse."""
    error = pin(FakeEngine(Say([""], pinned_tokens=None))).json()["error"]
    assert error["type"] == "conflict_error"
    for words in ("3 tokens", "100", "wait until other pins have lapsed", "--max-pinned-share"):
        assert words in error["message"]
    assert pin(FakeEngine(Say([""], pinned_tokens=None))).status_code == 409


@pytest.mark.parametrize(
    "body, param, words",
    [
        ({}, "prompt", ["either prompt or messages"]),
        ({"prompt": "a", "messages": USER}, "prompt", ["not both"]),
        ({"prompt": ["a", "b"]}, "prompt", ["a list of 2", "one prompt"]),
        ({"prompt": ""}, "prompt", ["empty"]),
        ({"prompt": [300]}, "prompt[0]", ["300", "from 0 to 257"]),
        ({"messages": []}, "messages", ["empty list"]),
        (
            {"messages": USER, "add_special_tokens": True},
            "add_special_tokens",
            ["true", "false for messages"],
        ),
        ({"prompt": "a", "ttl": "2h"}, "ttl", ['"2h"', '"5m" or "1h"']),
        ({"prompt": "a", "ttl": 300}, "ttl", ["300", '"5m" or "1h"']),
        ({"prompt": "a", "ttl": ""}, "ttl", ['""', '"5m" or "1h"']),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt", ["empty"]),
        ({"prompt": "a", "cache_salt": "é" * 129}, "cache_salt", ["258 bytes", "limit is 256"]),
        ({"prompt": "a", "cache_salt": 5}, "cache_salt", ["5", "a string"]),
        ({"prompt": "a", "model": 5}, "model", ["5", "a string"]),
        ({"prompt": "a", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", ["messages"]),
        ({"prompt": [1] * 101}, "prompt", ["101", "100", "--max-pinned-share"]),
        ({"prompt": [1] * 201}, "prompt", ["201", "200", "--max-model-len"]),
    ],
)
def test_what_cannot_be_pinned_is_refused_before_anything_is_computed(
    body: Any, param: str, words: list[str]
) -> None:
    """Also what would never fit: that is no conflict, since trying again would not help."""
    engine = FakeEngine(PINNED)
    response = pin(engine, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    for word in words:
        assert word in error["message"]
    assert engine.requests == []


def test_an_unknown_model_and_a_wrong_verb_have_their_statuses() -> None:
    assert pin(FakeEngine(), json={"model": "gpt-9", "prompt": "a"}).status_code == 404
    assert call(make_app(), "GET", PIN).status_code == 405


KEYS = ServerConfig(api_keys=("alpha", "beta"), tenant_salt_secret=b"server secret")
KEYS_AND_ADMIN = ServerConfig(
    api_keys=("alpha", "beta"), admin_api_key="admin", tenant_salt_secret=b"server secret"
)
ADMIN = ServerConfig(admin_api_key="admin")
OPEN = ServerConfig()


@pytest.mark.parametrize(
    "config, key, tenant, status, salted_by",
    [
        # No keys: everybody on this machine, in the one cache there is.
        (OPEN, None, None, 200, None),
        (ServerConfig(host="0.0.0.0"), None, None, 403, None),
        (OPEN, None, "alpha", 400, None),
        # An admin key alone.
        (ADMIN, "admin", None, 200, None),
        (ADMIN, None, None, 401, None),
        (ADMIN, "other", None, 401, None),
        # API keys alone: each for itself, whatever else it says.
        (KEYS, "alpha", None, 200, "alpha"),
        (KEYS, "alpha", "beta", 200, "alpha"),
        (KEYS, None, "alpha", 401, None),
        (KEYS, "other", None, 401, None),
        # Both: the administrator, for one of the tenants.
        (KEYS_AND_ADMIN, "admin", "alpha", 200, "alpha"),
        (KEYS_AND_ADMIN, "admin", None, 400, None),
        (KEYS_AND_ADMIN, "admin", "", 400, None),
        (KEYS_AND_ADMIN, "admin", "admin", 400, None),
        (KEYS_AND_ADMIN, "alpha", None, 403, None),
        (KEYS_AND_ADMIN, "alpha", "beta", 403, None),
        (KEYS_AND_ADMIN, "other", "alpha", 401, None),
        (KEYS_AND_ADMIN, None, "alpha", 401, None),
    ],
)
def test_who_may_pin_and_for_whom(
    config: ServerConfig, key: str | None, tenant: str | None, status: int, salted_by: str | None
) -> None:
    """The cache is always that of an API key that was presented; nothing else names it."""
    engine = FakeEngine(PINNED)
    given = {"authorization": key and f"Bearer {key}", "x-anaphora-tenant-key": tenant}
    headers = {name: value for name, value in given.items() if value is not None}
    response = pin(engine, config, headers=headers)
    assert response.status_code == status
    assert len(engine.requests) == (status == 200)
    if status == 200:
        salt = None if salted_by is None else derive_salt(b"server secret", salted_by)
        assert engine.requests[0].tenant_salt == salt
    else:
        assert "alpha" not in response.json()["error"]["message"]


def test_the_callers_own_salt_narrows_the_cache_that_is_pinned() -> None:
    engine = FakeEngine(PINNED)
    assert pin(engine, json={"prompt": "hey", "cache_salt": "s"}).status_code == 200
    assert engine.requests[0].cache_salt == "s"


def test_a_failure_of_the_engine_is_an_error_of_ours() -> None:
    assert pin(FakeEngine(Say(fail_at=0))).status_code == 500
