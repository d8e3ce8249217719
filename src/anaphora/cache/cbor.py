"""Canonical CBOR (RFC 8949, section 4.2.1) of the few kinds of values that a block digest is made of.

An encoder only, with the shortest form of every number and length; no floats, maps, tags or booleans.
"""

import struct
from collections.abc import Sequence
from typing import TypeAlias

CborValue: TypeAlias = "int | bytes | str | Sequence[CborValue] | None"

_UINT, _NEGATIVE, _BYTES, _TEXT, _ARRAY = range(5)
NIL = b"\xf6"


def encode(value: CborValue) -> bytes:
    """Return the one canonical encoding of a value; tuples and lists are both arrays."""
    if value is None:
        return NIL
    if isinstance(value, int):
        return encode_int(value)
    if isinstance(value, bytes):
        return bytes_header(len(value)) + value
    if isinstance(value, str):
        text = value.encode()
        return _header(_TEXT, len(text)) + text
    return array_header(len(value)) + b"".join(map(encode, value))


def encode_int(number: int) -> bytes:
    """Return a number from -2⁶⁴ to 2⁶⁴ - 1; a negative one as the distance from -1."""
    return _header(_UINT, number) if number >= 0 else _header(_NEGATIVE, -1 - number)


def bytes_header(num_bytes: int) -> bytes:
    """Return what stands before a byte string of that length."""
    return _header(_BYTES, num_bytes)


def array_header(num_items: int) -> bytes:
    """Return what stands before an array of that many items."""
    return _header(_ARRAY, num_items)


def _header(major: int, argument: int) -> bytes:
    """Return the major type and its argument in as few bytes as hold it."""
    first = major << 5
    if argument < 24:
        return bytes([first | argument])
    for info, code in (24, "B"), (25, "H"), (26, "I"):
        if argument < 1 << 8 * struct.calcsize(">" + code):
            return struct.pack(">B" + code, first | info, argument)
    return struct.pack(">BQ", first | 27, argument)
