from anaphora.runner.openvino.native_errors import last_line, reason_of


def test_only_what_is_wrong_remains_of_a_message() -> None:
    message = (
        "Exception from src/inference/src/cpp/core.cpp:84:\nException from a.cpp:1:\n  No such layer.\n\n"
    )
    assert last_line(message) == "No such layer"
    assert reason_of(RuntimeError(message)) == "No such layer"


def test_an_error_without_a_message_is_named() -> None:
    assert last_line("\n \n") == ""
    assert reason_of(RuntimeError()) == "RuntimeError"
