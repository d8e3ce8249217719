"""Verdicts of a running server: the books of every request add up, and stay what they were."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anaphora.config import EVICTION_POLICIES, KVLayout
from anaphora.errors import RequestError, UnknownRequestError
from anaphora.explain.history import HistoryLimits
from anaphora.explain.records import Explanation
from anaphora.models.chat_template import ChatTemplate
from anaphora.request import Request, SamplingParams
from anaphora.server.explainer import Draft
from tests.explain.accuracy import _compiled, explain_case
from tests.explain.corpus import Case, cases
from tests.explain.word_tokenizer import WordTokenizer
from tests.fakes import ByteTokenizer
from tests.models import templates
from tests.server.desk import LIMITS, Desk

NOTED = (
    "cause",
    "path",
    "char_offset",
    "token_index",
    "block_index",
    "reused_tokens",
    "prompt_tokens",
    "best_possible_reuse",
    "tokens_lost",
    "certainty",
    "also",
    "uncached",
    "compared_with",
)
"""What a verdict says besides texts."""

COMPARED = (
    "cause",
    "path",
    "old",
    "new",
    "char_offset",
    "token_index",
    "uncached",
    "tokens_lost",
    "also",
    "certainty",
)
"""What must be equal to what is said of the same bodies without a server."""

ME, YOU = b"me", b"you"


def noted(found: Explanation, names: tuple[str, ...] = NOTED) -> dict[str, Any]:
    return {name: getattr(found, name) for name in names}


def some(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0.0)


# The books.


class Traffic:
    """Random requests from a few stems, some of whom leave."""

    def __init__(self, desk: Desk, seed: int) -> None:
        self.desk, self.rng = desk, random.Random(seed)
        self.live: list[Request] = []
        self.asked: dict[str, bytes | None] = {}
        self.replies: list[list[int]] = []

    def tokens(self) -> list[int]:
        """Return a prompt: a stem, perhaps changed in the middle, or one with its reply."""
        rng = self.rng
        if self.replies and rng.random() < 0.3:
            return [*rng.choice(self.replies), *rng.choices(range(97, 100), k=3)][:28]
        stem = [97 + rng.randrange(3)] * rng.randint(1, 10) + [110, 111, 112, 113] * rng.randint(0, 3)
        if rng.random() < 0.4:
            stem[rng.randrange(len(stem))] = 120
        return [*stem, *rng.choices(range(97, 100), k=rng.randint(0, 3))]

    def arrive(self, name: str) -> None:
        """Let one come, as text, or as token ids, or without the server knowing it."""
        rng, tokens = self.rng, self.tokens()
        tenant, salt = rng.choice([None, ME, YOU]), rng.choice([None, None, "salt"])
        source: dict[str, Any] = {"max_tokens": 1}
        kind = rng.randrange(3)
        if kind == 0:
            source["prompt"] = ByteTokenizer().decode(tokens, skip_special_tokens=False)
        if kind < 2:
            self.desk.explainer.expect(name, Draft(source=source))
        scored = rng.random() < 0.1
        params = SamplingParams(
            max_tokens=rng.randint(0, 6), temperature=0.0, prompt_logprobs=0 if scored else None
        )
        self.live += self.desk.story.add_n(
            rng.choice([1, 1, 1, 2]) if params.max_tokens else 1,
            name,
            tokens,
            params,
            tenant_salt=tenant,
            cache_salt=salt,
            skip_reading_cache=scored,
        )
        self.asked[name] = tenant

    def step(self) -> None:
        """Step a little; some leave, some come to their end."""
        for _ in range(self.rng.randint(0, 4)):
            self.desk.story.step()
        for request in [one for one in self.live if one.is_finished]:
            self.live.remove(request)
            self.replies.append(list(request.token_ids))
        if self.live and self.rng.random() < 0.2:
            gone = self.live.pop(self.rng.randrange(len(self.live)))
            self.desk.story.scheduler.abort(gone.request_id, self.desk.story.clock.now())

    def run(self, num_requests: int) -> None:
        for number in range(num_requests):
            self.arrive(f"r{number}.")
            self.step()
        self.desk.story.run()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([(2, 2, 1), (2, 2, 2), (4, 4, 2), (2, 4, 2), (2, 8, 2)]),
    num_pages=st.integers(12, 24),
    caching=st.sampled_from([True, True, True, False]),
    exact_reuse=st.booleans(),
    eviction=st.sampled_from(EVICTION_POLICIES),
    coalesce_ms=st.sampled_from([0, 2000]),
    partial=st.sampled_from([0, 1]),
    can_copy=st.booleans(),
    limits=st.sampled_from([LIMITS, HistoryLimits(4, 1 << 20, 3600.0), HistoryLimits(100, 0, 3600.0)]),
    num_ghosts=st.sampled_from([0, 3, 1000]),
)
def test_the_causes_of_every_request_add_up_and_stay_what_they_were(
    seed: int, shape: tuple[int, int, int], num_pages: int, can_copy: bool, partial: int, **options: Any
) -> None:
    """Whatever comes, leaves, is evicted, preempted, waited for or forgotten."""
    block, page, least = shape
    layout = KVLayout(block, page, max(num_pages, 40 // page + 2), least, can_copy)
    with Desk(
        layout,
        tokenizer=ByteTokenizer(),
        budget=16,
        threshold=5,
        max_model_len=38,
        reserve_full=False,
        kernels_differ=options["exact_reuse"],
        partial_block_reuse=partial if can_copy else 0,
        **options,
    ) as desk:
        traffic = Traffic(desk, seed)
        traffic.run(25)
        seen = desk.counted()
        assert seen.num_explain_failures == 0
        missed = sum(count for (cause, _), count in seen.missed_tokens.items() if cause != "bypassed")
        assert missed == seen.prefix_cache_queries - seen.prefix_cache_hits
        judge_all(desk, traffic)


def judge_all(desk: Desk, traffic: Traffic) -> None:
    requests = desk.story.requests
    for name, tenant in traffic.asked.items():
        for other in {None, ME, YOU} - {tenant}:
            with pytest.raises(UnknownRequestError):
                desk.explain(name, other)
        if desk.history.get(name, tenant) is None:
            continue  # it left before it was admitted, or is forgotten
        note = desk.explainer.remembered(name, tenant).note
        found = desk.explain(name, tenant)
        assert note is not None
        assert noted(found) == noted(note), f"{name}: {found} is not what was noted"
        assert sum(found.uncached.values()) == found.prompt_tokens - found.reused_tokens
        assert found.prompt_tokens == requests[name].num_prompt_tokens
        assert found.reused_tokens == (requests[name].num_cached_tokens or 0)
        assert found.compared_with is None or requests[found.compared_with].tenant_salt == tenant


# The same as without a server.

TOKENIZER = WordTokenizer()
LAYOUT = KVLayout(16, 16, 2000, 2)
SERVED_TEMPLATES = {**templates.ALL, **templates.WITH_TOOLS}


def served_cases(seed: int, every: int) -> list[Case]:
    """Cases of the corpus whose bodies the server takes, of each kind every n-th."""
    left_out = {"settings", "marker", "namespace"}
    found = [case for case in cases(TOKENIZER.encode, seed) if case.kind not in left_out]
    return [
        case
        for case in found[::every]
        if not any(
            "reasoning_effort" in body or "response_format" in body for body in (*case.earlier, case.request)
        )
        and not any("tool_call_id" not in m for m in case.request.get("messages", ()) if m["role"] == "tool")
    ]


def live_verdicts(case: Case, template: ChatTemplate) -> tuple[Explanation, Explanation]:
    """Return what the answer carries, and what is said when asked later."""
    with Desk(LAYOUT, template, TOKENIZER, budget=20_000) as desk:
        for number, body in enumerate(case.earlier):
            desk.ask(f"earlier-{number}", body)
        first = desk.ask("request", case.request)
        later = desk.explain("request")
        assert desk.counted().num_explain_failures == 0
    return first, later


def test_a_server_says_of_a_case_what_is_said_without_one() -> None:
    """Of the corpus, every fifth case."""
    for case in served_cases(0, 5):
        first, later = live_verdicts(case, _compiled(case.template))
        expected = explain_case(case, TOKENIZER)
        assert noted(later, COMPARED) == noted(expected, COMPARED), f"{case.kind} {case.name}"
        assert later.counterfactual == expected.counterfactual, f"{case.kind} {case.name}"
        assert noted(first) == noted(later), f"{case.kind} {case.name}"


def with_unseen(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with texts that most templates do not show."""
    turns = [dict(message) for message in body["messages"]]
    for number, turn in enumerate(turns):
        if turn["role"] == "user":
            turn["name"] = "alice"
        if turn["role"] == "assistant" and isinstance(turn["content"], str):
            turn["content"] = f"<think>\nLet me see about number {number}.\n</think>\n\n{turn['content']}"
    return {**body, "messages": turns, "metadata": {"trace": "abc-def"}}


@pytest.mark.parametrize("name", ["qwen3", "llama31", "qwen3_coder"])
def test_texts_that_a_prompt_does_not_show_change_nothing_of_that(name: str) -> None:
    """Names of users, thoughts that were cut off, and descriptions."""
    num_compared = 0
    for case in served_cases(2, 9):
        if "prompt" in case.request:
            continue
        case = replace(
            case,
            request=with_unseen(case.request),
            earlier=[with_unseen(body) for body in case.earlier],
            template=SERVED_TEMPLATES[name],
        )
        try:
            expected = explain_case(case, TOKENIZER)
        except RequestError:
            continue  # a template that shows no tools
        first, later = live_verdicts(case, _compiled(case.template))
        assert noted(first) == noted(later)
        mine, theirs = noted(later, COMPARED), noted(expected, COMPARED)
        if "[text" in f"{later.old}{later.new}" or "]\n</think>" in f"{later.old}".replace("⏎", "\n"):
            for found in (mine, theirs):
                del found["old"], found["new"]  # such a text cannot be shown
        assert mine == theirs, f"{case.kind} {case.name}"
        num_compared += 1
    assert num_compared > 10
