"""Canonical CBOR against a second opinion."""

import cbor2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anaphora.cache import cbor

NUMBERS = st.integers(-(2**64), 2**64 - 1)
VALUES = st.recursive(
    st.none() | NUMBERS | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=30) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=40,
)


@given(VALUES)
@example(tuple(range(23)))
@example(tuple(range(24)))
@example(list(range(300)))
@example(b"x" * 70_000)
@example("ä" * 200)
def test_every_value_is_encoded_as_cbor2_encodes_it(value: cbor.CborValue) -> None:
    """Byte for byte."""
    assert cbor.encode(value) == cbor2.dumps(value, canonical=True)


EDGES = [0, 23, 24, 2**8 - 1, 2**8, 2**16 - 1, 2**16, 2**32 - 1, 2**32, 2**64 - 1]


@pytest.mark.parametrize("number", [sign for n in EDGES for sign in (n, -1 - n)])
def test_numbers_take_as_few_bytes_as_hold_them(number: int) -> None:
    """At each edge, on both sides of zero."""
    assert cbor.encode(number) == cbor2.dumps(number, canonical=True)
    assert cbor.encode_int(number) == cbor.encode(number)


def test_the_examples_of_the_standard() -> None:
    """RFC 8949, appendix A."""
    assert cbor.encode(1000000).hex() == "1a000f4240"
    assert cbor.encode(-1000).hex() == "3903e7"
    assert cbor.encode(b"\x01\x02\x03\x04").hex() == "4401020304"
    assert cbor.encode("IETF").hex() == "6449455446"
    assert cbor.encode([1, [2, 3], [4, 5]]).hex() == "8301820203820405"
    assert cbor.encode(None).hex() == "f6"
    assert (cbor.encode(()), cbor.encode(b""), cbor.encode("")) == (b"\x80", b"\x40", b"\x60")


@pytest.mark.parametrize("length", EDGES[:7])
def test_headers_stand_alone_before_bytes_and_arrays(length: int) -> None:
    """What the block encoder puts together itself."""
    assert cbor.bytes_header(length) == cbor2.dumps(bytes(length))[: -length or None]
    assert cbor.array_header(length) == cbor2.dumps([0] * length)[: -length or None]
