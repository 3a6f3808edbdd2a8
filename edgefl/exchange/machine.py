"""The state machine of all transfers of a run, and the rules of notes.

A model moves down to its edge. An update is offered, waits until it is granted, and moves up::

    download            MOVING -> CARRIED or ARRIVED -> DELIVERED
    upload   OFFERED -> MOVING -> CARRIED or ARRIVED -> DELIVERED

A transfer is delivered once its link has carried it and its last byte has arrived. Under the
virtual clock both happen at once. Until then a note, or the end of its edge, may cancel it.

A note has no bytes: it takes the link's latency, or no emulated time at all. ``FaultLives`` says
which edges injected faults have killed or frozen.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from edgefl.protocol.messages import (
    DROPPED,
    DROPPED_PUSH,
    FRESH,
    PUSH,
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
from edgefl.record.files import ALL_EDGES
from emulator.clock import Agenda
from emulator.faults import Fault
from emulator.links.network import Completion, Network, Transfer
from emulator.tdma.channel import ChannelLink

# Requests, refusals and urges are part of an algorithm. The other notes are part of the testbed's
# own protocol, which must cost no emulated time.
CHARGED = (FreshRequest, NothingNewer, UrgeTask)

# kinds of transfer that a note ends
ENDED: Mapping[type, Sequence[str]] = {
    CancelTask: (TASK, FRESH, PUSH, UPDATE),
    Acknowledged: (UPDATE, PUSH),
    TooLate: (FRESH,),
}
MOST_PUSHES = 8  # to one edge that are under way; the latest beyond that is dropped
# deliveries per edge that can be repeated after a broken session
REMEMBERED = 4 + MOST_PUSHES


def play_moment(
    at_ns: int,
    next_due: Callable[[], int],
    happen: Callable[[int], None],
    ring: Callable[[int], None],
) -> None:
    """Process everything that is due at ``at_ns``, then ring the alarms of ``at_ns``.

    So a strategy that has set an alarm decides with all that has arrived by that moment.
    ``happen(at_ns)`` does what is due. Its effects may be due at the same moment.
    """
    while next_due() <= at_ns:
        happen(at_ns)
    ring(at_ns)


def ends(note: ToEdge, kind: str, task: int) -> bool:
    """Whether ``note`` ends a transfer of this kind and task that is not delivered yet."""
    return kind in ENDED.get(type(note), ()) and getattr(note, "task", None) == task


def closes_ns(request: FreshRequest) -> int | None:
    """The moment from which an answer is too late: the request is closed then.

    None: the edge does nothing until the answer arrives.
    """
    return request.until_ns or None


def broadcast_transfer(number: int, sizes: Iterable[int], kind: str = TASK) -> Transfer:
    """One transfer for many edges. The largest of the receivers' ``sizes`` (bytes) counts.

    They may differ by a few bytes, because task numbers differ in length.
    """
    return Transfer(number, ALL_EDGES, "down", max(sizes), kind)


def heard_ns(network: Network, edge: str, sent_ns: int) -> int:
    """When ``edge`` uses what left a TDMA channel at ``sent_ns``: at the first slot boundary after
    its arrival at the edge.
    """
    link = network.link(edge, "down")
    assert isinstance(link, ChannelLink)
    grid = link.channel.grid
    return grid.begins(grid.next_at(link.delay.arrival(sent_ns)))


class Deliveries:
    """The latest deliveries to each edge, transfer -> moment (emulated ns).

    The edge may not have learned of them when its session broke.
    """

    def __init__(self) -> None:
        self.of_edge: dict[str, OrderedDict[int, int]] = {}

    def add(self, edge: str, number: int, at_ns: int) -> None:
        latest = self.of_edge.setdefault(edge, OrderedDict())
        latest[number] = at_ns
        while len(latest) > REMEMBERED:
            latest.popitem(last=False)


class Phase(Enum):
    """How far a transfer is."""

    OFFERED = "offered"  # it waits for its grant
    MOVING = "moving"  # it is on its link, or in its queue
    CARRIED = "carried"  # its link has carried it; bytes are still missing
    ARRIVED = "arrived"  # its bytes have arrived, earlier than its link carries them
    DELIVERED = "delivered"


@dataclass(slots=True, eq=False)
class Flow:
    """One transfer, from its offer to its delivery.

    ``transfer``: an upload gets its number with its grant. ``content``: what it carries.
    ``completion``: set when its link has carried it. ``last_byte_ns``: when its last byte arrived.
    ``awaits_bytes``: its bytes are really sent; otherwise they arrive when they are due.
    ``offer``: an upload's number in the offers of its edge. ``broadcast``: for a copy of a
    broadcast, the transfer that is emulated for all copies. ``unheard``: that transfer has left the
    channel, and the copy's edge hears it later.
    """

    transfer: Transfer
    task: int
    content: Any
    offer: int | None = None
    awaits_bytes: bool = False
    granted: bool = False
    completion: Completion | None = None
    last_byte_ns: int | None = None
    broadcast: Transfer | None = None
    unheard: bool = False

    @property
    def phase(self) -> Phase:
        if not self.granted:
            return Phase.OFFERED
        if self.completion is None:
            return Phase.MOVING if self.last_byte_ns is None else Phase.ARRIVED
        return Phase.CARRIED if self.last_byte_ns is None else Phase.DELIVERED


FlowT = TypeVar("FlowT", bound=Flow)


class Exchange(Generic[FlowT]):
    """All transfers of a run that are offered or under way. ``latency_ns``: of notes, by edge."""

    def __init__(self, network: Network, latency_ns: Mapping[str, int]) -> None:
        self.network, self.latency_ns = network, latency_ns
        self.flows: dict[int, FlowT] = {}  # granted, by number
        self.of_edge: defaultdict[str, dict[int, FlowT]] = defaultdict(dict)  # the same, by edge
        # by edge and number of the offer, also while they move
        self.uploads: defaultdict[str, dict[int, FlowT]] = defaultdict(dict)
        self._copies: dict[int, list[FlowT]] = {}  # by the number of their broadcast
        self._unheard: Agenda[FlowT] = Agenda()  # copies, until their edges hear them
        self._closed: dict[str, int] = {}  # edge -> the latest task whose request is closed

    # ------------------------------------------------------------------ offered and moving
    def offer(self, flow: FlowT) -> None:
        """An update is ready; it waits for its grant."""
        assert flow.offer is not None
        self.uploads[flow.transfer.edge][flow.offer] = flow

    def offered(self, edge: str, task: int) -> FlowT | None:
        """The update of this task that waits for its grant."""
        for flow in self.uploads[edge].values():
            if flow.task == task and not flow.granted:
                return flow
        return None

    def begin(self, flow: FlowT, now: int, slots: tuple[int, ...] | None = None) -> None:
        """Put a transfer on its link. ``slots``: of the TDMA channel, which are granted to it."""
        self.network.offer(flow.transfer, now)
        if slots is not None:
            self.network.grant(flow.transfer, slots, now)
        self.add(flow)

    def add(self, flow: FlowT) -> None:
        """Add a transfer that is granted. The network does not know it, or has it already."""
        flow.granted = True
        transfer = flow.transfer
        self.flows[transfer.number] = self.of_edge[transfer.edge][transfer.number] = flow

    def broadcast(
        self, carrier: FlowT, copies: list[FlowT], slots: tuple[int, ...], now: int
    ) -> None:
        """Put one transfer for many edges on the channel, see ``carrier``.

        Its ``copies``, which the network does not know, are carried when their edges hear it.
        """
        self.begin(carrier, now, slots)
        self._copies[carrier.transfer.number] = copies
        for copy in copies:
            copy.broadcast = carrier.transfer
            self.add(copy)

    def copies_of(self, number: int) -> list[FlowT]:
        """The copies of a broadcast that is on the channel."""
        return self._copies.get(number, [])

    def make_room(self, edge: str, task: int, replaces: bool, now: int) -> list[FlowT]:
        """Before a push to this task begins: cancel and return those that it takes the place of.

        They wait in the queue of their link, and nothing of them was sent. With ``replaces`` they
        are all of the task's, otherwise the latest if MOST_PUSHES are under way.
        """
        flows = [each for each in self.of_edge[edge].values() if each.transfer.kind == PUSH]
        waiting = [each for each in flows if each.task == task and self._waits(each, now)]
        dropped = waiting if replaces else waiting[-1:] * (len(flows) >= MOST_PUSHES)
        for flow in dropped:
            self.cancel(flow, now)
        return dropped

    def has_room(self, edge: str) -> bool:
        """Whether one more push to this edge may begin."""
        flows = self.of_edge[edge].values()
        return sum(flow.transfer.kind == PUSH for flow in flows) < MOST_PUSHES

    def _waits(self, flow: FlowT, now: int) -> bool:
        """Whether nothing of a download was sent by ``now``."""
        if flow.completion is not None or flow.broadcast is not None:
            return False
        started_ns = self.network.started(flow.transfer)
        unsent = started_ns is None or started_ns > now
        return unsent and self.network.progress(flow.transfer, now) == 0

    # ------------------------------------------------------------------ carried and arrived
    def next_due(self) -> int:
        """The next moment at which ``carried`` has something to do."""
        return min(self.network.next_due(), self._unheard.next_due())

    def carried(self, now: int) -> list[FlowT]:
        """Remove and return the transfers that are delivered: their links have carried them by
        ``now``, and all their bytes are there.
        """
        delivered: list[FlowT] = []
        for completion in self.network.pop_due(now):
            number = completion.transfer.number
            self._carried(self.flows[number], completion, delivered)
            for copy in self._copies.pop(number, ()):
                if copy.transfer.number not in self.flows:
                    continue  # it was cancelled
                due_ns = heard_ns(self.network, copy.transfer.edge, completion.due_ns)
                copy.completion = replace(completion, transfer=copy.transfer, due_ns=due_ns)
                copy.unheard = True
                self._unheard.add(due_ns, copy)
        for _, copy in self._unheard.pop_due(now):
            copy.unheard = False
            if copy.last_byte_ns is not None and copy.transfer.number in self.flows:
                self._remove(copy)
                delivered.append(copy)
        return delivered

    def _carried(self, flow: FlowT, completion: Completion, delivered: list[FlowT]) -> None:
        flow.completion = completion
        if not flow.awaits_bytes:
            flow.last_byte_ns = completion.due_ns
        if flow.last_byte_ns is not None:
            self._remove(flow)
            delivered.append(flow)

    def arrived(self, flow: FlowT, at_ns: int) -> bool:
        """The last byte has arrived. Returns whether this delivers the transfer."""
        flow.last_byte_ns = at_ns
        if flow.completion is None or flow.unheard:
            return False
        self._remove(flow)
        return True

    # ------------------------------------------------------------------ cancelled
    def under_way(self, edge: str) -> list[FlowT]:
        """The edge's uploads from their offer on, and its downloads."""
        downloads = (flow for flow in self.of_edge[edge].values() if flow.offer is None)
        return [*self.uploads[edge].values(), *downloads]

    def end(self, edge: str, note: ToEdge, now: int) -> list[FlowT]:
        """Cancel and return the transfers that ``note`` ends.

        A push of which something was carried has a ``completion``: that part of it.
        """
        if type(note) not in ENDED:
            return []
        ended = [flow for flow in self.under_way(edge) if ends(note, flow.transfer.kind, flow.task)]
        for flow in ended:
            brought = self._brought(flow, now) if flow.transfer.kind == PUSH else flow.completion
            self.cancel(flow, now)
            flow.completion = brought
        return ended

    def _brought(self, flow: FlowT, now: int) -> Completion | None:
        if flow.completion is not None or flow.broadcast is not None:
            return flow.completion
        part = self.network.carried(flow.transfer, now, DROPPED_PUSH)
        return part if part.transfer.size else None

    def cancel(self, flow: FlowT, now: int) -> None:
        if flow.granted and flow.completion is None and flow.broadcast is None:
            self.network.cancel(flow.transfer, now)
        self._remove(flow)

    def _remove(self, flow: FlowT) -> None:
        edge = flow.transfer.edge
        if flow.granted:
            self.flows.pop(flow.transfer.number, None)
            self.of_edge[edge].pop(flow.transfer.number, None)
        if flow.offer is not None:
            self.uploads[edge].pop(flow.offer, None)

    # ------------------------------------------------------------------ notes
    def note_due_ns(self, edge: str, note: ToEdge | ToCoordinator, at_ns: int) -> int:
        """When a note that is sent at ``at_ns`` arrives, in either direction."""
        return at_ns + self.latency_ns[edge] if isinstance(note, CHARGED) else at_ns

    def open(self, edge: str) -> None:
        """The edge asks for a fresher model, maybe once more for its task."""
        self._closed.pop(edge, None)

    def close(self, edge: str, task: int, now: int) -> tuple[TooLate, list[FlowT]]:
        """Close a request for a fresher model whose answer has not arrived in time.

        The answer's download ends; what was carried so far is its completion. Returns the note for
        the edge, and the transfers that have ended.
        """
        self._closed[edge] = task
        note = TooLate(task)
        brought = {
            flow.transfer.number: flow.completion
            or self.network.carried(flow.transfer, now, DROPPED)
            for flow in self.under_way(edge)
            if ends(note, flow.transfer.kind, flow.task)
        }
        ended = self.end(edge, note, now)
        for flow in ended:
            flow.completion = brought[flow.transfer.number]
        return note, ended

    def too_late(self, edge: str, kind: str, task: int) -> bool:
        """Whether this transfer answers a closed request: it must not start."""
        return kind == FRESH and self._closed.get(edge) == task


# ---------------------------------------------------------------------- injected faults
class Effect(Enum):
    """What a fault did to its edge's process."""

    DIED = "died"
    CAME_BACK = "came back"
    FROZE = "froze"
    STAYS_FROZEN = "stays frozen"  # the edge was already frozen


class FaultLives:
    """Which of ``edges`` are down or frozen, and which edges' next update is faulty.

    ``revives``: whether the schedule brings dead edges back. Each death and each return begins a
    new life, and cancels what was planned for the earlier one.
    """

    def __init__(self, edges: Collection[str], revives: bool) -> None:
        self.revives, self._edges = revives, len(edges)
        self.down: set[str] = set()
        self._lives: defaultdict[str, int] = defaultdict(int)  # deaths and returns so far
        self._frozen_until: dict[str, int] = {}
        self._marked: set[tuple[str, str]] = set()  # (kind of fault, edge)

    def strike(self, fault: Fault, now: int) -> Iterator[Effect]:
        """Yield what this fault does to its edge's process, in order.

        Carry out each effect before you ask for the next. There is no effect if the edge is down,
        or if the fault is one of a link, a device or an update.
        """
        edge = fault.target
        match fault.kind:
            case "kill" | "restart":
                if edge not in self.down:
                    self.down.add(edge)
                    self._begin_life(edge)
                    yield Effect.DIED
                if fault.kind == "restart":
                    self.down.discard(edge)
                    self._begin_life(edge)
                    yield Effect.CAME_BACK
            case "freeze" if edge not in self.down:
                known_ns = self.frozen_until(edge)
                self._frozen_until[edge] = max(known_ns, fault.until_ns)
                yield Effect.STAYS_FROZEN if known_ns > now else Effect.FROZE
            case "duplicate" | "corrupt":
                self._marked.add((fault.kind, edge))

    def _begin_life(self, edge: str) -> None:
        self._lives[edge] += 1
        self._frozen_until.pop(edge, None)

    def frozen_until(self, edge: str) -> int:
        """When the edge's latest freeze ends (ns); 0: it was not frozen in this life."""
        return self._frozen_until.get(edge, 0)

    def in_this_life(self, edge: str, call: Callable[[str, int], None]) -> Callable[[int], None]:
        """``call(edge, now)`` for an agenda; it does nothing once the edge dies or comes back."""
        return partial(self._in_life, edge, self._lives[edge], call)

    def _in_life(self, edge: str, life: int, call: Callable[[str, int], None], now: int) -> None:
        if self._lives[edge] == life:
            call(edge, now)

    def take(self, kind: str, edge: str) -> bool:
        """Whether the edge's next update gets this fault. The first call clears the mark."""
        marked = (kind, edge) in self._marked
        self._marked.discard((kind, edge))
        return marked

    @property
    def some_return(self) -> bool:
        """Whether an edge is down that the schedule may bring back."""
        return bool(self.down) and self.revives

    @property
    def deserted(self) -> bool:
        """Whether all edges are down and the schedule brings none back."""
        return not self.revives and len(self.down) == self._edges
