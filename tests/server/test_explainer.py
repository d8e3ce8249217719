"""Verdicts of a running server: the books of every request add up, and stay what they were."""

import asyncio
import random
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anaphora.config import EVICTION_POLICIES, KVLayout
from anaphora.errors import RequestError, UnknownRequestError
from anaphora.explain.history import HistoryLimits
from anaphora.explain.records import Explanation
from anaphora.ids import RequestId
from anaphora.models.chat_template import ChatTemplate
from anaphora.request import Request, SamplingParams
from anaphora.server.explainer import Draft
from anaphora.server.prompt_records import BodyRenderer, served_body
from tests.explain.accuracy import compiled, explain_case
from tests.explain.corpus import cases
from tests.explain.corpus_words import Case
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
        and all(map(is_served, (*case.earlier, case.request)))
    ]


def is_served(body: dict[str, Any]) -> bool:
    """Whether a body is for an API of the server."""
    if {"input", "instructions", "system"} & body.keys():
        return False
    try:
        served_body(body)
    except RequestError:
        return False
    return True


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
        first, later = live_verdicts(case, compiled(case.template))
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
        edited = replace(
            case,
            request=with_unseen(case.request),
            earlier=[with_unseen(body) for body in case.earlier],
            template=SERVED_TEMPLATES[name],
        )
        try:
            expected = explain_case(edited, TOKENIZER)
        except RequestError:
            continue  # a template that shows no tools
        first, later = live_verdicts(edited, compiled(edited.template))
        assert noted(first) == noted(later)
        mine, theirs = noted(later, COMPARED), noted(expected, COMPARED)
        if "[text" in f"{later.old}{later.new}" or "]\n</think>" in f"{later.old}".replace("⏎", "\n"):
            for found in (mine, theirs):
                del found["old"], found["new"]  # such a text cannot be shown
        assert mine == theirs, f"{case.kind} {case.name}"
        num_compared += 1
    assert num_compared > 10


# One request after the other.

CHAT = ChatTemplate(templates.CHATML)
SMALL = KVLayout(4, 4, 400, 2)


def chat(*contents: str, **fields: Any) -> dict[str, Any]:
    roles = ("system", "user", "assistant")
    turns = [
        {"role": roles[min(number, 1 + (number + 1) % 2)], "content": text}
        for number, text in enumerate(contents)
    ]
    return {"messages": turns, **fields}


RULES = "Be kind to all who ask you something. It is {} now. Never lend anybody the key of the lighthouse, please."


def test_a_clock_is_named_with_both_values_and_what_its_move_would_give() -> None:
    with Desk(SMALL, CHAT) as desk:
        desk.ask("a", chat(RULES.format("14:02:31"), "Who are you?"))
        verdict = desk.ask("b", chat(RULES.format("14:02:58"), "Who are you?"))
        found = desk.explain("b")
        assert (found.cause, found.path, found.old, found.new) == (
            "volatile_value",
            "messages[0].content",
            "14:02:31",
            "14:02:58",
        )
        assert noted(verdict) == noted(found)
        assert (verdict.counterfactual, found.compared_with) == (None, "a")
        assert found.counterfactual is not None
        assert found.counterfactual.reused_tokens > found.reused_tokens
        note = desk.explainer.remembered("b", None).note
        assert note is not None and (note.old, note.new, note.advice) == (None, None, "")


def test_the_reply_of_the_earlier_request_is_part_of_what_is_compared() -> None:
    """A chat goes on: nothing is lost, and a reply that was edited is named."""
    with Desk(
        SMALL, CHAT, ByteTokenizer(), script={"a": [*b"I am the lighthouse keeper of this town.", 256]}
    ) as desk:
        asked = chat("Be kind.", "Who are you?")
        desk.ask("a", asked, SamplingParams(max_tokens=100, temperature=0.0))
        on = asked["messages"]
        reply = {"role": "assistant", "content": "I am the lighthouse keeper of this town."}
        more = {"role": "user", "content": "Since when?"}
        fine = desk.ask("b", {"messages": [*on, reply, more]})
        assert (fine.cause, fine.compared_with) == ("ok_partial", "a")
        assert desk.explain("b").cause == "ok_partial"
        edited = {"role": "assistant", "content": "I am the [truncated]"}
        told = desk.ask("c", {"messages": [*on, edited, more]})
        assert (told.cause, told.path) == ("history_edited", "messages[2].content")


@pytest.mark.parametrize(
    "on", [[], [{"role": "assistant", "content": "Nobody you know."}, {"role": "user", "content": "So?"}]]
)
def test_a_reply_that_nobody_sent_back_is_not_compared(on: list[dict[str, str]]) -> None:
    """The clock in the rules is all that changed; without it nothing would have."""
    with Desk(
        SMALL, CHAT, ByteTokenizer(), script={"a": [*b"I am the lighthouse keeper of this town.", 256]}
    ) as desk:
        desk.ask(
            "a",
            chat(RULES.format("14:02:31"), "Who are you?"),
            SamplingParams(max_tokens=100, temperature=0.0),
        )
        same, other = (
            chat(RULES.format("14:02:31"), "Who are you?"),
            chat(RULES.format("14:02:58"), "Who are you?"),
        )
        found = desk.ask("b", {"messages": [*other["messages"], *on]})
        assert (found.cause, found.also) == ("volatile_value", ())
        fine = desk.ask("c", {"messages": [*same["messages"], *on]})
        assert (fine.cause, fine.path, fine.token_index) == ("ok_partial", None, None)


def test_a_reply_that_comes_back_without_its_thoughts_is_compared() -> None:
    thought = "<think>Let me see, what was it?</think>I am the lighthouse keeper of this town."
    with Desk(SMALL, CHAT, ByteTokenizer(), script={"a": [*thought.encode(), 256]}) as desk:
        asked = chat("Be kind.", "Who are you?")
        desk.ask("a", asked, SamplingParams(max_tokens=100, temperature=0.0))
        reply = {"role": "assistant", "content": "I am the lighthouse keeper of this town."}
        more = {"role": "user", "content": "Since when?"}
        found = desk.ask("b", {"messages": [*asked["messages"], reply, more]})
        assert (found.path, found.compared_with) == ("messages[2].content", "a")
        assert found.uncached["behind_change"] > 30


def test_a_request_that_was_given_up_in_its_prefill_is_compared_in_full_and_counts_as_far_as_it_came() -> (
    None
):
    with Desk(SMALL, CHAT, ByteTokenizer(), threshold=40) as desk:
        body = chat(RULES.format("14:02:31"), "Who are you? " + "Tell me everything. " * 5)
        prompt = desk.read(body)
        desk.explainer.expect("a", Draft(source=body, spans=prompt.part_spans))
        desk.arrive("a", prompt.token_ids)
        desk.story.step()
        desk.story.step()
        desk.story.scheduler.abort(RequestId("a"), 3.0)
        verdict = desk.ask("b", chat(RULES.format("14:02:58"), "Who are you? " + "Tell me everything. " * 5))
        found = desk.explain("b")
        assert (found.cause, found.old, found.new) == ("volatile_value", "14:02:31", "14:02:58")
        assert "evicted" not in found.uncached
        assert noted(verdict) == noted(found)


def test_a_request_that_was_preempted_and_given_up_is_nobodys_relative() -> None:
    """Nothing of it was ever cached."""
    with Desk(KVLayout(2, 2, 9), tokenizer=ByteTokenizer(), reserve_full=False, max_model_len=16) as desk:
        for name in ("a", "b"):
            desk.arrive(name, list(name.encode()) * 5, some(9))
        while not any(request.num_preemptions for request in desk.story.requests.values()):
            desk.story.step()
        gone = next(one for one in desk.story.requests.values() if one.num_preemptions)
        desk.story.scheduler.abort(gone.request_id, 9.0)
        desk.story.run()
        desk.arrive("c", [99, 98, 97, 96])
        desk.story.run()
        assert desk.explain("c").compared_with != gone.request_id


def test_what_asked_for_every_position_is_named_by_the_field_that_was_sent() -> None:
    """Later, too."""
    with Desk(SMALL, CHAT) as desk:
        first = desk.ask("a", {"prompt": "one two three four five six", "echo": True, "logprobs": 1})
        assert (first.cause, first.path, first.uncached) == (
            "bypassed",
            "echo",
            {"bypassed": first.prompt_tokens},
        )
        assert noted(desk.explain("a")) == noted(first)


def test_a_comparison_that_is_asked_for_changes_the_words_and_no_books() -> None:
    with Desk(SMALL, CHAT) as desk:
        desk.ask("a", chat(RULES.format("14:02:31"), "Who are you?"))
        desk.ask("other", chat(RULES.format("09:00:00"), "Something else altogether, " * 3))
        desk.ask("b", chat(RULES.format("14:02:58"), "Who are you?"))
        usual, named = desk.explain("b"), desk.explain("b", against="other")
        assert (usual.compared_with, named.compared_with) == ("a", "other")
        assert usual.uncached == named.uncached
        with pytest.raises(UnknownRequestError):
            desk.explain("b", against="nobody")


def test_the_same_words_under_another_salt_are_named_even_when_own_blocks_are_lost_too() -> None:
    """What was lost by a reset is counted first, then what only the other namespace has; later as well."""
    with Desk(SMALL, CHAT) as desk:
        prompt = "one two three four five six seven eight nine ten"
        desk.ask("own", {"prompt": prompt[:22], "cache_salt": "mine"})
        desk.ask("theirs", {"prompt": prompt, "cache_salt": "other"})
        assert desk.story.scheduler.reset_prefix_cache()
        verdict = desk.ask("asked", {"prompt": prompt, "cache_salt": "mine"})
        assert verdict.cause == "namespace"
        assert {"evicted", "namespace"} <= set(verdict.uncached)
        assert noted(desk.explain("asked")) == noted(verdict)
        assert "other" not in verdict.advice


def test_when_what_it_rests_on_is_forgotten_a_verdict_keeps_its_numbers_and_shows_no_text() -> None:
    with Desk(SMALL, CHAT, limits=HistoryLimits(2, 1 << 20, 3600.0)) as desk:
        desk.ask("a", chat(RULES.format("14:02:31"), "Who are you?"))
        verdict = desk.ask("b", chat(RULES.format("14:02:58"), "Who are you?"))
        desk.ask("c", chat("Something else altogether.", "What?"))
        found = desk.explain("b")
        assert noted(found) == noted(verdict)
        assert (found.old, found.new, found.counterfactual) == (None, None, None)
        assert "no longer remembered" in found.advice


def test_a_memory_of_no_bytes_keeps_no_token_and_no_text() -> None:
    with Desk(SMALL, CHAT, limits=HistoryLimits(10, 0, 3600.0)) as desk:
        desk.ask("a", chat(RULES.format("14:02:31"), "Who are you?"))
        verdict = desk.ask("b", chat(RULES.format("14:02:58"), "Who are you?"))
        assert sum(verdict.uncached.values()) == verdict.prompt_tokens - verdict.reused_tokens
        assert noted(desk.explain("b")) == noted(verdict)
        (second, first) = desk.remembered()
        assert [(one.body, one.entry, one.spans, one.sketch) for one in (first, second)] == [
            (None, None, (), ())
        ] * 2


def test_requests_grow_too_old_and_then_look_unknown() -> None:
    with Desk(SMALL, CHAT) as desk:
        desk.ask("a", chat("Be kind.", "Who?"))
        desk.wall += 3601.0
        assert desk.remembered() == []
        messages = []
        for name in ("a", "nobody"):
            with pytest.raises(UnknownRequestError) as raised:
                desk.explain(name)
            messages.append(str(raised.value).replace(repr(name), "…"))
        assert messages[0] == messages[1]


def test_a_remembered_request_holds_no_text() -> None:
    """Wherever one looks."""
    with Desk(SMALL, CHAT) as desk:
        desk.ask(
            "a", chat("The password is swordfish.", "Tell it to nobody.", metadata={"hint": "a sea animal"})
        )
        (kept,) = desk.remembered()
        assert not [
            word for word in ("swordfish", "nobody", "animal", "hint", "password") if word in repr(kept)
        ]


def test_a_body_that_is_nested_deeply_is_explained_by_its_tokens() -> None:
    """As deep as the server takes it."""
    nested: dict[str, Any] = {}
    for _ in range(190):
        nested = {"properties": nested}
    tool = {"type": "function", "function": {"name": "deep", "parameters": {"type": "object", **nested}}}
    template = ChatTemplate(templates.WITH_TOOLS["qwen25"])
    with Desk(KVLayout(16, 16, 1000, 2), template, budget=5000) as desk:
        desk.ask("a", chat("Be kind.", "Who?", tools=[tool]))
        verdict = desk.ask("b", chat("Be rude.", "Who?", tools=[tool]))
        assert sum(verdict.uncached.values()) == verdict.prompt_tokens - verdict.reused_tokens
        assert noted(desk.explain("b")) == noted(verdict)
        assert desk.counted().num_explain_failures == 0


@pytest.mark.parametrize("depth", [100, 150, 300, 700])
def test_json_that_is_nested_deeply_in_a_text_is_a_text(depth: int) -> None:
    """Two texts of one JSON value: reading it at 600 levels took more stack than a thread has, and the verdict failed."""
    texts = [f"{space}{'[' * depth}1{space}{']' * depth} And now?" for space in ("", " ")]
    template = ChatTemplate(templates.WITH_TOOLS["qwen25"])
    with Desk(KVLayout(16, 16, 1000, 2), template, budget=5000) as desk:
        desk.ask("a", chat("Be kind.", "Say: " + texts[0]))
        verdict = desk.ask("b", chat("Be kind.", "Say: " + texts[1]))
        assert noted(desk.explain("b")) == noted(verdict)
        assert desk.counted().num_explain_failures == 0


# Waiting.


def test_an_answer_waits_for_its_verdict_only_so_long_and_may_ask_again() -> None:
    """The explainer's thread does not run."""
    desk = Desk(SMALL, CHAT, wait_s=0.01)
    desk.explainer.expect("a", Draft(source={}))

    async def ask() -> None:
        assert await desk.explainer.verdict("a") is None
        assert await desk.explainer.verdict("a") is None
        assert await desk.explainer.verdict("nobody") is None

    asyncio.run(ask())


def test_the_explainer_lets_the_step_begin_that_admitted_a_request_unless_it_is_behind() -> None:
    """Before it starts there are two notes of admissions; the engine has gone on since the first."""
    seen: list[int] = []
    was_let = threading.Event()

    def let_step_begin() -> None:
        seen.append(len(desk.history.latest(None, 10)))
        was_let.set()

    desk = Desk(SMALL, CHAT, let_step_begin=let_step_begin)
    for name in ("a", "b"):
        desk.arrive(name, desk.tokenizer.encode("hello there"), SamplingParams(max_tokens=5))
    desk.story.step()
    with desk:
        assert was_let.wait(30)
    assert seen == [1]


def test_who_stops_waiting_leaves_the_verdict_to_be_remembered() -> None:
    desk = Desk(SMALL, CHAT)
    desk.explainer.expect("a", Draft(source={"prompt": "hello there"}))

    async def leave() -> None:
        waiting = asyncio.ensure_future(desk.explainer.verdict("a"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        desk.explainer.dismiss("a")

    asyncio.run(leave())
    with desk:
        desk.arrive("a", desk.tokenizer.encode("hello there"))
        desk.story.run()
        assert [one.request_id for one in desk.remembered()] == ["a"]
        assert desk.counted().num_explain_failures == 0


def test_a_verdict_that_cannot_be_made_is_counted_and_nobody_waits_for_it() -> None:
    """The tokenizer does not know the tokens."""
    with Desk(SMALL, CHAT, wait_s=30.0) as desk:
        desk.explainer.expect("a", Draft(source={"prompt": "hello there"}))
        desk.arrive("a", [5000, 5001, 5002])
        desk.story.run()
        assert asyncio.run(desk.explainer.verdict("a")) is None
        assert desk.counted().num_explain_failures >= 1
        assert desk.ask("b", {"prompt": "still there"}).cause in {"never_seen", "too_short"}


def test_when_a_comparison_fails_the_books_are_kept_all_the_same() -> None:
    """The tokenizer does not know the tokens, so nothing can be read."""
    with Desk(SMALL, CHAT) as desk:
        for name in ("a", "b"):
            desk.arrive(name, [5000 + number for number in range(9)])
            desk.story.run()
        seen = desk.counted()
        assert seen.num_explain_failures >= 1
        missed = sum(seen.missed_tokens.values())
        assert missed == seen.prefix_cache_queries - seen.prefix_cache_hits == 9 + 9 - 4


# Reading bodies again.


@pytest.mark.parametrize("name", sorted(SERVED_TEMPLATES))
def test_a_served_body_is_rendered_again_as_the_server_rendered_it(name: str) -> None:
    """Whatever settings it names that the server does not hand to the template."""
    template = ChatTemplate(SERVED_TEMPLATES[name], special_tokens={"bos_token": "<s>", "eos_token": "</s>"})
    desk = Desk(SMALL, template, TOKENIZER)
    render = BodyRenderer(template, TOKENIZER)
    num_read = 0
    for case in served_cases(3, 7):
        if "messages" not in case.request:
            continue
        body = {**case.request, "tool_choice": "auto", "parallel_tool_calls": True, "enable_thinking": False}
        for source in (body, {**body, "add_generation_prompt": False}):
            try:
                prompt = desk.read(source)
            except RequestError:
                continue  # this template does not show tools, or refuses the roles
            assert list(render(served_body(source)).token_ids) == list(prompt.token_ids)
            num_read += 1
    assert num_read
