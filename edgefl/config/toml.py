"""Parsing of untrusted TOML; values that no config needs are refused first."""

from __future__ import annotations

import tomllib
from typing import Any

MOST_NESTED = 100
TOO_DEEP = f"nested more than {MOST_NESTED} deep"


class BadTOML(ValueError):
    """The text is not TOML, or has values that no config needs; the message is one line."""


def parsed(text: str) -> dict[str, Any]:
    """Parse a TOML text into its tables.

    BadTOML if it is not TOML, is nested too deep, or has a number that Python refuses to read.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadTOML(str(error)) from None
    except RecursionError:
        raise BadTOML(TOO_DEEP) from None
    except ValueError:  # Python refuses integers of more than 4300 digits
        raise BadTOML("a whole number of thousands of digits, expected at most 64 bits") from None
    if too_deep(tables):
        raise BadTOML(TOO_DEEP)
    return tables


def too_deep(value: Any) -> bool:
    """Whether tables and arrays are nested too deep for recursive code."""
    left = [(value, 0)]
    while left:  # not recursive: the recursion itself could be too deep
        inner, depth = left.pop()
        if depth > MOST_NESTED:
            return True
        if isinstance(inner, dict):
            left += [(each, depth + 1) for each in inner.values()]
        elif isinstance(inner, list):
            left += [(each, depth + 1) for each in inner]
    return False
