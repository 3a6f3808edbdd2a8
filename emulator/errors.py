"""The error for invalid user input."""

from __future__ import annotations


class BadValue(ValueError):
    """Invalid user input: one line that names the value and what is expected.

    The command lines print it and exit with status 2.
    """
