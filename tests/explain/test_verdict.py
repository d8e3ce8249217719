"""The headline, its order, its numbers and its words."""

from dataclasses import replace

import pytest

from anaphora.explain.endless_cache import EndlessCache, explain_after
from anaphora.explain.records import CacheFact, Explanation, HitLaw, Lookup, PromptRecord
from anaphora.explain.verdict import Case, explain, nearest_of
from tests.explain.support import LAW, RENDERER, STORY, chat, record

OLD = record("r-1", chat("Who is there?", system=f"It is 14:02:31. {STORY}"))
NEW = record("r-2", chat("Who is there?", "Nobody.", "Why?", system=f"It is 14:02:58. {STORY}"))


def ask(new: PromptRecord, *earlier: PromptRecord) -> Explanation:
    return explain_after(new, earlier, LAW, RENDERER)


def labelled(*labels: str, facts: dict[str, CacheFact] | None = None) -> Explanation:
    """The explanation of a prompt with a changed clock, where the cache gave these answers too."""
    return explain(
        Case(
            request=NEW,
            lookup=Lookup(0, labels),
            law=LAW,
            longest=OLD,
            render=RENDERER,
            facts=facts or {},
        )
    )


def test_the_object_has_the_shape_of_the_wire() -> None:
    """Every key, in every answer."""
    found = ask(NEW, OLD).as_json()
    assert list(found) == [
        "request_id", "prompt_tokens", "reused_tokens", "best_possible_reuse", "cause", "path", "char_offset",
        "token_index", "block_index", "old", "new", "tokens_lost", "advice", "counterfactual", "certainty", "also",
        "uncached", "compared_with",
    ]  # fmt: skip
    assert found["cause"] == "volatile_value"
    assert (found["old"], found["new"], found["path"]) == ("14:02:31", "14:02:58", "messages[0].content")
    assert found["compared_with"] == "r-1"
    assert list(ask(NEW).as_json()) == list(found)


def test_the_counterfactual_is_what_the_cache_then_really_does() -> None:
    """Both bodies are written the other way, by hand, and looked up."""
    fixed = ask(NEW, OLD).counterfactual
    assert fixed is not None
    moved_old = record("m-1", chat("Who is there?\n14:02:31", system=f"It is . {STORY}"))
    moved_new = record("m-2", chat("Who is there?", "Nobody.", "Why?\n14:02:58", system=f"It is . {STORY}"))
    cache = EndlessCache(LAW)
    cache.add(moved_old)
    assert fixed.reused_tokens == cache.lookup(moved_new).reused_tokens
    assert f"{fixed.reused_tokens:,}" in ask(NEW, OLD).advice


@pytest.mark.parametrize(
    ("labels", "cause"),
    [
        (("evicted", "namespace"), "namespace"),
        (("evicted", "in_flight"), "in_flight"),
        (("expired", "evicted"), "evicted"),
        (("other_replica", "expired"), "expired"),
        (("tier_declined:deadline", "other_replica"), "other_replica"),
        (("tier_declined:deadline", "tier_refused:version"), "tier_refused"),
    ],
)
def test_what_the_cache_tells_wins_over_the_text_in_a_fixed_order(
    labels: tuple[str, ...], cause: str
) -> None:
    """The clock goes under `also`."""
    found = labelled(*labels)
    assert found.cause == cause
    assert "volatile_value" in found.also
    assert found.tokens_lost == 16


def test_a_fact_of_the_cache_speaks_for_itself() -> None:
    """Its sentence, its path and its certainty."""
    fact = CacheFact("Evicted 41 s earlier to make room for r-88.", certainty="inferred", path="x")
    found = labelled("evicted", "stranded", facts={"evicted": fact})
    assert (found.advice, found.certainty, found.path) == (fact.advice, "inferred", "x")
    assert found.tokens_lost == 32


def test_a_salt_is_said_to_differ_and_never_shown() -> None:
    """It is a secret of the caller."""
    one, two = (
        record(f"s-{len(salt)}", chat("Hello there.", cache_salt=salt)) for salt in ("sesame", "mustard")
    )
    found = ask(two, one)
    assert (found.cause, found.path) == ("namespace", "cache_salt")
    assert "sesame" not in str(found) and "mustard" not in str(found) and "sesame" not in repr(one.namespace)


def test_the_same_words_for_another_model_name_both() -> None:
    """Models may be named."""
    one, two = (record(f"m-{name}", chat("Hello there.", model=name)) for name in ("base", "tuned"))
    assert "`base` against `tuned`" in ask(two, one).advice


def test_a_horizon_makes_never_seen_a_guess() -> None:
    """Books that have forgotten something cannot know."""
    case = {"request": OLD, "lookup": Lookup(0), "law": LAW}
    known = explain(Case(**case))  # type: ignore[arg-type]
    guessed = explain(Case(**case, is_horizon_whole=False))  # type: ignore[arg-type]
    assert (known.cause, known.certainty, known.compared_with) == ("never_seen", "known", None)
    assert guessed.certainty == "inferred" and "within what is remembered" in guessed.advice


def test_a_short_prompt_is_too_short_whatever_it_says() -> None:
    """The law comes before the text."""
    found = ask(record("b", {"prompt": "It is 12:02."}), record("a", {"prompt": "It is 12:01."}))
    assert (found.cause, found.best_possible_reuse) == ("too_short", 0)


def test_a_clock_within_the_first_block_is_a_clock() -> None:
    """Not a match that is too short."""
    found = ask(NEW, OLD)
    assert found.reused_tokens == 0
    assert found.cause == "volatile_value"


def test_of_two_that_match_as_far_the_likelier_is_compared() -> None:
    """A stranger that begins alike does not hide the relative."""
    stranger = record("x", chat("Sing!", system="It is a parrot that you are, and parrots sing."))
    assert nearest_of(NEW, [OLD, stranger], LAW) is OLD
    assert ask(NEW, OLD, stranger).cause == "volatile_value"


def test_a_baseline_that_was_named_never_changes_the_sums() -> None:
    """They are kept by the longest match."""
    other = record(
        "o", chat("Something else.", system="Sing of the sea, and of nothing else, in long lines.")
    )
    case = {"request": NEW, "lookup": Lookup(0), "law": LAW, "longest": OLD, "render": RENDERER}
    own, named = explain(Case(**case)), explain(Case(**case, nearest=other))  # type: ignore[arg-type]
    assert own.uncached == named.uncached
    assert own.cause != named.cause


def test_a_conversation_that_goes_on_loses_nothing() -> None:
    """Only the law and what is new."""
    old = record("a", chat("Who is there?"))
    new = record("b", chat("Who is there?", "Nobody at all, my friend.", "Why?"))
    found = ask(new, old)
    assert (found.cause, found.path, found.token_index) == ("ok_partial", None, None)
    assert set(found.uncached) <= {"block_floor", "new"}


def test_snippets_are_trimmed() -> None:
    """A prompt is not repeated in its explanation."""
    old = record("a", chat("Hi.", system=f"{STORY} " + "First some long words. " * 30))
    new = record("b", chat("Hi.", system=f"{STORY} " + "Then other, longer words. " * 30))
    found = ask(new, old)
    assert len(found.old or "") <= 120 and len(found.new or "") <= 120


def test_a_named_stranger_is_called_one_and_the_request_is_not_called_new() -> None:
    """Where the caller chose what to compare with, nothing is said of what was seen before."""
    stranger = record("r-0", chat("Entirely other words, about bread and its baking.", system="Bake."))
    found = explain(
        Case(request=NEW, lookup=Lookup(0), law=LAW, longest=OLD, nearest=stranger, is_named=True)
    )
    assert (found.cause, found.compared_with, found.certainty) == ("never_seen", "r-0", "known")
    assert "share no whole part" in found.advice and "First time" not in found.advice


def test_a_switch_of_the_server_is_not_said_to_be_asked_for() -> None:
    """And with caching off no block is written."""
    switched_off = replace(OLD, bypassed_by="--no-enable-prefix-caching")
    found = explain(Case(request=switched_off, lookup=Lookup(0), law=LAW))
    assert (found.cause, found.path) == ("bypassed", None)
    assert "started with --no-enable-prefix-caching" in found.advice and "asked for" not in found.advice


def test_what_was_partly_reused_has_been_seen_though_nobody_remembers_by_whom() -> None:
    found = explain(Case(request=OLD, lookup=Lookup(16), law=LAW))
    assert (found.cause, found.certainty) == ("ok_partial", "inferred")
    assert "maximum" not in found.advice and "16 reused tokens" in found.advice


def test_the_sum_of_the_largest_hit_is_right_also_with_a_block_given_back() -> None:
    """97 tokens leave one for a prefill of at least two."""
    law = HitLaw(16, min_prefill_tokens=2)
    for num_tokens, words in ((97, "floor((97-1)/16)*16-16 = 80"), (98, "floor((98-1)/16)*16 = 96")):
        prompt = record("a", {"prompt": list(range(num_tokens))})
        longer = record("b", {"prompt": [*range(law.best_possible(num_tokens)), 0]})
        case = Case(request=prompt, lookup=Lookup(law.best_possible(num_tokens)), law=law, longest=longer)
        assert words in explain(case).advice


@pytest.mark.parametrize("words", ["You talk with {}.", "You are speaking to {}.", "You chat with {}."])
def test_who_is_talked_with_is_a_user(words: str) -> None:
    old, new = (
        chat("Who is there?", system=f"{words.format(name)} {STORY}")
        for name in ("Ines Abel", "Hugo Petrenko")
    )
    assert ask(record("b", new), record("a", old)).cause == "user_in_system"
