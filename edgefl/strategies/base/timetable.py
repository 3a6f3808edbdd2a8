"""What a slotted strategy knows about the TDMA channel: where slots begin, how many a model
takes, how long devices compute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timetable:
    """Slot i begins at i ``slot_ns``; a model takes ``transfer_slots`` (r). ``late_ns``: how long
    after the usable end of its slots a transfer may still arrive, beyond the guard.

    ``compute_slots(edge, samples, steps)``: slots that the edge's task takes (tau_comp), None if
    it is not known beforehand; ``steps`` None: as many as the config's epochs make. ``known``: it
    knows of all edges. ``auto_delay(devices, per_round, compute_slots)``: the longest delay, in
    rounds, with which every round has S updates and none ends later.
    """

    slot_ns: int
    transfer_slots: int
    late_ns: int
    known: bool
    compute_slots: Callable[[str, int, int | None], int | None]
    auto_delay: Callable[[int, int, int], int]

    def begins(self, slot: int) -> int:
        return slot * self.slot_ns

    def next_at(self, now: int) -> int:
        """The first slot that begins at ``now`` or later."""
        return -(-now // self.slot_ns)

    def settled_ns(self, slot: int) -> int:
        """The border by which all that was sent before ``slot`` has arrived."""
        return self.begins(
            slot if self.late_ns <= 0 else self.next_at(self.begins(slot) + self.late_ns)
        )
