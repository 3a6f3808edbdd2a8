"""A simulation of every transmission on a TDMA channel.

It is the reference for the closed forms, and figures are drawn from it.
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
    """The parameters of a simulation; see ``emulator.tdma.closed_form.Tdma``."""

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
    """An upload of ``device`` from ``slot`` on.

    The device computed in slots [began, finished) from model ``base``.
    """

    device: int
    base: int
    began_slot: int
    finished_slot: int
    slot: int


@dataclass(frozen=True, slots=True)
class Round:
    """A round: uploads one after another, then a broadcast of model ``number`` + 1.

    The broadcast goes to ``receivers`` in slots [broadcast, end).
    """

    number: int
    uploads: tuple[Upload, ...]
    receivers: tuple[int, ...]
    broadcast_slot: int
    end_slot: int

    @property
    def staleness(self) -> tuple[int, ...]:
        """The staleness of each upload: rounds since its base."""
        return tuple(self.number - upload.base for upload in self.uploads)


@dataclass(frozen=True, slots=True, order=True)
class _Work:
    """The local training of a device, ordered by its finish and then by device index."""

    finished_slot: int
    device: int
    base: int
    began_slot: int


class _Queue:
    """The devices that compute or are ready to send; it chooses the next sender."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._computing: list[_Work] = []
        self._ready: list[tuple[int, int, _Work]] = []

    def start(self, work: _Work) -> None:
        heapq.heappush(self._computing, work)

    def ready_from(self, slot: int, count: int) -> int | None:
        """The first slot from ``slot`` on at which ``count`` devices are ready.

        None if the queue has fewer devices.
        """
        missing = count - len(self._ready)
        if missing <= 0:
            return slot
        if missing > len(self._computing):
            return None
        return max(slot, heapq.nsmallest(missing, self._computing)[-1].finished_slot)

    def take(self, slot: int) -> _Work:
        """Remove and return the next to send at ``slot``; at least one must be ready."""
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
    """Simulate rounds without end.

    ``compute_slots``: one number per device, if they differ. Each upload is of the device that
    finished first (ties: lowest index) or, with ``order`` "oldest", of the ready device with the
    oldest base. If none is ready, the channel is idle. ``wait_for_group``: a round begins when S
    devices are ready. Devices do not compute or wait while they transmit or receive. With an
    intentional delay, model k + 1 goes to the devices of round k - delay; before round 0 these are
    the groups that have not begun yet.
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
    owed = deque(late)  # devices that receive a model next, in order of their rounds
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
