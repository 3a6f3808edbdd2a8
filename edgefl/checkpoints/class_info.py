"""How objects of a class are taken apart and put together again: their attributes, their base."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from edgefl.checkpoints.allowed import is_allowed, name_of, places

# Built-in containers, subclasses of which can be saved; the more special ones first.
CONTAINERS: tuple[type, ...] = (
    *(Counter, OrderedDict, defaultdict, deque),
    *(dict, list, set, frozenset, tuple),
)
# Bases without a state of their own.
STATELESS = {"abc", "typing", "typing_extensions", "_collections_abc", "collections.abc"}
BASES = {
    *("builtins:object", "pydantic.main:BaseModel"),
    *("msgspec:Struct", "msgspec._core:_StructMixin"),
}


@dataclass(frozen=True, slots=True)
class ClassInfo:
    """What an object of a class consists of.

    ``refused``: why objects of this class cannot be saved, or "". ``container``: the built-in
    container that the class derives from. ``slots``: the descriptors of its slots by name.
    ``has_state``: it defines state() and restore(). ``hashed``: its hash depends on its attributes.
    """

    name: str
    refused: str
    container: type | None
    slots: dict[str, Any]
    has_state: bool
    hashed: bool

    def attributes(self, found: Any) -> Iterator[tuple[str, Any]]:
        """Yield all attributes of the object that are set, by name."""
        yield from getattr(found, "__dict__", {}).items()
        for name, slot in self.slots.items():
            try:
                value = slot.__get__(found)
            except AttributeError:
                continue  # never set
            yield name, value

    def fill(self, made: Any, values: dict[str, Any]) -> None:
        """Set the attributes, whatever the class does at an assignment (frozen dataclasses)."""
        for name, value in values.items():
            if name in self.slots:
                self.slots[name].__set__(made, value)
            else:
                made.__dict__[name] = value


def has_state(kind: type) -> bool:
    """Whether the class defines ``state()`` and ``restore(state)``."""
    return all(callable(getattr(kind, name, None)) for name in ("state", "restore"))


@cache
def class_info(kind: Any, own: tuple[str, ...]) -> ClassInfo:
    """Return how objects of ``kind`` are saved. ``own``: modules of the user's strategies."""
    return ClassInfo(
        name=name_of(kind),
        refused=_refused(kind, own),
        container=next((base for base in CONTAINERS if issubclass(kind, base)), None),
        slots=dict(_slots(kind)),
        has_state=has_state(kind),
        hashed=kind.__hash__ is not object.__hash__ and kind.__hash__ is not None,
    )


def _refused(kind: type, own: tuple[str, ...]) -> str:
    if not is_allowed(kind.__module__, own):
        return (
            f"an object of {kind.__module__}.{kind.__qualname__}, which is no class of"
            f" {places(own)}"
        )
    if "<locals>" in kind.__qualname__:
        return f"an object of {kind.__qualname__}, a class that a function defines"
    for base in kind.__mro__:
        if not (
            is_allowed(base.__module__, own)
            or base.__module__ in STATELESS
            or name_of(base) in BASES
            or base in CONTAINERS
        ):
            return f"an object of {kind.__qualname__}, which derives from {name_of(base)}"
    return ""


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(kind.__mro__):
        names = vars(base).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name in ("__dict__", "__weakref__"):
                continue
            private = name.startswith("__") and not name.endswith("__")
            full = f"_{base.__name__.lstrip('_')}{name}" if private else name
            yield full, vars(base)[full]
