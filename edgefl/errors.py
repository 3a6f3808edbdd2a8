"""What went wrong on the user's side, in one line."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Iterable


class UserError(Exception):
    """Bad input from the user: one line that says where, what was expected and what is near. The command line ends with status 2."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


def nearest(name: str, valid: Iterable[str]) -> str:
    """" (nearest: 'x')" for a likely typo, else " (valid: a, b)", else "" if nothing is valid: the end of an error line."""
    names = sorted(valid)
    folded = {candidate.lower(): candidate for candidate in names}
    close = get_close_matches(name.lower(), folded, n=1)
    if close:
        return f" (nearest: {folded[close[0]]!r})"
    return f" (valid: {', '.join(names)})" if names else ""


class Bug(Exception):
    """Our own mistake, or an algorithm's: it stops the run and shows the events that led there."""

    def __init__(self, message: str, story: list[str]) -> None:
        super().__init__("\n  ".join([f"{message}; the story so far:", *story]))
