"""Law 1 at its root: whatever the chunks, the neighbours and the pages, the logits are the same bits."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from anaphora.ids import PageId, RequestId
from anaphora.sampling.host import token_logprobs
from anaphora.scheduler.plan import PageCopy
from tests.runner.openvino.stepping import PAGE_SIZE, Chunk, Logits, Pages, Stepper

pytestmark = pytest.mark.model

VOCAB_SIZE = 49_152


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(2)


@pytest.fixture
def pages(rng: np.random.Generator) -> Pages:
    return Pages(512, rng)


def random_tokens(rng: np.random.Generator, num: int) -> list[int]:
    return [int(token_id) for token_id in rng.integers(0, VOCAB_SIZE, num)]


def random_cuts(rng: np.random.Generator, num_tokens: int) -> list[int]:
    """Where to cut a sequence, so that no chunk has fewer than two tokens."""
    cuts = [0]
    while num_tokens - cuts[-1] >= 4:
        cuts.append(cuts[-1] + int(rng.integers(2, max(3, min(200, num_tokens - cuts[-1] - 1)))))
    return cuts[1:]


def test_a_prompt_in_chunks_gives_the_logits_of_one_pass(
    stepper: Stepper, rng: np.random.Generator, pages: Pages
) -> None:
    for num_tokens in (2, 3, 31, 32, 33, 64, 129, 700):
        token_ids = random_tokens(rng, num_tokens)
        cold = stepper.prefill(token_ids, pages.take(num_tokens))
        chunked = stepper.prefill(token_ids, pages.take(num_tokens), cuts=random_cuts(rng, num_tokens))
        assert_array_equal(chunked, cold)


@pytest.mark.parametrize("num_tokens", [2, 3, 8, 31, 32, 33, 65, 129, 256])
def test_logits_of_all_rows_are_those_of_the_last_row_alone(
    stepper: Stepper, rng: np.random.Generator, pages: Pages, num_tokens: int
) -> None:
    """The product that makes the logits has as many rows as are asked for, and every row the same bits."""
    token_ids, table = random_tokens(rng, num_tokens), pages.take(num_tokens)
    last = stepper.prefill(token_ids, table)
    result = stepper.result(Chunk(token_ids, 0, num_tokens, table, num_prompt_logprobs=3))
    assert_array_equal(stepper.seen[0], last)
    found = result.prompt_logprobs[RequestId("0")]
    for end in range(2, num_tokens, max(1, num_tokens // 7)):
        row = stepper.prefill(token_ids[:end], table)
        assert found[end - 1] == token_logprobs(row, token_ids[end], 3)


@pytest.mark.parametrize("num_cached", [16, 32, 48, 96, 97, 118])
def test_cached_tokens_give_the_logits_of_a_cold_prompt(
    stepper: Stepper, rng: np.random.Generator, pages: Pages, num_cached: int
) -> None:
    token_ids = random_tokens(rng, 120)
    cold = stepper.prefill(token_ids, pages.take(120))
    table = pages.take(120)
    stepper.prefill(token_ids[:num_cached], table)
    assert_array_equal(stepper.prefill(token_ids, table, start=num_cached), cold)


def test_the_first_tokens_of_a_copied_page_give_the_logits_of_a_cold_prompt(
    stepper: Stepper, rng: np.random.Generator, pages: Pages
) -> None:
    prefix, other = random_tokens(rng, 80), random_tokens(rng, 40)
    first = pages.take(120)
    stepper.prefill(prefix + random_tokens(rng, 40), first)  # 80 = two whole pages and 16 tokens of the third
    cold = stepper.prefill(prefix + other, pages.take(120))
    forked = [*first[:2], *pages.take(2 * PAGE_SIZE)]
    copies = [PageCopy(PageId(first[2]), PageId(forked[2]), 16)]
    warm = stepper.step(Chunk(prefix + other, 80, 120, forked), copies=copies)[0]
    assert_array_equal(warm, cold)


def test_pages_read_and_written_elsewhere_give_the_logits_of_a_cold_prompt(
    stepper: Stepper, rng: np.random.Generator, pages: Pages
) -> None:
    token_ids = random_tokens(rng, 100)
    first, second = pages.take(100), pages.take(100)
    cold = stepper.prefill(token_ids, first)
    for source, target in zip(first[:3], second[:3], strict=True):
        data = stepper.runner.read_page(PageId(source))
        stepper.runner.write_page(PageId(target), data)
        assert stepper.runner.read_page(PageId(target)) == data
    assert_array_equal(stepper.prefill(token_ids, second, start=96), cold)


def test_neighbours_do_not_change_a_prefill(stepper: Stepper, rng: np.random.Generator, pages: Pages) -> None:
    prompts = [random_tokens(rng, num) for num in (150, 2, 33, 400)]
    alone = [stepper.prefill(prompt, pages.take(len(prompt))) for prompt in prompts]
    together = stepper.step(*(Chunk(prompt, 0, len(prompt), pages.take(len(prompt))) for prompt in prompts))
    assert_array_equal(together, alone)


def test_a_decode_is_the_same_alone_among_decodes_and_beside_a_prefill(
    stepper: Stepper, rng: np.random.Generator, pages: Pages
) -> None:
    """One row alone took another path through the attention kernel, for some contexts only."""
    sequences = [random_tokens(rng, num) for num in (700, 65, 33, 320, 5, 97, 190, 64, 31)]
    tables = [pages.take(len(tokens)) for tokens in sequences]
    for tokens, table in zip(sequences, tables, strict=True):
        stepper.prefill(tokens[:-1], table)
    decodes = [
        Chunk(tokens, len(tokens) - 1, len(tokens), table)
        for tokens, table in zip(sequences, tables, strict=True)
    ]
    alone = np.array([stepper.step(decode)[0] for decode in decodes])
    assert_array_equal(stepper.step(*decodes), alone)
    for num in (2, 3, 5):
        assert_array_equal(stepper.step(*decodes[:num]), alone[:num])
    prompt = random_tokens(rng, 70)
    beside = stepper.step(*decodes, Chunk(prompt, 0, 70, pages.take(70)))
    assert_array_equal(beside[:-1], alone)
    assert_array_equal(beside[-1], stepper.prefill(prompt, pages.take(70)))


def test_a_conversation_is_the_same_whatever_runs_beside_it(
    stepper: Stepper, rng: np.random.Generator, pages: Pages
) -> None:
    """Six sequences, prefilled and decoded alone, then in random batches with random chunks."""
    prompts = [random_tokens(rng, int(num)) for num in rng.integers(2, 300, 6)]
    num_outputs = 4
    alone = [generate_alone(stepper, prompt, pages.take(len(prompt) + 4), num_outputs) for prompt in prompts]
    together = generate_together(stepper, rng, prompts, pages, num_outputs)
    for one, other in zip(alone, together, strict=True):
        assert_array_equal(np.array(other), np.array(one))


def generate_alone(stepper: Stepper, prompt: list[int], table: list[int], num_outputs: int) -> list[Logits]:
    logits = [stepper.prefill(prompt, table)]
    tokens = list(prompt)
    while len(logits) < num_outputs:
        tokens.append(int(logits[-1].argmax()))
        logits.append(stepper.step(Chunk(tokens, len(tokens) - 1, len(tokens), table))[0])
    return logits


def generate_together(
    stepper: Stepper, rng: np.random.Generator, prompts: list[list[int]], pages: Pages, num_outputs: int
) -> list[list[Logits]]:
    """Step random subsets: decodes, and chunks of at least two tokens that leave no single one."""
    tokens = [list(prompt) for prompt in prompts]
    tables = [pages.take(len(prompt) + num_outputs) for prompt in prompts]
    done = [0] * len(prompts)
    logits: list[list[Logits]] = [[] for _ in prompts]
    while active := [i for i in range(len(prompts)) if len(logits[i]) < num_outputs]:
        chosen = [i for i in active if rng.random() < 0.6] or active[:1]
        ends = {i: next_end(rng, done[i], len(tokens[i])) for i in chosen}
        chunks = [
            Chunk(tokens[i], done[i], ends[i], tables[i], num_samples=ends[i] == len(tokens[i]))
            for i in chosen
        ]
        rows = iter(stepper.step(*chunks))
        for i in chosen:
            done[i] = ends[i]
            if done[i] == len(tokens[i]):
                logits[i].append(next(rows))
                tokens[i].append(int(logits[i][-1].argmax()))
    return logits


def next_end(rng: np.random.Generator, done: int, total: int) -> int:
    left = total - done
    if left < 4 or rng.random() < 0.2:
        return total
    return done + int(rng.integers(2, left - 1))
