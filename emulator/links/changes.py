"""Capacities and delays that are replaced while in use; the past does not change."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from emulator.capacity import Capacity
from emulator.capacity.compose import cycle_of
from emulator.capacity.cycle import Cycle
from emulator.delay import Delay
from emulator.links.booking import Plan
from emulator.units import FOREVER

# earlier pieces that are always kept; older ones are dropped when no plan needs them
MOST_PAST = 32


class ChangedCapacity:
    """A capacity made of ``pieces``: (from_ns, capacity), ascending; the first holds from 0."""

    def __init__(self, pieces: list[tuple[int, Capacity]]) -> None:
        self._pieces = pieces
        self._from_ns = [from_ns for from_ns, _ in pieces]

    def segment(self, t_ns: int) -> tuple[int, int]:
        index = max(bisect_right(self._from_ns, t_ns) - 1, 0)
        rate_bit_s, until_ns = self._pieces[index][1].segment(t_ns)
        return rate_bit_s, min([until_ns, *self._from_ns[index + 1 : index + 2]])

    def cycle(self, t_ns: int) -> Cycle | None:
        """The cycle of the last piece, from its first period that starts within the piece."""
        from_ns, last = self._pieces[-1]
        # not earlier: a trace may start at its first query
        cycle = cycle_of(last, max(t_ns, from_ns))
        if cycle is None or cycle.from_ns >= from_ns:
            return cycle
        return cycle.moved(from_ns + (cycle.from_ns - from_ns) % cycle.period_ns)

    def then(self, capacity: Capacity, at_ns: int, needed_ns: int) -> ChangedCapacity:
        """Append ``capacity`` from ``at_ns`` on.

        Pieces that end before ``needed_ns`` may be dropped.
        """
        return ChangedCapacity(
            [*self._pieces[-_still_needed(self._from_ns, needed_ns) :], (at_ns, capacity)]
        )


class ChangedDelay:
    """A delay made of ``pieces``: (after_ns, floor_ns, delay), ascending.

    Bytes that leave after ``after_ns`` have that delay and do not arrive before ``floor_ns``. This
    is the arrival of the last byte that left before, so that no byte overtakes another.
    """

    def __init__(self, pieces: list[tuple[int, int, Delay]]) -> None:
        self._pieces = pieces
        self._after_ns = [after_ns for after_ns, _, _ in pieces]

    def arrival(self, sent_ns: int) -> int:
        if sent_ns >= FOREVER:
            return FOREVER
        _, floor_ns, delay = self._pieces[max(bisect_left(self._after_ns, sent_ns) - 1, 0)]
        return max(delay.arrival(sent_ns), floor_ns)

    def departure(self, arrival_ns: int) -> int:
        until_ns = FOREVER  # bytes that leave later have not arrived
        for after_ns, floor_ns, delay in self._pieces[:0:-1]:
            if arrival_ns >= floor_ns:
                return min(max(delay.departure(arrival_ns), after_ns), until_ns)
            until_ns = after_ns
        return min(self._pieces[0][2].departure(arrival_ns), until_ns)

    def then(self, delay: Delay, after_ns: int, floor_ns: int, needed_ns: int) -> ChangedDelay:
        """Append ``delay`` for bytes that leave after ``after_ns``.

        Pieces that only bytes before ``needed_ns`` used may be dropped.
        """
        kept = self._pieces[-_still_needed(self._after_ns, needed_ns) :]
        return ChangedDelay([*kept, (after_ns, max(floor_ns, kept[-1][1]), delay)])


def changed_capacity(before: Capacity, after: Capacity, at_ns: int, needed_ns: int) -> Capacity:
    """Return the capacity that is ``before`` until ``at_ns`` and ``after`` from then on."""
    changed = before if isinstance(before, ChangedCapacity) else ChangedCapacity([(0, before)])
    return changed.then(after, at_ns, needed_ns)


def changed_delay(before: Delay, after: Delay, at_ns: int, plans: Iterable[Plan]) -> Delay:
    """Return the delay that is ``before`` for bytes that leave by ``at_ns``, and ``after`` later.

    Later bytes do not overtake earlier ones. ``plans``: those of all transfers that have not
    arrived.
    """
    plans = list(plans)
    changed = before if isinstance(before, ChangedDelay) else ChangedDelay([(0, 0, before)])
    left_ns = [
        min(plan.curve.when(n_bytes), plan.finish_ns)
        for plan in plans
        if (n_bytes := plan.curve.served(at_ns)) or plan.finish_ns <= at_ns
    ]
    floor_ns = before.arrival(max(left_ns)) if left_ns else 0
    return changed.then(after, at_ns, floor_ns, min([at_ns, *(plan.start_ns for plan in plans)]))


def _still_needed(borders_ns: list[int], needed_ns: int) -> int:
    return max(
        len(borders_ns) - max(bisect_right(borders_ns, needed_ns) - 1, 0),
        min(MOST_PAST, len(borders_ns)),
    )
