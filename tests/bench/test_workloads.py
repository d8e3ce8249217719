"""Prompts of exact lengths that have nothing in common but what they shall."""

import itertools

import pytest

from anaphora.bench.measurement import Prompt
from anaphora.bench.tokens import num_shared
from anaphora.bench.workloads import Pair, PromptMaker, common_words
from anaphora.errors import TargetError
from tests.bench.fakes import FakeServer, run, session


def _maker(server: FakeServer, seed: int = 1) -> PromptMaker:
    async def go() -> PromptMaker:
        return (await session(server, seed=seed)).prompts

    return run(go())


def _fresh(server: FakeServer, num_tokens: int, seed: int = 1) -> Prompt:
    async def go() -> Prompt:
        return await (await session(server, seed=seed)).prompts.fresh(num_tokens)

    return run(go())


class Splitting(FakeServer):
    """A server to which some words are two tokens, and which begins every prompt with a mark."""

    def ids_of(self, body: dict[str, object]) -> list[int]:
        words = str(body["prompt"]).replace("animal", "ani mal").replace("young", "you ng")
        return super().ids_of({"prompt": f"<s> {words}"})


@pytest.mark.parametrize("num_tokens", [2, 17, 100, 1500])
@pytest.mark.parametrize(
    "server", [FakeServer(), FakeServer(apis=("chat",)), Splitting(), FakeServer(tokenize="llama.cpp")]
)
def test_a_prompt_has_exactly_the_length_that_was_asked(server: FakeServer, num_tokens: int) -> None:
    """Whatever the server puts around it."""
    if num_tokens == 2 and "completions" not in server.apis:
        return  # the template alone has two tokens
    prompt = _fresh(server, num_tokens)
    assert (prompt.num_tokens, prompt.is_exact) == (num_tokens, True)


def test_words_that_are_several_tokens_are_left_out() -> None:
    """So that a number of words is a number of tokens."""
    maker = _maker(Splitting())
    assert maker.head_tokens == 1
    assert set(common_words()) - set(maker.words(20_000)) == {"animal", "young"}


def test_no_two_prompts_share_their_first_block() -> None:
    """Fifty of one seed, and the first of other seeds."""
    maker = _maker(FakeServer())
    heads = {tuple(maker.words(16)) for _ in range(50)}
    heads |= {tuple(_fresh(FakeServer(), 20, seed=seed).text.split()[:16]) for seed in range(10, 15)}
    assert len(heads) == 55


def test_one_seed_gives_one_series() -> None:
    """Otherwise a run could not be repeated."""
    assert _fresh(FakeServer(), 30, seed=4) == _fresh(FakeServer(), 30, seed=4)
    assert _fresh(FakeServer(), 30, seed=4) != _fresh(FakeServer(), 30, seed=5)


@pytest.mark.parametrize(
    ("server", "least"), [(FakeServer(), 0), (Splitting(), 1), (FakeServer(tokenize=None), 0)]
)
def test_a_pair_shares_exactly_so_many_tokens(server: FakeServer, least: int) -> None:
    """But never fewer than the mark that every prompt begins with."""

    async def go() -> list[Pair]:
        maker = (await session(server)).prompts
        return [await maker.pair(shared, 60) for shared in (0, 1, 15, 16, 17, 40)]

    pairs = run(go())
    assert [pair.shared for pair in pairs] == [least, 1, 15, 16, 17, 40]
    for pair in pairs:
        ids = [server.ids_of({"prompt": prompt.text}) for prompt in (pair.first, pair.second)]
        assert (num_shared(*ids), len(ids[0]), len(ids[1])) == (pair.shared, 60, 60)


def test_estimates_are_marked() -> None:
    """A server without /tokenize."""
    prompt = _fresh(FakeServer(tokenize=None), 20)
    assert (prompt.num_tokens, prompt.is_exact, len(prompt.text.split())) == (20, False, 20)


def test_a_tokenizer_that_begins_to_fail_is_told() -> None:
    """With its status."""

    async def go() -> None:
        server = FakeServer()
        found = await session(server)
        server.tokenize = None
        await found.prompts.fresh(10)

    with pytest.raises(TargetError, match="/tokenize answers with status 404"):
        run(go())


def test_fixed_words_belong_to_a_name() -> None:
    """The same for the same name and seed, whatever was drawn in between."""
    maker = _maker(FakeServer())
    first = maker.fixed_words("block:7", 40)
    maker.words(5)
    assert maker.fixed_words("block:7", 40) == first
    names = [maker.fixed_words(f"block:{number}", 40) for number in range(20)]
    assert all(a != b for a, b in itertools.combinations(names, 2))


@pytest.mark.parametrize("tokens", ["[1]", "[]"])
def test_a_tokenizer_that_does_not_count_is_not_believed(tokens: str) -> None:
    """It answers the same for any text; lengths are then estimates, and say so."""

    async def go() -> tuple[int, str]:
        server = FakeServer()
        server.pages["/tokenize"] = ("application/json", f'{{"tokens": {tokens}}}')
        found = await session(server)
        prompt = await found.prompts.fresh(20)
        return len(prompt.text.split()), found.prompts.counter.source

    words, source = run(go())
    assert (words, source.split(",")[0]) == (20, "estimated at one token per word")
