"""Who transmits when on a TDMA channel, one transmission after the other: the reference for the
closed forms, and what figures are drawn from.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from emulator.errors import BadValue

Order = Literal["finished", "oldest"]


class TdmaShape(Protocol):
    """What the channel needs to know; see ``emulator.tdma.closed_form.Tdma``."""

    @property
    def devices(self) -> int: ...
    @property
    def per_round(self) -> int: ...
    @property
    def slots_per_transfer(self) -> int: ...
    @property
    def compute_slots(self) -> int: ...
    @property
    def delay(self) -> int: ...
    @property
    def groups(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Upload:
    """``device`` computed from model ``base`` in slots [began, finished) and sends from ``slot``
    on.
    """

    device: int
    base: int
    began_slot: int
    finished_slot: int
    slot: int


@dataclass(frozen=True, slots=True)
class Round:
    """Uploads one after another, then model ``number`` + 1 to ``receivers`` in slots [broadcast,
    end).
    """

    number: int
    uploads: tuple[Upload, ...]
    receivers: tuple[int, ...]
    broadcast_slot: int
    end_slot: int

    @property
    def staleness(self) -> tuple[int, ...]:
        """Of each upload: rounds since its base."""
        return tuple(self.number - upload.base for upload in self.uploads)


@dataclass(frozen=True, slots=True, order=True)
class _Work:
    """A device's local training: in order of finishing, ties to the lowest index."""

    finished_slot: int
    device: int
    base: int
    began_slot: int


class _Queue:
    """Devices that compute or are ready, and which of them is the next to send."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._computing: list[_Work] = []
        self._ready: list[tuple[int, int, _Work]] = []

    def start(self, work: _Work) -> None:
        heapq.heappush(self._computing, work)

    def ready_from(self, slot: int, count: int) -> int | None:
        """The first slot from ``slot`` on at which ``count`` are ready; None if there are not so
        many.
        """
        missing = count - len(self._ready)
        if missing <= 0:
            return slot
        if missing > len(self._computing):
            return None
        return max(slot, heapq.nsmallest(missing, self._computing)[-1].finished_slot)

    def take(self, slot: int) -> _Work:
        """The next to send at ``slot``, where one is ready."""
        while self._computing and self._computing[0].finished_slot <= slot:
            work = heapq.heappop(self._computing)
            heapq.heappush(
                self._ready,
                (work.base if self._order == "oldest" else work.finished_slot, work.device, work),
            )
        return heapq.heappop(self._ready)[2]


def simulate(
    shape: TdmaShape,
    wait_for_group: bool = False,
    order: Order = "finished",
    compute_slots: Sequence[int] | None = None,
) -> Iterator[Round]:
    """Rounds without end. ``compute_slots``: one number for each device, where they differ.

    Each upload goes to the device that finished first (ties: lowest index), or, by ``order``
    "oldest", to the ready one with the oldest base; with none ready the channel is idle.
    ``wait_for_group``: a round begins when S are ready. Devices neither compute nor wait for their
    turn while they transmit or receive. With an intentional delay, model k + 1 goes to the devices
    of round k - delay; before round 0 these are the groups that have not begun yet.
    """
    takes = (
        list(compute_slots) if compute_slots is not None else [shape.compute_slots] * shape.devices
    )
    if len(takes) != shape.devices:
        raise BadValue(
            f"{len(takes)} computing times: expected one for each of {shape.devices} devices"
        )
    return _rounds(shape, wait_for_group, _Queue(order), takes)


def _rounds(
    shape: TdmaShape, wait_for_group: bool, queue: _Queue, takes: Sequence[int]
) -> Iterator[Round]:
    size, length = shape.per_round, shape.slots_per_transfer
    first = (shape.groups - shape.delay) * size
    late = [
        tuple(range(begin, min(begin + size, shape.devices)))
        for begin in range(first, shape.devices, size)
    ]
    owed = deque(late)  # who receives next, in order of their rounds
    slot, number, starting = 0, 0, tuple(range(min(first, shape.devices)))
    while True:
        for device in starting:
            queue.start(_Work(slot + takes[device], device, number, slot))
        uploads: list[Upload] = []
        while len(uploads) < size:
            begin = queue.ready_from(slot, size if wait_for_group and not uploads else 1)
            if begin is None:
                raise BadValue(
                    f"delay {shape.delay}: in round {number} fewer than S = {size} devices are left"
                    " to send; expected a shorter delay"
                )
            work = queue.take(begin)
            uploads.append(
                Upload(work.device, work.base, work.began_slot, work.finished_slot, begin)
            )
            slot = begin + length
        owed.append(tuple(upload.device for upload in uploads))
        starting = owed.popleft()
        yield Round(number, tuple(uploads), starting, slot, slot + length)
        slot, number = slot + length, number + 1
