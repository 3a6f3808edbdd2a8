"""The error for invalid user input, and the check of a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadValue(ValueError):
    """Invalid user input: one line that names the value and what is expected.

    The command lines print it and exit with status 2.
    """


class Unavailable(BadValue):
    """The input is valid, but this machine lacks what is needed, such as root."""


def valid_name(what: str, name: str, valid: Iterable[str]) -> str:
    """Return ``name`` if it is one of ``valid``, else raise BadValue with the nearest one."""
    names = list(valid)
    if name in names:
        return name
    near = [
        one for one in names if name and one.startswith(name.lower())
    ] or difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f": did you mean {near[0]}?" if near else ""
    raise BadValue(f"{what} {name!r} does not exist{hint} (valid: {', '.join(names)})")
