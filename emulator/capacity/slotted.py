"""A TDMA frame as a gate: open in a device's own slots, closed in other slots and in guards.

| own slot      guard | other slot    guard | own slot      guard | ...   one frame, repeated
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from emulator.capacity.cycle import MAX_PERIOD_NS, OPEN_BIT_S, Cycle
from emulator.errors import BadValue
from emulator.units import seconds_text


class Slotted:
    """A capacity of ``rate_bit_s`` in the slots ``own`` of each frame, and 0 elsewhere.

    ``own`` holds numbers from 0 to ``slots_per_frame`` - 1. The last ``guard_ns`` of every slot are
    closed, even if the next slot is also an own one. A frame starts at ``offset_ns``; frames repeat
    before and after it.
    """

    def __init__(
        self,
        slot_ns: int,
        slots_per_frame: int,
        own: Collection[int],
        guard_ns: int = 0,
        rate_bit_s: int = OPEN_BIT_S,
        offset_ns: int = 0,
    ) -> None:
        if slot_ns < 1 or slots_per_frame < 1 or slot_ns * slots_per_frame > MAX_PERIOD_NS:
            raise BadValue(
                f"{slots_per_frame} slots of {seconds_text(slot_ns)} s: expected 1 or more, of 1 ns"
                " or more"
            )
        if not 0 <= guard_ns < slot_ns:
            raise BadValue(
                f"guard {seconds_text(guard_ns)} s: expected 0 or more and less than the slot,"
                f" {seconds_text(slot_ns)} s"
            )
        wrong = [slot for slot in own if not 0 <= slot < slots_per_frame]
        if wrong or not own:
            raise BadValue(
                f"own slots {sorted(own)}: expected one or more of 0 to {slots_per_frame - 1}"
            )
        self.slot_ns, self.slots_per_frame, self.guard_ns, self.own = (
            slot_ns,
            slots_per_frame,
            guard_ns,
            frozenset(own),
        )
        begins = np.array(sorted(self.own), np.int64) * slot_ns
        ends = begins + slot_ns - guard_ns
        starts = np.unique(
            np.concatenate([[0], begins, ends[ends < slot_ns * slots_per_frame]]).astype(np.int64)
        )
        self._cycle = Cycle(
            offset_ns % (slot_ns * slots_per_frame),
            slot_ns * slots_per_frame,
            starts,
            np.where(np.isin(starts, begins), rate_bit_s, 0),
        )

    def segment(self, t_ns: int) -> tuple[int, int]:
        return self._cycle.segment(t_ns)

    def cycle(self, t_ns: int) -> Cycle:
        """One frame."""
        return self._cycle
