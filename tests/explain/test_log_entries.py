import json
from typing import Any

import pytest

from anaphora.errors import InvalidRequestError
from anaphora.explain.log_entries import read_entry

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi."}], "tools": []}
LITELLM = {
    "id": "r-7",
    "messages": BODY["messages"],
    "model": "m",
    "model_parameters": {"tools": [], "temperature": 0},
    "response": {"id": "x"},
}


@pytest.mark.parametrize(
    "entry",
    [
        BODY,
        {"request_id": "r-7", "body": BODY},
        {"request": BODY, "status": 200},
        {"request": {"method": "POST", "body": BODY}},
        {"custom_id": "r-7", "method": "POST", "url": "/v1/chat/completions", "body": BODY},
        {"messages": [], "proxy_server_request": {"url": "/", "body": BODY}},
        {"messages": "{}", "proxy_server_request": json.dumps({"url": "/", "body": BODY})},
    ],
)
def test_a_body_is_found_and_another_one_put_in_its_place(entry: dict[str, Any]) -> None:
    found = read_entry(entry)
    assert found.body == BODY
    other = {**BODY, "messages": [{"role": "user", "content": "Ho."}]}
    made = found.with_body(other)
    assert read_entry(made).body == other
    assert list(made) == list(entry)
    assert read_entry(found.with_body(BODY)).value == entry or isinstance(
        entry.get("proxy_server_request"), str
    )


def test_a_spread_body_is_put_together_and_spread_again() -> None:
    found = read_entry(LITELLM)
    assert found.body == {**BODY, "temperature": 0}
    assert found.request_id == "r-7"
    made = found.with_body({**found.body, "messages": ["new"], "tools": ["new"]})
    assert made == {**LITELLM, "messages": ["new"], "model_parameters": {"tools": ["new"], "temperature": 0}}


def test_a_copy_of_the_messages_beside_the_body_is_kept_equal() -> None:
    entry = {"messages": BODY["messages"], "proxy_server_request": {"body": BODY}}
    made = read_entry(entry).with_body({**BODY, "messages": ["new"]})
    assert made == {"messages": ["new"], "proxy_server_request": {"body": {**BODY, "messages": ["new"]}}}


@pytest.mark.parametrize("value", [[1], "text", 1, None, True])
def test_what_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="must be an object"):
        read_entry(value)
