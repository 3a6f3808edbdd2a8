"""The rules of the exchange between coordinator and edges that both hosts follow.

A model moves down to its edge. An update is offered, waits until it is granted, and moves up. A
note has no bytes: it takes the link's latency, or no emulated time at all. Here is no I/O, and no
clock: each host keeps its own tables of what is offered and moving, and asks here what happens to
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from edgefl.hosts.setup.network import ALL
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

# Requests, refusals and urging belong to an algorithm. The other notes belong to the testbed: they
# are free, so that its protocol costs no emulated time.
CHARGED = (FreshRequest, NothingNewer, UrgeTask)

# what a note ends of its task
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
    """Everything that is due at ``at_ns`` happens before the alarms of ``at_ns`` ring: who asks
    for an alarm decides then with all that has come by that moment.

    ``happen(at_ns)`` does what is due; what follows from it may be due at the same moment.
    """
    while next_due() <= at_ns:
        happen(at_ns)
    ring(at_ns)


def pays_latency(note: ToEdge | ToCoordinator) -> bool:
    """Whether the note takes the link's latency, either way."""
    return isinstance(note, CHARGED)


def ends(note: ToEdge, kind: str, task: int) -> bool:
    """Whether ``note`` ends what is offered, granted or moving, of this kind and task."""
    return kind in ENDED.get(type(note), ()) and getattr(note, "task", None) == task


class Answers:
    """Which edges still take an answer to their FreshRequest."""

    def __init__(self) -> None:
        self._closed: dict[str, int] = {}  # edge -> the latest task whose request is closed

    @staticmethod
    def closes_ns(request: FreshRequest) -> int | None:
        """From this moment on an answer is too late: the host then closes the request. None: the
        edge stands still until the answer comes.
        """
        return request.until_ns or None

    def close(self, edge: str, task: int) -> TooLate:
        """The moment has come; returns what the edge is told, which ends its download."""
        self._closed[edge] = task
        return TooLate(task)

    def too_late(self, edge: str, kind: str, task: int) -> bool:
        """Whether a model for this edge must not start any more."""
        return kind == FRESH and self._closed.get(edge) == task


# ------------------------------------------------------------------ broadcasts on a TDMA channel
def offer_broadcast(
    network: Network, number: int, sizes: Iterable[int], slots: tuple[int, ...], now: int
) -> Transfer:
    """Put one transfer for many edges on the channel. The receivers' ``sizes`` may differ by a
    digit of their tasks' numbers: the largest counts.
    """
    transfer = Transfer(number, ALL, "down", max(sizes), TASK)
    network.offer(transfer, now)
    network.grant(transfer, slots, now)
    return transfer


def heard_ns(network: Network, edge: str, sent_ns: int) -> int:
    """When ``edge`` makes use of what left the channel at ``sent_ns``: at the first border of a
    slot after it has arrived there.
    """
    link = network.link(edge, "down")
    assert isinstance(link, ChannelLink)
    grid = link.channel.grid
    return grid.begins(grid.next_at(link.delay.arrival(sent_ns)))
