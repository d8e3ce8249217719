"""Log probabilities on the wire: whole and streamed, of answers and of prompts."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from anaphora.engine.protocols import GenerateInput
from anaphora.request import TokenLogprob, TokenLogprobs
from anaphora.server.logprobs import AskedLogprobs, CompletionLogprobs, prompt_offsets
from tests.server.fakes import ByteTokenizer, FakeEngine, Say, chat, complete, events, logprobs_of, make_app

BOS, EOS = ByteTokenizer.BOS, ByteTokenizer.EOS
LESS_THAN_ALL = -9999.0
# Two characters, the second in two tokens, then the token that ends the text and is not shown.
SAY = Say(["h", "", "é", ""], tokens=[*"hé".encode(), EOS], logprobs=[-1.5, -0.5])


def choice(response: httpx.Response, index: int = 0) -> Any:
    """Return one choice of a whole answer."""
    assert response.status_code == 200, response.text
    return response.json()["choices"][index]


def streamed(response: httpx.Response, index: int = 0) -> list[Any]:
    """Return the chunks of one choice."""
    assert response.status_code == 200, response.text
    found = [choice for event in events(response)[:-1] for choice in event["choices"]]
    return [choice for choice in found if choice["index"] == index]


# --- chat


def chat_token(token: str, data: list[int], logprob: float, **more: Any) -> dict[str, Any]:
    """A token as a chat tells of it."""
    return {"token": token, "logprob": logprob, "bytes": data, **more}


def test_a_chat_tells_of_each_token_with_its_exact_bytes() -> None:
    """Also of those that are half a character, or end the text."""
    logprobs = choice(chat(make_app(FakeEngine(SAY)), logprobs=True, top_logprobs=2))["logprobs"]
    top = [chat_token("a", [97], -0.25), chat_token("b", [98], -0.5)]
    assert logprobs == {
        "content": [
            chat_token("h", [104], -1.5, top_logprobs=top),
            chat_token("\ufffd", [0xC3], -1.5, top_logprobs=top),
            chat_token("\ufffd", [0xA9], -1.5, top_logprobs=top),
            chat_token("<eos>", list(b"<eos>"), -1.5, top_logprobs=top),
        ],
        "refusal": None,
    }


def test_without_a_number_a_chat_tells_of_the_chosen_tokens_alone() -> None:
    """OpenAI's default is no other token."""
    for body in ({}, {"top_logprobs": 0}):
        engine = FakeEngine(SAY)
        content = choice(chat(make_app(engine), logprobs=True, **body))["logprobs"]["content"]
        assert [entry["top_logprobs"] for entry in content] == [[]] * 4
        assert engine.requests[0].params.logprobs == 0


@pytest.mark.parametrize("body", [{}, {"logprobs": False}, {"top_logprobs": 0}, {"logprobs": None}])
def test_unasked_a_chat_tells_nothing_and_the_engine_finds_out_nothing(body: dict[str, Any]) -> None:
    """The key is there all the same, as the SDK expects."""
    engine = FakeEngine(SAY)
    response = chat(make_app(engine), **body)
    assert choice(response)["logprobs"] is None
    assert "prompt_logprobs" not in response.json()
    params = engine.requests[0].params
    assert (params.logprobs, params.prompt_logprobs) == (None, None)


def test_a_chat_stream_tells_of_each_token_when_it_was_chosen() -> None:
    """A token whose text is held back comes with an empty content; the end has none."""
    found = streamed(chat(make_app(FakeEngine(SAY)), logprobs=True, top_logprobs=1, stream=True))
    assert [chunk["delta"].get("content") for chunk in found] == ["", "h", "", "é", "", None]
    told = [
        chunk["logprobs"] and [entry["bytes"] for entry in chunk["logprobs"]["content"]] for chunk in found
    ]
    assert told == [None, [[104]], [[0xC3]], [[0xA9]], [list(b"<eos>")], None]


@pytest.mark.parametrize("index", [0, 1])
def test_a_chat_stream_tells_what_the_whole_answer_tells(index: int) -> None:
    """For each of n sequences."""
    body = {"logprobs": True, "top_logprobs": 3, "n": 2}
    whole = choice(chat(make_app(FakeEngine(SAY)), **body), index)
    found = streamed(chat(make_app(FakeEngine(SAY)), stream=True, **body), index)
    assert whole["logprobs"]["content"][0]["logprob"] == SAY.logprobs[index]
    told = [entry for chunk in found if chunk["logprobs"] for entry in chunk["logprobs"]["content"]]
    assert told == whole["logprobs"]["content"]
    assert "".join(chunk["delta"].get("content", "") for chunk in found) == whole["message"]["content"]


# --- completions


def test_a_completion_tells_of_each_token_by_its_text() -> None:
    """The token itself is added to the most likely ones, and half a character begins where its whole does."""
    logprobs = choice(complete(make_app(FakeEngine(SAY)), logprobs=2))["logprobs"]
    others = {"a": -0.25, "b": -0.5}
    assert logprobs == {
        "tokens": ["h", "\ufffd", "\ufffd", "<eos>"],
        "token_logprobs": [-1.5] * 4,
        "top_logprobs": [others | {token: -1.5} for token in ("h", "\ufffd", "\ufffd", "<eos>")],
        "text_offset": [0, 1, 1, 2],
    }


def test_a_token_among_the_most_likely_is_there_once() -> None:
    """There are as many as were asked for then."""
    engine = FakeEngine(Say(["a"], tokens=[97], logprobs=[-0.25]))
    assert choice(complete(make_app(engine), logprobs=2))["logprobs"]["top_logprobs"] == [
        {"a": -0.25, "b": -0.5}
    ]


def test_a_completion_may_ask_for_no_other_token() -> None:
    """0 is not absent."""
    assert choice(complete(make_app(FakeEngine(SAY)), logprobs=0))["logprobs"]["top_logprobs"][0] == {
        "h": -1.5
    }
    assert choice(complete(make_app(FakeEngine(SAY))))["logprobs"] is None


def test_offsets_go_on_behind_a_repeated_prompt() -> None:
    """The first token of all has nothing before it that could predict it."""
    body = {"prompt": "hä", "echo": True, "logprobs": 1, "add_special_tokens": True}
    engine = FakeEngine(SAY)
    found = choice(complete(make_app(engine), **body))
    assert found["text"] == "hähé"
    logprobs = found["logprobs"]
    assert logprobs["tokens"] == ["<bos>", "h", "\ufffd", "\ufffd", "h", "\ufffd", "\ufffd", "<eos>"]
    assert logprobs["token_logprobs"] == [None, *[-2.0] * 3, *[-1.5] * 4]
    assert logprobs["top_logprobs"][:2] == [None, {"a": -0.25, "h": -2.0}]
    assert logprobs["text_offset"] == [0, 0, 1, 1, 2, 3, 3, 4]
    assert engine.requests[0].params.prompt_logprobs == 1
    assert "prompt_logprobs" not in found


def test_a_repeated_prompt_without_log_probabilities_is_looked_up_in_the_cache() -> None:
    """The engine is not asked for those of the prompt."""
    engine = FakeEngine(SAY)
    complete(make_app(engine), echo=True)
    complete(make_app(engine), logprobs=3)
    assert [request.params.prompt_logprobs for request in engine.requests] == [None, None]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_a_stream_of_completions_tells_what_the_whole_answer_tells(index: int, *, echo: bool) -> None:
    """For each of n answers to several prompts; its pieces put together are the whole."""
    body = {"prompt": ["ab", "é!"], "n": 2, "logprobs": 2, "echo": echo}
    whole = choice(complete(make_app(FakeEngine(SAY)), **body), index)
    found = streamed(complete(make_app(FakeEngine(SAY)), stream=True, **body), index)
    told = [chunk["logprobs"] for chunk in found if chunk["logprobs"]]
    assert len(told) == len(SAY.texts) + echo
    joined = {name: [value for part in told for value in part[name]] for name in told[0]}
    assert joined == whole["logprobs"]
    assert "".join(chunk["text"] for chunk in found) == whole["text"]


def test_a_stream_repeats_a_prompt_with_its_log_probabilities_before_the_first_token() -> None:
    """In a chunk of its own."""
    found = streamed(complete(make_app(FakeEngine(SAY)), echo=True, logprobs=0, stream=True))
    assert [chunk["text"] for chunk in found] == ["hi", "h", "", "é", ""]
    assert found[0]["logprobs"]["token_logprobs"] == [None, -2.0]
    assert found[0]["finish_reason"] is None


# --- prompt_logprobs


def test_a_completion_carries_those_of_its_prompt_by_token_id() -> None:
    """The token of the prompt first, then the most likely ones; vLLM's shape."""
    found = choice(complete(make_app(FakeEngine(SAY)), prompt=[[104, 0xC3], [97, 98]], prompt_logprobs=2), 0)
    a, b = ({"logprob": -0.25, "rank": 1}, {"logprob": -0.5, "rank": 2})
    likeliest = {"97": a | {"decoded_token": "a"}, "98": b | {"decoded_token": "b"}}
    assert found["prompt_logprobs"] == [
        None,
        {str(0xC3): {"logprob": -2.0, "rank": 3, "decoded_token": "\ufffd"}, **likeliest},
    ]
    assert next(iter(found["prompt_logprobs"][1])) == str(0xC3)
    assert found["logprobs"] is None


def test_a_chat_carries_those_of_its_prompt_beside_its_choices() -> None:
    """There is one prompt, however many choices."""
    body = chat(make_app(FakeEngine(SAY)), prompt_logprobs=0, n=2).json()
    assert body["prompt_logprobs"][0] is None
    assert len(body["prompt_logprobs"]) == len("<user>hi<assistant>")
    assert body["prompt_logprobs"][1] == {str(ord("u")): {"logprob": -2.0, "rank": 3, "decoded_token": "u"}}
    assert all("prompt_logprobs" not in choice for choice in body["choices"])


def test_two_numbers_for_one_prompt_are_kept_apart() -> None:
    """The engine finds out the larger number; each list has its own."""
    engine = FakeEngine(SAY)
    found = choice(complete(make_app(engine), echo=True, logprobs=1, prompt_logprobs=3))
    assert engine.requests[0].params.prompt_logprobs == 3
    assert len(found["prompt_logprobs"][1]) == 4
    assert len(found["logprobs"]["top_logprobs"][1]) == 2


@pytest.mark.parametrize("send", [chat, complete])
def test_those_of_a_prompt_have_no_place_in_a_stream(send: Callable[..., httpx.Response]) -> None:
    """As in vLLM; echo is the way."""
    response = send(make_app(), stream=True, prompt_logprobs=0)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "prompt_logprobs"
    assert "echo" in error["message"]


# --- the parts


def test_what_cannot_be_is_a_large_negative_number() -> None:
    """JSON has no infinity."""
    never = TokenLogprobs(65, float("-inf"), 9, (TokenLogprob(66, float("-inf")),))
    asked = AskedLogprobs(ByteTokenizer(), 1, 1)
    assert CompletionLogprobs(asked).outputs([never])["token_logprobs"] == [LESS_THAN_ALL]
    entry = (asked.chat([never]) or {})["content"][0]
    assert (entry["logprob"], entry["top_logprobs"][0]["logprob"]) == (LESS_THAN_ALL, LESS_THAN_ALL)
    _, values = asked.prompt([never]) or []
    assert values is not None and {value["logprob"] for value in values.values()} == {LESS_THAN_ALL}


def test_of_tokens_with_one_text_the_most_likely_counts() -> None:
    """Many tokens are parts of characters and look alike."""
    found = TokenLogprobs(0x82, -3.0, 3, (TokenLogprob(0x80, -0.5), TokenLogprob(0x81, -1.0)))
    (top,) = CompletionLogprobs(AskedLogprobs(ByteTokenizer(), 2)).outputs([found])["top_logprobs"]
    assert top == {"\ufffd": -0.5}


def test_special_tokens_take_room_only_where_they_are_shown() -> None:
    """`skip_special_tokens` decides."""
    tokens = [logprobs_of(token_id, -1.0, 0) for token_id in (104, BOS, 105)]
    for skips, offsets in ((True, [0, 1, 1]), (False, [0, 1, 6])):
        log = CompletionLogprobs(AskedLogprobs(ByteTokenizer(), 0, None, skips))
        assert log.outputs(tokens)["text_offset"] == offsets


class SpaceInFront(ByteTokenizer):
    """A tokenizer that begins every text with a space."""

    def token_bytes(self, token_id: int) -> bytes:
        return b" he" if token_id == 0 else super().token_bytes(token_id)


@pytest.mark.parametrize(
    "text, token_ids, offsets",
    [
        ("hi", [104, 105], [0, 1]),
        ("hi", [BOS, 104, 105], [0, 0, 1]),
        ("h<eos>i", [BOS, 104, EOS, 105], [0, 0, 1, 6]),
        ("hello", [0, *b"llo"], [0, 2, 3, 4]),
        (" hello", [0, *b"llo"], [0, 3, 4, 5]),
        ("aé😀b", list("aé😀b".encode()), [0, 1, 1, 2, 2, 2, 2, 3]),
        ("", [BOS], [0]),
        ("x", [104, 105], [0, 1]),
    ],
)
def test_offsets_of_a_prompt_are_those_of_its_text(
    text: str, token_ids: list[int], offsets: list[int]
) -> None:
    """Markup that the tokenizer put there takes no room; markup that the caller wrote does."""
    assert prompt_offsets(text, token_ids, SpaceInFront()) == offsets


# --- best_of


def by_sequence(request: GenerateInput) -> Say:
    """Sequence 2 is the likeliest, then 0, then 3, then 1."""
    return Say(["x", "y"], logprobs=[-2.0, -4.0, -1.0, -3.0])


def test_the_likeliest_of_several_are_returned_the_likeliest_first() -> None:
    """All of them count, since all were generated; what was not asked for is not told."""
    engine = FakeEngine(by_sequence)
    response = complete(make_app(engine), prompt=["a", "b"], n=2, best_of=4, logprobs=0)
    choices = response.json()["choices"]
    assert [entry["index"] for entry in choices] == [0, 1, 2, 3]
    assert [entry["logprobs"]["token_logprobs"][0] for entry in choices] == [-1.0, -2.0, -1.0, -2.0]
    assert response.json()["usage"]["completion_tokens"] == 2 * 4 * 2
    assert response.json()["usage"]["prompt_tokens"] == 2
    assert [request.params.n for request in engine.requests] == [4, 4]


def test_the_best_are_found_without_telling_why() -> None:
    """The engine finds out the log probabilities, and the answer has none."""
    engine = FakeEngine(by_sequence)
    (only,) = complete(make_app(engine), best_of=3).json()["choices"]
    assert (only["logprobs"], engine.requests[0].params.logprobs) == (None, 0)


def test_a_repeated_prompt_stands_before_its_own_answers() -> None:
    """Choices are counted by n, sequences by best_of."""
    body = {"prompt": ["a", "b"], "n": 2, "best_of": 3, "echo": True}
    choices = complete(make_app(FakeEngine(by_sequence)), **body).json()["choices"]
    assert [entry["text"] for entry in choices] == ["axy", "axy", "bxy", "bxy"]


def test_the_mean_counts_not_the_sum() -> None:
    """A long text is not worse for being long."""
    engine = FakeEngine(Say(["x"] * 4, logprobs=[-1.0, -1.5]))
    (only,) = complete(make_app(engine), best_of=2, logprobs=0).json()["choices"]
    assert only["logprobs"]["token_logprobs"] == [-1.0] * 4


def test_as_many_as_answers_are_no_choice_and_can_be_streamed() -> None:
    """Clients send best_of equal to n."""
    engine = FakeEngine(Say(["x"]))
    assert complete(make_app(engine), n=2, best_of=2, stream=True).status_code == 200
    assert complete(make_app(engine), n=30, best_of=30).status_code == 200
    assert [request.params.logprobs for request in engine.requests] == [None, None]


@pytest.mark.parametrize(
    "body, field, words",
    [
        ({"n": 3, "best_of": 2}, "best_of", ["2", "at least n, which is 3"]),
        ({"n": 2, "best_of": 21}, "best_of", ["21", "at most 20"]),
        ({"best_of": 2, "stream": True}, "best_of", ["2", "equal to n, which is 1, in a stream"]),
        ({"n": 0, "best_of": 2}, "n", ["0", "at least 1"]),
        ({"n": -1, "best_of": -1}, "n", ["-1", "between 1 and 128"]),
    ],
)
def test_the_best_of_too_few_too_many_or_those_already_sent_cannot_be_had(
    body: dict[str, Any], field: str, words: list[str]
) -> None:
    """A stream sends tokens before anybody knows which sequence will be the best."""
    response = complete(make_app(), **body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == field
    for word in words:
        assert word in error["message"]
