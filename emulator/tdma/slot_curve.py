"""The grid of slots, and the service in some of them, in integers and closed form."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from emulator.errors import BadValue
from emulator.units import FOREVER


@dataclass(frozen=True, slots=True)
class Grid:
    """The grid of slots: slot i begins at ``start_ns`` + i * ``slot_ns``.

    ``frame_slots`` slots make a frame, in which devices may have fixed places.
    """

    slot_ns: int
    guard_ns: int = 0
    frame_slots: int = 1
    start_ns: int = 0

    def __post_init__(self) -> None:
        for name, least in (("slot_ns", 1), ("guard_ns", 0), ("frame_slots", 1), ("start_ns", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadValue(f"{name} {value!r}: expected a whole number, {least} or more")
        if self.guard_ns >= self.slot_ns:
            raise BadValue(
                f"slot of {self.slot_ns} ns: expected more than its guard of {self.guard_ns} ns"
            )

    @property
    def usable_ns(self) -> int:
        return self.slot_ns - self.guard_ns

    def begins(self, slot: int) -> int:
        """The moment at which ``slot`` begins."""
        return self.start_ns + slot * self.slot_ns

    def at(self, t_ns: int) -> int:
        """The slot that contains ``t_ns``; negative before the first."""
        return (t_ns - self.start_ns) // self.slot_ns

    def next_at(self, t_ns: int) -> int:
        """The first slot that begins at ``t_ns`` or later."""
        return max(-((self.start_ns - t_ns) // self.slot_ns), 0)


class SlotCurve:
    """Service in ``slots`` (ascending): ``bytes_per`` bytes per ``per`` ns of their usable time.

    No byte is served before its slot.
    """

    __slots__ = ("_grid", "_slots", "_bytes_per", "_per", "_from_ns")

    def __init__(self, grid: Grid, slots: list[int], bytes_per: int, per: int) -> None:
        self._grid, self._slots, self._bytes_per, self._per = grid, slots, bytes_per, per
        self._from_ns = grid.begins(slots[0])

    def served(self, t_ns: int) -> int:
        index = bisect_right(self._slots, self._grid.at(t_ns)) - 1
        if index < 0:
            return 0
        within_ns = min(t_ns - self._grid.begins(self._slots[index]), self._grid.usable_ns)
        return self._bytes_per * (index * self._grid.usable_ns + within_ns) // self._per

    def when(self, size_bytes: int) -> int:
        if size_bytes <= 0:
            return self._from_ns
        index, before_ns = self._last(size_bytes)
        return (
            self._grid.begins(self._slots[index]) + before_ns
            if index < len(self._slots)
            else FOREVER
        )

    def opens_at(self, size_bytes: int) -> int:
        """The start of the slot that serves byte ``size_bytes``."""
        index, _ = self._last(max(size_bytes, 1))
        return self._grid.begins(self._slots[index]) if index < len(self._slots) else FOREVER

    def stretch_end(self, t_ns: int) -> int:
        """The end of the usable time of the slot at ``t_ns``, otherwise of the next slot.

        FOREVER after the last slot.
        """
        index = max(bisect_right(self._slots, self._grid.at(t_ns)) - 1, 0)
        ends = (
            self._grid.begins(slot) + self._grid.usable_ns
            for slot in self._slots[index : index + 2]
        )
        return next((end_ns for end_ns in ends if t_ns < end_ns), FOREVER)

    def stretch_bytes(self, size_bytes: int) -> int:
        """Total bytes served by the end of the slot that serves byte ``size_bytes`` + 1.

        ``size_bytes`` if no slot serves it.
        """
        index, _ = self._last(size_bytes + 1)
        return (
            self._bytes_per * (index + 1) * self._grid.usable_ns // self._per
            if index < len(self._slots)
            else size_bytes
        )

    def _last(self, size_bytes: int) -> tuple[int, int]:
        """Return (index of the slot that serves byte ``size_bytes``, ns within that slot)."""
        index, rest_ns = divmod(
            usable(size_bytes, self._bytes_per, self._per) - 1, self._grid.usable_ns
        )
        return index, rest_ns + 1


def usable(size_bytes: int, bytes_per: int, per: int) -> int:
    """Usable ns that ``size_bytes`` take, rounded up."""
    return -(-size_bytes * per // bytes_per)
