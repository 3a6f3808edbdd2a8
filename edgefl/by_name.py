"""A dict whose KeyError lists the existing names, for values that an algorithm reads by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class MissingName(KeyError):
    """A name that does not exist; the message lists those that do."""

    def __init__(self, name: object, names: Iterable[str] = ()) -> None:
        super().__init__(name)
        self.names = sorted(names)

    def __str__(self) -> str:
        return f"{self.args[0]!r}, expected one of {', '.join(map(repr, self.names)) or 'none'}"


class ByName(dict[str, T]):
    """Values of an event or a task, by name."""

    def __missing__(self, name: object) -> T:
        raise MissingName(name, self)
