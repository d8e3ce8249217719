"""Numbers as people write them on a command line: `8192`, `8k`, `4G`."""

import argparse
import re
from fractions import Fraction

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}


def count(text: str) -> int:
    """Return a whole number; small letters are powers of 1,000, capital letters powers of 1,024, as in vLLM."""
    if text.strip().startswith("-"):
        raise argparse.ArgumentTypeError(f"{text!r} is below 0; give a number such as 8192, 8k or 4G")
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 8192, 8k or 4G")
    value = Fraction(match[1]) * _UNITS[match[2]]
    if value.denominator != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(value)
