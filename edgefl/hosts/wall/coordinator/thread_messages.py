"""Messages between the two threads of the coordinator's process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgefl.hosts.wall.coordinator.stretches import Stretch
from edgefl.jobs import Scores
from edgefl.protocol.host_reports import HostFacts, HostReport
from edgefl.protocol.messages import Ready, ToCoordinator, ToEdge
from edgefl.protocol.transfers import Incoming, Outgoing
from edgefl.strategies.base.events_and_decisions import EdgeLost, Grant
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Transfer
from emulator.values import value_class


# ------------------------------------------------------------------ pacing -> logic
@value_class(frozen=True, slots=True)
class Begin:
    """The run begins: emulated time 0 is now. ``edges``: joined edges -> samples.

    ``unix_s``: the time of this moment.
    """

    edges: dict[str, int]
    unix_s: float = 0.0


@value_class(frozen=True, slots=True)
class Resumed:
    """A run that was broken off goes on: the emulated moment ``now`` is now.

    ``outage_s``: seconds since the last input before. ``unix_s``: the time of this moment.
    """

    now: int
    outage_s: float
    unix_s: float


@value_class(frozen=True, slots=True)
class Heard:
    """A message for the coordinator, at emulated ``now``."""

    now: int
    edge: str
    message: ToCoordinator | EdgeLost


@value_class(frozen=True, slots=True)
class Whole:
    """All bytes of an update have arrived. The logic thread assembles and checks them."""

    now: int
    edge: str
    incoming: Incoming


@value_class(frozen=True, slots=True)
class CameAhead:
    """An update is ready at emulated ``now``, and all of its bytes have come behind its Offer.

    The last one came at ``arrived_ns``. ``stretches``: see Measured.
    """

    now: int
    edge: str
    ready: Ready
    incoming: Incoming
    arrived_ns: int
    stretches: list[Stretch]

    def granted(self, granted: Granted) -> tuple[Carried, Whole]:
        """What an upload with this grant brings: nothing is left to be sent."""
        offer, at_ns = self.incoming.offer, granted.now
        size = len(offer.meta) + offer.size
        transfer = Transfer(granted.number, self.edge, "up", size, offer.kind)
        done_ns = max(self.arrived_ns, at_ns)
        completion = Completion(transfer, at_ns, at_ns, at_ns)
        whole = Whole(done_ns, self.edge, self.incoming)
        return Carried(completion, done_ns, self.stretches), whole


@value_class(frozen=True, slots=True)
class Carried:
    """A transfer is done: a row of the link log.

    ``stretches``: of a native link, see Measured.
    """

    completion: Completion
    finished_ns: int
    stretches: Sequence[Stretch] = ()


@value_class(frozen=True, slots=True)
class Measured:
    """What a native device did, or a ping: rows of measured.csv, see ``edgefl.record.files``.

    ``number``: of the task; None for a ping. ``stretches``: (begin, end, amount).
    """

    what: str
    edge: str
    number: int | None
    stretches: list[Stretch]


@value_class(frozen=True, slots=True)
class Rang:
    """The alarm that the coordinator has set is due."""

    now: int


@value_class(frozen=True, slots=True)
class Greedy:
    """A peer's connection was closed, because it has sent more than it may."""

    routing: bytes
    reason: str


@value_class(frozen=True, slots=True)
class Stranger:
    """Connections without a session are closed for this reason; told at the first one."""

    reason: str


@value_class(frozen=True, slots=True)
class Noticed:
    """A fact for the record."""

    now: int
    fact: str
    values: dict[str, Any]


@value_class(frozen=True, slots=True)
class HostSaid:
    """An edge tells about its host, at emulated ``at_ns``. This is no event of the run."""

    at_ns: int
    edge: str
    message: HostFacts | HostReport


@value_class(frozen=True, slots=True)
class Evaluated:
    """The result of an evaluation has arrived."""

    version: int
    result: Scores


@value_class(frozen=True, slots=True)
class Unevaluated:
    """An evaluation could not be given to the evaluator, for example because the disk is full."""

    version: int
    error: str


@value_class(frozen=True, slots=True)
class Judged:
    """What the verdict is made of so far, at emulated ``now``; a resumed run goes on with it.

    ``fidelity``: a copy. ``wire``: [kind, edge, count] of wire errors. ``quarantined``: why, by
    edge.
    """

    now: int
    fidelity: Fidelity
    wire: list[list[Any]]
    quarantined: dict[str, str]


@value_class(frozen=True, slots=True)
class EvaluatorGone:
    """The evaluator's process has ended: no more results will arrive."""


@value_class(frozen=True, slots=True, eq=False)
class Worked:
    """A job of the strategy has ended at emulated ``now``.

    ``result``: the result, or a text that says why there is none. ``error``: the error that the
    job raised.
    """

    now: int
    order: Any
    result: Any = None
    real_s: float = 0.0
    deaths: int = 0  # of workers
    error: str | None = None
    users: bool = False  # the user can correct the error


@value_class(frozen=True, slots=True)
class Interrupt:
    """End the run in order."""

    reason: str


# ------------------------------------------------------------------ logic -> pacing
@value_class(frozen=True, slots=True)
class Carry:
    """Start a downlink transfer at emulated ``now``."""

    now: int
    edge: str
    outgoing: Outgoing


@value_class(frozen=True, slots=True)
class CarryAll:
    """Start one broadcast to several edges in these slots; (): it counts as delivered already.

    ``number``: of the transfer that is emulated.
    """

    now: int
    number: int
    outgoings: list[tuple[str, Outgoing]]
    slots: tuple[int, ...]


@value_class(frozen=True, slots=True)
class Granted:
    """The offered update may use its uplink from ``now`` on, or in the granted slots.

    ``number``: of its transfer.
    """

    now: int
    number: int
    grant: Grant


@value_class(frozen=True, slots=True)
class Taken:
    """The update that came ahead as the edge's ``transfer`` was granted: it needs no upload."""

    edge: str
    transfer: int


@value_class(frozen=True, slots=True)
class Note:
    """A small message to an edge's actor."""

    now: int
    edge: str
    note: ToEdge


@value_class(frozen=True, slots=True)
class WakeAt:
    """Wake the coordinator at this emulated moment."""

    at_ns: int


@value_class(frozen=True, slots=True)
class Reject:
    """An edge's update is damaged (its digest differs): end the edge's session."""

    edge: str
    reason: str
