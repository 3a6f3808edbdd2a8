"""The limit of the queue before a link."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.errors import BadValue

POLICIES = ("drop", "block")


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of ``limit_bytes`` that may wait behind the transfer in service.

    A waiting transfer counts with its full size until its service begins. An idle link accepts a
    transfer of any size. With ``drop``, a transfer without room is refused. With ``block``, it
    waits outside until there is room. Order is kept, so its service begins as in an unlimited
    queue.
    """

    limit_bytes: int
    policy: str = "drop"

    def __post_init__(self) -> None:
        if (
            not isinstance(self.limit_bytes, int)
            or isinstance(self.limit_bytes, bool)
            or self.limit_bytes < 0
        ):
            raise BadValue(
                f"queue limit {self.limit_bytes!r}: expected a whole number of bytes, 0 or more"
            )
        if self.policy not in POLICIES:
            raise BadValue(f"queue policy {self.policy!r}: expected one of {', '.join(POLICIES)}")
