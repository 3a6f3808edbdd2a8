"""Dataclasses whose objects nothing changes, made as fast as those that may be changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as value_class
else:

    def value_class(*, frozen: bool, eq: bool = True, **options: Any) -> Any:
        """Make a dataclass that is frozen for the type checker only.

        At run time ``frozen=True`` costs 1.4 us for each new object instead of 0.4 us, because
        ``__init__`` sets each field through ``object.__setattr__``. The hash is that of a frozen
        one.
        """
        return dataclass(eq=eq, unsafe_hash=eq and frozen, **options)


__all__ = ["value_class"]
