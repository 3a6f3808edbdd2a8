"""A transfer's place on a link, and the plan of its service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from emulator.links.transfer import Transfer


class Served(Protocol):
    """Bytes over time from the start of a service on; the two are inverse to each other."""

    def served(self, t_ns: int) -> int:
        """Whole bytes served by ``t_ns``; 0 before the start. May exceed what is asked for."""
        ...

    def when(self, size_bytes: int) -> int:
        """The smallest moment (ns) by which ``size_bytes`` are served; FOREVER if that is never,
        or not known yet.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """When a transfer is served: from ``start_ns`` to ``finish_ns`` along ``curve``, the last
    byte at the receiver at ``due_ns``.
    """

    curve: Served
    start_ns: int
    finish_ns: int
    due_ns: int


@dataclass(slots=True, eq=False)
class Booking:
    """A transfer's place in a link's queue; ``plan`` is None while the link stands still before
    it or at it.
    """

    transfer: Transfer
    order: int
    offered_ns: int
    kept: int = 0  # bytes at the receiver that the plan need not serve again
    reached: int = (
        0  # bytes that were due there when the link last stood still: more cannot have been kept
    )
    plan: Plan | None = None
    began_ns: int | None = None  # the first start of service, once an interruption has followed it
    suspended: bool = False
    shifted_ns: int = (
        0  # so much later than said it was taken, since its bottleneck was settled further
    )

    def started_ns(self) -> int | None:
        """The first start of service, which may lie ahead; None while it is not planned."""
        return self.plan.start_ns if self.began_ns is None and self.plan else self.began_ns
