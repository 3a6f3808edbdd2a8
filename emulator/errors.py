"""The one error for input that a person gave and can correct."""

from __future__ import annotations


class BadValue(ValueError):
    """One line for the user: which value, what was expected. Command lines print it and exit
    with status 2.
    """
