"""A transfer over a link, and its completion."""

from __future__ import annotations

from msgspec import Struct


class Transfer(Struct, frozen=True):
    """A transfer of ``size`` bytes from ("up") or to ("down") ``edge``.

    ``number`` is unique among the transfers that a network holds.
    """

    number: int
    edge: str
    direction: str
    size: int
    kind: str

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"transfer {self.number}: size {self.size} is negative")


class Completion(Struct, frozen=True):
    """The end of ``transfer``: its last byte is due at the receiver at ``due_ns``.

    Its service began at ``started_ns``. ``shifted_ns``: how much later than its offer a bottleneck
    accepted it, because a late host had already passed later moments; ``due_ns`` contains this.
    ``windows_ns``: on a TDMA channel, (begin, usable end) of every slot that served it.
    """

    transfer: Transfer
    offered_ns: int
    started_ns: int
    due_ns: int
    windows_ns: tuple[tuple[int, int], ...] = ()
    shifted_ns: int = 0
