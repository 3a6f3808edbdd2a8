"""Ranges in names: ``pi-[1-8]``, ``10.0.0.[1-4,9]``, ``rack[1-2]-pi[01-12]``."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from emulator.errors import BadValue

MOST_NAMES = 1000
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def expanded(text: str) -> list[str]:
    """Return the names that ``text`` stands for, in order; a name without brackets is itself.

    Zeros in front are kept: ``pi-[01-03]`` is pi-01, pi-02, pi-03. BadValue, in one line, for a
    range that is empty or is none.
    """
    # split at the brackets: text, content, text, content, ..., text
    parts = _BRACKETS.split(text)
    between, inside = parts[::2], parts[1::2]
    if any("[" in each or "]" in each for each in between):
        raise BadValue(f"expected a [ with its ], such as pi-[1-8], found {text!r}")
    numbers = [_numbers(each) for each in inside]
    count = prod(len(each) for each in numbers)
    if count > MOST_NAMES:
        raise BadValue(f"expected at most {MOST_NAMES} names, found {count} in {text!r}")
    return [
        "".join(before + number for before, number in zip(between, chosen)) + between[-1]
        for chosen in product(*numbers)
    ]


def _numbers(inner: str) -> list[str]:
    """The numbers of one pair of brackets, as text."""
    found: list[str] = []
    for part in inner.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise BadValue(f"[{inner}]: expected numbers, such as [1-8] or [1,3,5-7]")
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise BadValue(f"[{inner}]: the range is empty, expected the smaller number first")
        if int(last) - int(first) >= MOST_NAMES:
            raise BadValue(f"[{inner}]: expected at most {MOST_NAMES} names")
        width = len(first) if first.startswith("0") else 0
        found += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1)]
    return found
