"""The error for invalid user input, and the checks that many modules share."""

from __future__ import annotations

import difflib
import errno
import math
import os
import sys
from collections.abc import Iterable
from typing import Any

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BadValue(ValueError):
    """Invalid user input: one line that names the value and what is expected.

    The command lines print it and exit with status 2.
    """


class Unavailable(BadValue):
    """The input is valid, but this machine lacks what is needed, such as root."""


def not_installed(what: str, error: ImportError) -> Unavailable:
    """Return the error for a package of the extra ``lab`` that ``what`` needs."""
    from edgefl_testbed import install_command  # here: the library stands alone

    return Unavailable(
        f"{what} needs the package {error.name!r}, which is not installed: {install_command('lab')}"
    )


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


def check_whole(
    what: str, value: Any, least: int = 0, most: int | None = None, unit: str = ""
) -> None:
    """Raise BadValue unless ``value`` is an int from ``least`` to ``most`` (None: no limit)."""
    if (
        not isinstance(value, int)
        or isinstance(value, bool)
        or value < least
        or (most is not None and value > most)
    ):
        limits = f", {least} or more" if most is None else f" from {least} to {most}"
        number = f"a whole number{f' of {unit}' if unit else ''}"
        raise BadValue(f"{what} {value!r}: expected {number}{limits}")


def check_positive(what: str, value: float) -> None:
    """Raise BadValue unless ``value`` is a finite number above 0."""
    if not 0 < value < math.inf:
        raise BadValue(f"{what} {value}: expected a number above 0")


def flush_or_give_up() -> None:
    """Redirect stdout to /dev/null if it accepts nothing, so that Python's exit does not fail."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
