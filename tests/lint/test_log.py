from tests.lint.support import QUESTIONS, STORY, chat, log_of


def test_the_nearest_request_is_the_latest_with_the_longest_match() -> None:
    bodies = [
        chat(QUESTIONS[0]),
        chat(QUESTIONS[1]),
        chat(QUESTIONS[0], "At ten.", QUESTIONS[2]),
        chat(QUESTIONS[1], "At ten."),
        chat(QUESTIONS[3], system=STORY[1:]),
    ]
    log = log_of(bodies)
    nearest = [near and near.request for near in log.nearest]
    assert nearest[:4] == [None, 0, 0, 1]
    third = log.nearest[2]
    assert third is not None and third.num_matched == len(log.records[0].token_ids)


def test_without_a_common_block_a_front_that_is_alike_is_nearest() -> None:
    fronts = ["7:00, A b c d.", "Quite another text.", "8:00, A b c d."]
    log = log_of([{"prompt": f"{front} {STORY}"} for front in fronts])
    assert [near and near.request for near in log.nearest] == [None, 0, 0]


def test_a_conversation_is_known_by_its_first_words() -> None:
    bodies = [
        chat(QUESTIONS[0]),
        chat("Hi."),
        chat("Hi.", "Ho.", QUESTIONS[1]),
        chat(QUESTIONS[0], "At ten.", QUESTIONS[1]),
    ]
    assert log_of(bodies).previous_turn == [None, None, None, 0]
