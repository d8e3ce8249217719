"""What stands in a line of a recording, and what must not."""

import json

from anaphora.cache.hashing import BlockDigest
from anaphora.config import KVLayout
from anaphora.sim.recording import BlockNames
from tests.sim.recorded import RecordedRun

LAYOUT = KVLayout(block_size=4, page_size=8, num_pages=20, min_prefill_tokens=2)


def lines(key: bytes | None = None) -> list[dict[str, object]]:
    run = RecordedRun(LAYOUT, key=key)
    run.now = 1.5
    run.add("first", [7001, *range(9)], 6)
    run.run()
    run.add("second", [7001, *range(8), 99, 98, 97], 1)
    run.run()
    return [json.loads(line) for line in run.lines]


def test_a_line_has_the_public_form_and_what_we_know_besides() -> None:
    first, second = lines()
    assert (first["timestamp"], first["input_length"], first["output_length"]) == (1500.0, 10, 6)
    assert (first["block_size"], first["cached_tokens"], first["reused_blocks"]) == (4, 0, 0)
    assert (second["cached_tokens"], second["reused_blocks"]) == (8, 2)
    assert isinstance(first["hash_ids"], list) and isinstance(second["hash_ids"], list)
    assert first["hash_ids"] == second["hash_ids"][:2]


def test_blocks_that_the_output_completed_have_names_too() -> None:
    """Fifteen of sixteen tokens are computed: three whole blocks, one more than the prompt's."""
    first, _ = lines()
    assert isinstance(first["output_hash_ids"], list)
    assert len(first["output_hash_ids"]) == 1


def test_no_token_and_no_text_is_written() -> None:
    """Nor the request's own name."""
    for entry in lines():
        assert "7001" not in json.dumps(entry)
        assert "second" not in json.dumps(entry)


def test_names_are_the_same_in_every_run_with_the_same_key_and_in_no_other() -> None:
    plain, one, other = lines(), lines(b"a" * 16), lines(b"b" * 16)
    assert plain[0]["hash_ids"] == lines()[0]["hash_ids"]
    assert one[0]["hash_ids"] == lines(b"a" * 16)[0]["hash_ids"]
    assert len({json.dumps(run[0]["hash_ids"]) for run in (plain, one, other)}) == 3
    assert (plain[0]["id_kind"], one[0]["id_kind"]) == ("digest", "hmac-sha256")
    assert plain[0]["namespace"] != one[0]["namespace"]


def test_a_name_without_a_key_is_the_beginning_of_the_digest() -> None:
    digest = BlockDigest(bytes(range(32)))
    assert BlockNames(None)(digest) == "0001020304050607"
    assert BlockNames(b"k" * 16)(digest) != "0001020304050607"


def test_a_request_that_was_never_admitted_leaves_no_line() -> None:
    run = RecordedRun(LAYOUT)
    run.add("a", range(10))
    run.abort("a")
    assert run.lines == []


def test_another_salt_is_another_namespace() -> None:
    run = RecordedRun(LAYOUT)
    for name, salt in (("a", None), ("b", "salt"), ("c", None)):
        run.add(name, range(10), cache_salt=salt)
        run.run()
    plain, salted, again = (json.loads(line) for line in run.lines)
    assert plain["namespace"] == again["namespace"] != salted["namespace"]
    assert set(plain["hash_ids"]).isdisjoint(salted["hash_ids"])
    assert "salt" not in json.dumps(salted)
