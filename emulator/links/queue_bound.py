"""How much may wait before a link."""

from __future__ import annotations

from dataclasses import dataclass

from emulator.errors import BadValue

POLICIES = ("drop", "block")


@dataclass(frozen=True, slots=True)
class Bound:
    """At most ``limit_bytes`` wait behind the transfer in service, each counted whole until its own
    service begins.

    A link with nothing to serve takes a transfer of any size. ``drop``: what finds no room is
    refused. ``block``: it waits outside until there is room; order is kept, so that its service
    begins when it would have begun in an endless queue.
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
