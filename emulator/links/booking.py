"""A transfer in the queue of a link, and the plan of its service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from emulator.links.transfer import Transfer


class Served(Protocol):
    """Bytes served over time since the start of a service; the two methods are inverses."""

    def served(self, t_ns: int) -> int:
        """Whole bytes served by ``t_ns``; 0 before the start. May exceed the transfer's size."""
        ...

    def when(self, size_bytes: int) -> int:
        """The smallest moment (ns) by which ``size_bytes`` are served.

        FOREVER if they are never served or the moment is not yet known.
        """
        ...


class Plan(Struct, frozen=True):
    """When a transfer is served: from ``start_ns`` to ``finish_ns`` along ``curve``.

    The last byte reaches the receiver at ``due_ns``.
    """

    curve: Served
    start_ns: int
    finish_ns: int
    due_ns: int


@dataclass(slots=True, eq=False)
class Booking:
    """A transfer in the queue of a link.

    ``plan`` is None while this transfer or an earlier one is suspended, and while its start is not
    yet planned.
    """

    transfer: Transfer
    order: int
    offered_ns: int
    kept: int = 0  # bytes that the receiver has already; the plan does not serve them again
    reached: int = 0  # bytes due there at the last suspension: an upper bound of ``kept``
    plan: Plan | None = None
    began_ns: int | None = None  # the first start of service; set only after an interruption
    suspended: bool = False
    # how much later than its offer the bottleneck accepted it, because it was settled further
    shifted_ns: int = 0

    def started_ns(self) -> int | None:
        """The first start of service, which may be in the future; None while not planned."""
        return self.plan.start_ns if self.began_ns is None and self.plan else self.began_ns
