"""What is carried, and the news that it has arrived."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Transfer:
    """``size`` bytes for or from ``edge``; ``direction`` is "up" or "down", ``number`` names it
    among those a network holds.
    """

    number: int
    edge: str
    direction: str
    size: int
    kind: str

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"transfer {self.number}: size {self.size} is negative")


@dataclass(frozen=True, slots=True)
class Completion:
    """The last byte of ``transfer`` is due at the receiver at ``due_ns``; its service began at
    ``started_ns``.

    ``shifted_ns``: so much later than it was offered a bottleneck took it, since a late host had
    told that of later moments already; ``due_ns`` is later for it. ``windows_ns``: on a TDMA
    channel, (begin, usable end) of every slot that it was served in.
    """

    transfer: Transfer
    offered_ns: int
    started_ns: int
    due_ns: int
    windows_ns: tuple[tuple[int, int], ...] = ()
    shifted_ns: int = 0
