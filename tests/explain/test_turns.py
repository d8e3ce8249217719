"""The memory of recent requests: who may go on from which conversation."""

import pytest

from anaphora.cache.chain import pack_tokens
from anaphora.explain.history import MAX_REST, EarlierTurn, History, HistoryLimits, Remembered, Scope
from anaphora.explain.records import PartSpan
from anaphora.explain.watch import Admitted
from anaphora.ids import RequestId

MINE = Scope(b"mine", None)
SPANS = (PartSpan("messages[0]", 0, 3, 0, 3),)
PROMPT = [1, 2, 3]


def add(
    history: History, name: str, scope: Scope = MINE, turn: bytes | None = b"turn", time: float = 0.0
) -> Remembered:
    """Remember a request of three tokens."""
    admitted = Admitted(
        request_id=RequestId(name),
        tenant_salt=scope.tenant_salt,
        cache_salt=scope.cache_salt,
        time=time,
        token_ids=PROMPT,
        num_prompt_tokens=3,
        cached_tokens=0,
    )
    request = history.new(admitted, time)
    request.turn, request.spans = turn, SPANS
    history.add(request, pack_tokens(PROMPT))
    return request


def make(max_requests: int = 10, max_bytes: int = 10**6) -> History:
    return History(HistoryLimits(max_requests, max_bytes, 100.0))


def test_a_conversation_is_found_with_its_whole_reply_once_it_has_ended() -> None:
    """Also the last token of the reply, for which there is no K/V."""
    history = make()
    request = add(history, "a")
    assert history.turns(MINE, b"turn", 4) == []
    history.end(request, [1, 2, 3, 7, 8, 9], num_computed_tokens=5)
    assert history.turns(MINE, b"turn", 4) == [EarlierTurn((1, 2, 3, 7, 8, 9), 3, SPANS)]
    assert history.turns(MINE, b"other", 4) == []


def test_a_reply_of_one_token_is_kept_though_nothing_of_it_was_computed() -> None:
    history = make()
    history.end(add(history, "a"), [1, 2, 3, 7], num_computed_tokens=3)
    assert history.turns(MINE, b"turn", 4)[0].token_ids == (1, 2, 3, 7)


@pytest.mark.parametrize("num_computed", [0, 2])
def test_a_prompt_that_was_never_computed_has_no_reply(num_computed: int) -> None:
    history = make()
    history.end(add(history, "a"), PROMPT, num_computed_tokens=num_computed)
    assert history.turns(MINE, b"turn", 4) == []


def test_many_outputs_without_kv_are_not_kept() -> None:
    """As when a request is aborted after it lost its pages: memory for tokens is bounded."""
    history = make()
    history.end(add(history, "a"), [*PROMPT, *range(MAX_REST + 1)], num_computed_tokens=3)
    assert history.turns(MINE, b"turn", 4) == []


def test_of_one_conversation_the_latest_comes_first() -> None:
    history = make()
    for reply, name in enumerate("abc", 7):
        history.end(add(history, name), [*PROMPT, reply], num_computed_tokens=3)
    assert [turn.token_ids[-1] for turn in history.turns(MINE, b"turn", 2)] == [9, 8]
    assert history.turns(MINE, b"turn", 0) == []


@pytest.mark.parametrize("scope", [Scope(b"theirs", None), Scope(None, None), Scope(b"mine", "salt")])
def test_nobody_goes_on_from_what_another_said(scope: Scope) -> None:
    """Another tenant, nobody in particular, or the same tenant for another of its users."""
    history = make()
    history.end(add(history, "a"), [*PROMPT, 7], num_computed_tokens=3)
    history.end(add(history, "b", scope, turn=b"another"), [*PROMPT, 8], num_computed_tokens=3)
    assert history.turns(scope, b"turn", 4) == []
    assert history.turns(MINE, b"another", 4) == []


def test_conversations_are_forgotten_with_their_requests() -> None:
    """By number, by age, and to the last byte."""
    history = make(max_requests=2)
    for reply, name in enumerate("abc", 7):
        history.end(add(history, name, time=float(reply)), [*PROMPT, reply], num_computed_tokens=3)
    assert [turn.token_ids[-1] for turn in history.turns(MINE, b"turn", 4)] == [9, 8]
    history.forget_old(108.5)
    assert [turn.token_ids[-1] for turn in history.turns(MINE, b"turn", 4)] == [9]
    history.forget_old(200.0)
    assert history.turns(MINE, b"turn", 4) == []
    assert history.size_bytes == 0


def test_without_memory_for_tokens_no_conversation_is_found() -> None:
    history = make(max_bytes=0)
    history.end(add(history, "a"), [*PROMPT, 7], num_computed_tokens=3)
    assert history.turns(MINE, b"turn", 4) == []
