"""What the threads of the coordinator's process tell each other.

Inputs of the logic are also rows of the journal: ``row`` makes JSON and arrays of them,
``from_row`` reads them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict

from edgefl.exchange.pacer import Stretch
from edgefl.jobs import Job, Scores
from edgefl.protocol.codec import Incoming, Outgoing
from edgefl.protocol.messages import (
    FreshRequest,
    HostFacts,
    HostReport,
    Joined,
    Offer,
    PushArrived,
    PushReplaced,
    Ready,
    Started,
    TaskFailed,
    ToCoordinator,
    ToEdge,
)
from edgefl.strategies.base.events_and_decisions import EdgeLost, Grant
from emulator.fidelity import Fidelity
from emulator.links.network import Completion, Transfer


# ------------------------------------------------------------------ pacing -> logic
class Begin(Struct, frozen=True):
    """The run begins: emulated time 0 is now. ``edges``: joined edges -> samples.

    ``unix_s``: the time of this moment.
    """

    edges: dict[str, int]
    unix_s: float = 0.0


class Resumed(Struct, frozen=True):
    """A run that was broken off goes on: the emulated moment ``now`` is now.

    ``outage_s``: seconds since the last input before. ``unix_s``: the time of this moment.
    """

    now: int
    outage_s: float
    unix_s: float


class Heard(Struct, frozen=True):
    """A message for the coordinator, at emulated ``now``."""

    now: int
    edge: str
    message: ToCoordinator | EdgeLost


class Whole(Struct, frozen=True):
    """All bytes of an update have arrived. The logic thread assembles and checks them."""

    now: int
    edge: str
    incoming: Incoming


class EarlyUpdate(Struct, frozen=True):
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


class Carried(Struct, frozen=True):
    """A transfer is done: a row of the link log.

    ``stretches``: of a native link, see Measured.
    """

    completion: Completion
    finished_ns: int
    stretches: Sequence[Stretch] = ()


class Measured(Struct, frozen=True):
    """What a native device did, or a ping: rows of measured.csv, see ``edgefl.record.files``.

    ``number``: of the task; None for a ping. ``stretches``: (begin, end, amount).
    """

    what: str
    edge: str
    number: int | None
    stretches: list[Stretch]


class Rang(Struct, frozen=True):
    """The alarm that the coordinator has set is due."""

    now: int


class Greedy(Struct, frozen=True):
    """A peer's connection was closed, because it has sent more than it may."""

    routing: bytes
    reason: str


class Stranger(Struct, frozen=True):
    """Connections without a session are closed for this reason; told at the first one."""

    reason: str


class Noticed(Struct, frozen=True):
    """A fact for the record."""

    now: int
    fact: str
    values: dict[str, Any]


class HostSaid(Struct, frozen=True):
    """An edge tells about its host, at emulated ``at_ns``. This is no event of the run."""

    at_ns: int
    edge: str
    message: HostFacts | HostReport


class Scored(Struct, frozen=True):
    """The result of an evaluation.

    ``at_ns``: the moment whose model was evaluated. ``now``: the emulated moment at which the
    result arrived; 0 if no decision of the run waits for scores.
    """

    version: int
    result: Scores
    at_ns: int = 0
    now: int = 0
    of_edges: bool = False


class Unevaluated(Struct, frozen=True):
    """An evaluation could not be given to the evaluator, for example because the disk is full."""

    version: int
    error: str
    of_edges: bool = False


class Judged(Struct, frozen=True):
    """What the verdict is made of so far, at emulated ``now``; a resumed run goes on with it.

    ``fidelity``: a copy. ``wire``: [kind, edge, count] of wire errors. ``quarantined``: why, by
    edge.
    """

    now: int
    fidelity: Fidelity
    wire: list[list[Any]]
    quarantined: dict[str, str]


class EvaluatorGone(Struct, frozen=True):
    """The evaluator's process has ended: no more results will arrive."""


@dataclass(slots=True, eq=False)
class JobOrder:
    """A job of the strategy, from the logic to its worker, with its emulated start and end."""

    number: int
    job: Job
    start_ns: int
    due_ns: int


class Worked(Struct, frozen=True, eq=False):
    """A job of the strategy has ended at emulated ``now``.

    ``result``: the result, or a text that says why there is none. ``error``: the error that the
    job raised.
    """

    now: int
    order: JobOrder
    result: Any = None
    real_s: float = 0.0
    deaths: int = 0  # of workers
    error: str | None = None
    users: bool = False  # the user can correct the error


class Interrupt(Struct, frozen=True):
    """Stop the run cleanly."""

    reason: str


# ------------------------------------------------------------------ logic -> pacing
class Carry(Struct, frozen=True):
    """Start a downlink transfer at emulated ``now``. ``replaces``: see ``Push``."""

    now: int
    edge: str
    outgoing: Outgoing
    replaces: bool = False


class CarryAll(Struct, frozen=True):
    """Start one broadcast to several edges in these slots; (): it counts as delivered already.

    ``number``: of the transfer that is emulated.
    """

    now: int
    number: int
    outgoings: list[tuple[str, Outgoing]]
    slots: tuple[int, ...]
    replaces: bool = False


class Granted(Struct, frozen=True):
    """The offered update may use its uplink from ``now`` on, or in the granted slots.

    ``number``: of its transfer.
    """

    now: int
    number: int
    grant: Grant


class UpdateTaken(Struct, frozen=True):
    """The update that came ahead as the edge's ``transfer`` was granted: it needs no upload."""

    edge: str
    transfer: int


class Note(Struct, frozen=True):
    """A small message to an edge's actor."""

    now: int
    edge: str
    note: ToEdge


class WakeAt(Struct, frozen=True):
    """Wake the coordinator at this emulated moment."""

    at_ns: int


class Reject(Struct, frozen=True):
    """An edge's update is damaged (its digest differs): end the edge's session."""

    edge: str
    reason: str


# ------------------------------------------------------------------ rows of the journal
Row = dict[str, Any]
Arrays = Mapping[str, np.ndarray]

# classes of messages that a row names, by their names
MESSAGES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Joined, Started, Ready, FreshRequest, TaskFailed, EdgeLost),
        *(PushArrived, PushReplaced),
        *(HostFacts, HostReport),
    )
}


def texts(scores: Scores) -> tuple[str | None, ...]:
    """Scores as texts: JSON has no nan."""
    return tuple(None if score is None else repr(score) for score in scores)


def numbers(scores: Iterable[str | None]) -> Scores:
    """The scores of ``texts``."""
    return cast(Scores, tuple(None if text is None else float(text) for text in scores))


def row(item: Any) -> tuple[Row, Arrays]:
    """Return an input as JSON for orjson, and its arrays by name."""
    values = {"kind": type(item).__name__, **asdict(item)}
    match item:
        case Heard() | HostSaid():
            values["message"] = [type(item.message).__name__, to_builtins(item.message)]
        case Whole():
            incoming = values.pop("incoming")
            offer = asdict(incoming.offer) | {"meta": incoming.offer.meta.hex()}
            body = np.empty(0, np.uint8) if incoming.body is None else incoming.body
            return {**values, "most_bytes": incoming.most_bytes, "offer": offer}, {"body": body}
        case Carried():
            values["completion"] = to_builtins(item.completion)
        case Scored():
            values["result"] = texts(item.result)
        case Worked():  # without an error, which ends the run
            values["order"] = item.order.number
            if not isinstance(item.result, str):
                vectors, named = item.result
                # a whole number stays one; as text, because JSON has no nan
                values["result"] = {
                    name: n if isinstance(n, int) else repr(float(n)) for name, n in named.items()
                }
                return values, vectors
        case Judged():
            values["fidelity"] = item.fidelity.counts()
    return values, {}


def from_row(row: Row, arrays: Arrays, orders: Mapping[int, JobOrder]) -> Any:
    """Return the input of a row. ``orders``: open jobs by their numbers."""
    values = dict(row)
    kind = values.pop("kind")
    match kind:
        case "Heard" | "HostSaid":
            name, message = values["message"]
            values["message"] = convert(message, MESSAGES[name])
        case "Whole":
            return Whole(values["now"], values["edge"], _incoming(values, arrays["body"]))
        case "Carried" | "Measured":
            return convert(values, globals()[kind])
        case "Judged":
            counts, values["fidelity"] = values["fidelity"], Fidelity()
            values["fidelity"].take_counts(counts)
        case "Scored":
            values["result"] = numbers(values["result"])
        case "Worked":
            values["order"] = orders[values["order"]]
            if not isinstance(values["result"], str):
                named = values["result"].items()
                plain = {name: float(n) if isinstance(n, str) else n for name, n in named}
                values["result"] = dict(arrays), plain
    return globals()[kind](**values)


def _incoming(values: Row, body: np.ndarray) -> Incoming:
    offer = Offer(**{**values["offer"], "meta": bytes.fromhex(values["offer"]["meta"])})
    incoming = Incoming(offer, values["most_bytes"], offer.size)
    incoming.body = body if body.size else None
    return incoming
