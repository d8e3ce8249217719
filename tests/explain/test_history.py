"""The memory of requests: its limits, and who may see what."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.cache.chain import pack_tokens
from anaphora.explain.history import RECORD_BYTES, History, HistoryLimits, Remembered
from anaphora.explain.sketch import sketch_of
from anaphora.explain.watch import Admitted
from anaphora.ids import RequestId

ROOMY = HistoryLimits(100, 1 << 20, 60.0)


def add(
    history: History,
    name: str,
    tokens: list[int],
    tenant: bytes | None = None,
    salt: str | None = None,
    time: float = 0.0,
    **fields: Any,
) -> Remembered:
    admitted = Admitted(
        request_id=RequestId(name),
        tenant_salt=tenant,
        cache_salt=salt,
        time=time,
        token_ids=tokens,
        num_prompt_tokens=len(tokens),
        cached_tokens=0,
    )
    request = history.new(admitted, time)
    request.sketch = sketch_of(pack_tokens(tokens))
    for field, value in fields.items():
        setattr(request, field, value)
    history.add(request, pack_tokens(tokens))
    return request


def names(history: History, tenant: bytes | None = None, limit: int = 100) -> list[str]:
    return [request.request_id for request in history.latest(tenant, limit)]


def test_beyond_the_number_the_oldest_is_forgotten_and_counted() -> None:
    history = History(HistoryLimits(2, 1 << 20, 60.0))
    for name in "abc":
        add(history, name, [1, 2])
    assert (names(history), len(history), history.num_forgotten) == (["c", "b"], 2, 1)
    assert history.get("a", None) is None
    assert history.at(0) is None


def test_beyond_the_bytes_the_oldest_is_forgotten() -> None:
    history = History(HistoryLimits(100, 3 * RECORD_BYTES + 9000, 60.0))
    for number in range(10):
        add(history, str(number), [number] * 1000)
    assert history.size_bytes <= history.limits.max_bytes
    assert names(history) == ["9"] or names(history)[0] == "9"
    assert history.num_forgotten == 10 - len(history)


def test_a_prompt_that_is_larger_than_the_memory_is_forgotten_at_once() -> None:
    """It leaves nothing behind, and nobody waits for it in vain."""
    history = History(HistoryLimits(100, 5000, 60.0))
    add(history, "a", list(range(5000)))
    assert (len(history), history.size_bytes, history.num_forgotten) == (0, 0, 1)
    assert names(history) == []


def test_the_age_counts_from_the_admission() -> None:
    history = History(ROOMY)
    add(history, "a", [1], time=10.0)
    add(history, "b", [1], time=40.0)
    history.forget_old(70.0)
    assert names(history) == ["b", "a"]
    history.forget_old(70.1)
    assert names(history) == ["b"]


def test_an_unknown_a_forgotten_and_a_foreign_request_look_the_same() -> None:
    history = History(HistoryLimits(1, 1 << 20, 60.0))
    add(history, "forgotten", [1], b"me")
    add(history, "foreign", [1], b"you")
    assert [history.get(name, b"me") for name in ("unknown", "forgotten", "foreign")] == [None, None, None]
    assert history.get("foreign", b"you") is not None
    assert history.get("foreign", None) is None


def test_a_tenants_relatives_are_its_own() -> None:
    history = History(ROOMY)
    tokens = list(range(100))
    mine = add(history, "mine", tokens, b"me")
    add(history, "yours", tokens, b"you")
    add(history, "nobodys", tokens, None)
    asked = history.new(mine.admitted, 0.0)
    assert [one.request_id for one in history.relatives(asked, pack_tokens(tokens))] == ["mine"]
    assert names(history, b"you") == ["yours"]
    assert names(history, b"other") == []


def test_relatives_are_the_longest_beginnings_and_the_likest_wherever_it_stands_the_earliest_first() -> None:
    history = History(ROOMY)
    text = [number * 977 % 5000 for number in range(300)]
    add(history, "shifted", [7, 7, 7, *text])
    add(history, "beginning", [*text[:20], 9, 9, 9])
    add(history, "stranger", [4, 4, 4])
    asked = add(history, "asked", [8])
    asked.sketch = sketch_of(pack_tokens(text))
    found = [one.request_id for one in history.relatives(asked, pack_tokens(text))]
    assert found[:2] == ["shifted", "beginning"]


def test_the_same_words_under_another_salt_are_relatives_where_they_share_more() -> None:
    history = History(ROOMY)
    add(history, "theirs", [1, 2, 3], salt="one")
    asked = add(history, "asked", [1, 2], salt="two")
    assert [one.request_id for one in history.relatives(asked, pack_tokens([1, 2, 3]))] == ["theirs", "asked"]


def test_a_reply_is_stored_as_far_as_its_kv_exist() -> None:
    """The last token that was sampled has none."""
    history = History(ROOMY)
    request = add(history, "a", [1, 2, 3])
    before = history.size_bytes
    history.end(request, [1, 2, 3, 4, 5, 6], 5)
    assert list(history.token_ids(request)) == [1, 2, 3, 4, 5]
    assert (request.num_usable_tokens, request.num_reply_tokens, request.has_ended) == (5, 2, True)
    assert history.size_bytes > before
    asked = add(history, "b", [9])
    assert next(one.request_id for one in history.relatives(asked, pack_tokens([1, 2, 3, 4, 5, 6]))) == "a"


def test_a_request_that_ended_early_is_usable_no_further_than_it_was_computed() -> None:
    history = History(ROOMY)
    request = add(history, "a", [1, 2, 3])
    history.end(request, [1, 2, 3], 2)
    assert (request.num_usable_tokens, list(history.token_ids(request))) == (2, [1, 2, 3])


def test_a_memory_of_no_bytes_keeps_counts_alone() -> None:
    history = History(HistoryLimits(2, 0, 60.0))
    for name in "abc":
        request = add(history, name, list(range(50)))
        history.end(request, list(range(60)), 59)
    assert names(history) == ["c", "b"]
    assert request.entry is None
    assert list(history.token_ids(request)) == []
    assert history.relatives(request, pack_tokens(list(range(50)))) == []
    assert history.num_forgotten == 1


def test_the_latest_of_a_name_that_came_twice_is_found_whichever_is_forgotten() -> None:
    history = History(HistoryLimits(2, 1 << 20, 60.0))
    add(history, "a", [1])
    second = add(history, "a", [2])
    assert history.find("a") is second
    add(history, "b", [3])
    assert history.find("a") is second
    add(history, "c", [3])
    assert history.find("a") is None


@pytest.mark.parametrize("max_bytes", [0, 20_000, 1 << 24])
@settings(max_examples=40)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from("aen"), st.integers(0, 40), st.sampled_from([None, b"t"])), max_size=40
    )
)
def test_the_bytes_are_those_of_what_is_remembered(
    max_bytes: int, acts: list[tuple[str, int, bytes | None]]
) -> None:
    """And none when all is forgotten."""
    history = History(HistoryLimits(7, max_bytes, 60.0))
    live: list[tuple[Remembered, list[int]]] = []
    for number, (act, size, tenant) in enumerate(acts):
        if act == "a" or not live:
            tokens = [token % 3 for token in range(size)] + [5]
            live.append(
                (add(history, str(number), tokens, tenant, time=float(number), body={"x": "y"}), tokens)
            )
        elif act == "e":
            request, tokens = live.pop(size % len(live))
            if history.at(request.number) is request:
                history.end(request, [*tokens, 6, 7, 8], len(tokens) + 2)
        else:
            history.forget_old(number + 55.0)
        kept = [history.at(one) for one in range(len(acts))]
        assert history.size_bytes >= sum(one.size_bytes for one in kept if one)
        assert history.size_bytes <= max(max_bytes, 7 * 10_000)
    history.forget_old(10_000.0)
    assert (len(history), history.size_bytes) == (0, 0)
