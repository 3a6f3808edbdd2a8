"""Classes and functions for tests of the codec; ``OWN`` makes them allowed."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, Flag
from typing import Any, NamedTuple

import msgspec
from pydantic import BaseModel, ConfigDict

OWN = (__name__,)


class Plain:
    """An object with a __dict__."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)

    def called(self, number: int) -> tuple[Plain, int]:
        return self, number

    def empty(self) -> dict[str, int]:
        return {}

    class Inner:
        """A class within a class."""


class Slots:
    __slots__ = ("__private", "known", "never")

    def __init__(self, known: Any) -> None:
        self.known, self.__private = known, 7

    @property
    def private(self) -> int:
        return self.__private


class MoreSlots(Slots):
    """With slots of its base and a __dict__."""


@dataclass(frozen=True, slots=True)
class Point:
    """Frozen: its hash is that of its fields."""

    x: int
    on: Any = None


@dataclass(eq=False)
class Node:
    """Its hash is its identity."""

    name: str
    others: list[Node] = field(default_factory=list)


class Pair(NamedTuple):
    left: Any
    right: Any


class Names(dict[str, Any]):
    """A dict with an attribute."""


class Latest(OrderedDict[str, int]):
    """An ordered dict of its own class."""


class Ring(deque[int]):
    """A deque of its own class."""


class Color(Enum):
    RED, GREEN = "r", "g"


class Access(Flag):
    READ, WRITE, RUN = 1, 2, 4


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True)
    rate: float = 1.0


class Guarded:
    """Has a state of its own: it keeps ``kept`` and makes ``made`` anew."""

    restored: list[str] = []  # names, in the order of restore  # noqa: RUF012  # shared on purpose

    def __init__(self, name: str, kept: Any) -> None:
        self.name, self.kept, self.made = name, kept, object()

    def state(self) -> dict[str, Any]:
        return {"name": self.name, "kept": self.kept}

    def restore(self, state: dict[str, Any]) -> None:
        self.name, self.kept, self.made = state["name"], state["kept"], object()
        Guarded.restored.append(self.name)


class Kept(msgspec.Struct):
    """What it does when it is made would happen again at a resumption."""

    count: int = 0

    def __post_init__(self) -> None:
        self.count += 1


class Files(Exception):
    """Its base has a state that is not in its attributes."""


def doubled(number: int) -> int:
    return 2 * number


def local_function() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


local_class = type("Local", (), {"__qualname__": "f.<locals>.Local", "__module__": __name__})
