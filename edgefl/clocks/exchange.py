"""Rules of the exchange between coordinator and edges; both hosts follow them.

A model moves down to its edge. An update is offered, waits until it is granted, and moves up. A
note has no bytes: it takes the link's latency, or no emulated time at all. This module has no I/O
and no clock. Each host keeps its own tables of what is offered and what is moving, and applies
these rules to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edgefl.clocks.setup.network import ALL
from edgefl.protocol.messages import (
    FRESH,
    TASK,
    UPDATE,
    Acknowledged,
    CancelTask,
    FreshRequest,
    NothingNewer,
    ToCoordinator,
    ToEdge,
    TooLate,
    UrgeTask,
)
from emulator.links.network import Network, Transfer
from emulator.tdma.channel import ChannelLink

# Requests, refusals and urges are part of an algorithm. The other notes are part of the testbed's
# own protocol, which must cost no emulated time.
CHARGED = (FreshRequest, NothingNewer, UrgeTask)

# kinds of transfer that a note ends
ENDED: Mapping[type, Sequence[str]] = {
    CancelTask: (TASK, FRESH, UPDATE),
    Acknowledged: (UPDATE,),
    TooLate: (FRESH,),
}


def play_moment(
    at_ns: int,
    next_due: Callable[[], int],
    happen: Callable[[int], None],
    ring: Callable[[int], None],
) -> None:
    """Process everything that is due at ``at_ns``, then ring the alarms of ``at_ns``.

    A strategy that has set an alarm so decides with all that has arrived by that moment.
    ``happen(at_ns)`` does what is due. Its effects may be due at the same moment.
    """
    while next_due() <= at_ns:
        happen(at_ns)
    ring(at_ns)


def pays_latency(note: ToEdge | ToCoordinator) -> bool:
    """Whether the note takes the link's latency, in either direction."""
    return isinstance(note, CHARGED)


def ends(note: ToEdge, kind: str, task: int) -> bool:
    """Whether ``note`` ends an offered, granted or moving transfer of this kind and task."""
    return kind in ENDED.get(type(note), ()) and getattr(note, "task", None) == task


class Answers:
    """Which edges still accept an answer to their FreshRequest."""

    def __init__(self) -> None:
        self._closed: dict[str, int] = {}  # edge -> the latest task whose request is closed

    @staticmethod
    def closes_ns(request: FreshRequest) -> int | None:
        """The moment from which an answer is too late: the host then closes the request.

        None: the edge does nothing until the answer arrives.
        """
        return request.until_ns or None

    def close(self, edge: str, task: int) -> TooLate:
        """Close the request. Returns the note for the edge, which ends the answer's download."""
        self._closed[edge] = task
        return TooLate(task)

    def too_late(self, edge: str, kind: str, task: int) -> bool:
        """Whether this transfer answers a closed request: it must not start."""
        return kind == FRESH and self._closed.get(edge) == task


# ------------------------------------------------------------------ broadcasts on a TDMA channel
def offer_broadcast(
    network: Network, number: int, sizes: Iterable[int], slots: tuple[int, ...], now: int
) -> Transfer:
    """Put one transfer for many edges on the channel.

    The largest of the receivers' ``sizes`` (bytes) counts. They may differ by a few bytes, because
    task numbers differ in length.
    """
    transfer = Transfer(number, ALL, "down", max(sizes), TASK)
    network.offer(transfer, now)
    network.grant(transfer, slots, now)
    return transfer


def heard_ns(network: Network, edge: str, sent_ns: int) -> int:
    """When ``edge`` uses what left the channel at ``sent_ns``: at the first slot boundary after
    its arrival at the edge.
    """
    link = network.link(edge, "down")
    assert isinstance(link, ChannelLink)
    grid = link.channel.grid
    return grid.begins(grid.next_at(link.delay.arrival(sent_ns)))
