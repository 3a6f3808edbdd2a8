"""A dict that notes which of its keys were set or removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class NotedKeys(dict[str, T]):
    """``touched``: keys that were set or removed since it was last emptied.

    So who follows the dict need not compare all of it.
    """

    def __init__(self, given: Mapping[str, T] | None = None) -> None:
        super().__init__(given or {})
        self.touched: set[str] = set(self)

    def __setitem__(self, key: str, value: T) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        super().__delitem__(key)
        self.touched.add(key)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]  # mypy asks for the signature of |
        self.update(other)
        return self

    def pop(self, key: str, *default: Any) -> Any:
        self.touched.add(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[str, T]:
        key, value = super().popitem()
        self.touched.add(key)
        return key, value

    def clear(self) -> None:
        self.touched |= self.keys()
        super().clear()

    def update(self, *given: Any, **more: Any) -> None:
        fresh = dict(*given, **more)
        self.touched |= fresh.keys()
        super().update(fresh)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self.touched.add(key)
        return super().setdefault(key, default)
