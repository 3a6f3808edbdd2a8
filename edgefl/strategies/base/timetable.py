"""What a slotted strategy knows about the TDMA channel and the devices' computing times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timetable:
    """The slots of the channel, and how many of them transfers and tasks take.

    Slot i begins at i ``slot_ns``; the transfer of a model takes ``transfer_slots`` (r).
    ``late_ns``: how long after the usable end of its slots, beyond the guard, a transfer may still
    arrive. ``compute_slots(edge, samples, steps)``: slots that the edge's task takes (tau_comp),
    None if it is not known in advance; ``steps`` None: the steps of the config's epochs. ``known``:
    ``compute_slots`` knows all edges. ``auto_delay(devices, per_round, compute_slots)``: the
    longest delay, in rounds, for which every round has S updates and no round ends later.
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
        """Return the first slot that begins at ``now`` or later."""
        return -(-now // self.slot_ns)

    def settled_ns(self, slot: int) -> int:
        """Return the slot border (ns) by which everything sent before ``slot`` has arrived."""
        return self.begins(
            slot if self.late_ns <= 0 else self.next_at(self.begins(slot) + self.late_ns)
        )
