"""TOML of whoever wrote it: what no config needs is refused before anything else looks at it."""

from __future__ import annotations

import tomllib
from typing import Any

MOST_NESTED = 100
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


class BadTOML(ValueError):
    """Not TOML, or TOML that no config needs; the text says what is wrong, in one line."""


def parsed(text: str) -> dict[str, Any]:
    """The tables of a TOML text. BadTOML if it is none, nested too deep, or has a number that
    Python refuses to read.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTOML(str(error)) from None
    except RecursionError:
        raise BadTOML(TOO_DEEP) from None
    except ValueError:  # Python's limit of digits: 4300
        raise BadTOML("a whole number of thousands of digits, expected at most 64 bits") from None
    if too_deep(tables):
        raise BadTOML(TOO_DEEP)
    return tables


def too_deep(value: Any) -> bool:
    """Whether tables and arrays are nested so deep that code which walks them would fail."""
    left = [(value, 0)]
    while left:  # no recursion, of course
        inner, depth = left.pop()
        if depth > MOST_NESTED:
            return True
        if isinstance(inner, dict):
            left += [(each, depth + 1) for each in inner.values()]
        elif isinstance(inner, list):
            left += [(each, depth + 1) for each in inner]
    return False
