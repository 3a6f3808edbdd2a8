"""Every message of the protocol, with its limits.

There are three kinds. *Bulk* messages carry models and cross the emulated link as a transfer.
*Notes* are small messages between the actors. *Frames* belong to the transport: sessions, offers,
pieces, credits.

How one update travels. Downlink and uplink are alike; only the side that paces differs::

    coordinator                                   edge
      Offer(task, sizes, digest)       ------->     allocates memory
      Piece, Piece, ...   (paced here) ------->     stamps each arrival
                                       <-------   Arrived(curve)
      Delivered(at = max(due, last))   ------->     Edge.receive(Assignment, now = at); trains
                                       <-------   Offer(update, due = at + emulated compute time)
                                       <-------   a Piece, on native links, as the task allowed
      at due: Coordinator may Grant; Credit --->
                                       <-------   Piece, Piece, ... (never beyond the credit)
      Coordinator.receive(Update, now = max(due, last))
      Acknowledged                     ------->     frees the update

Messages that a turn makes for one peer travel together, see ``codec.bundle``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct


class WireError(Exception):
    """The peer sent something malformed, too large or out of order.

    Its session is dropped and counted; the run continues.
    """


class LimitExceeded(WireError):
    """The peer sent what no honest peer sends, not even by mistake or over a bad path.

    It is quarantined for the rest of the run.
    """


class Refused(Exception):
    """The other side refuses us: another protocol, config, layout or data; the text says which."""


class Unreachable(Refused):
    """The other side does not answer, or has stopped answering."""


PROTOCOL = 12
# for the Setup frame, which has a whole config; the codec computes the limit of other headers
MAX_HEADER_BYTES = 1 << 20
MAX_PIECE_BYTES = 1 << 20
SPACED_BYTES = 1 << 17  # of a message that the kernel spaces: a cut connection loses it
MAX_ARRAYS = 64  # vectors of a bulk message; also its numbers
MAX_NAME = 64  # characters
MAX_LIST = 16  # items of any list in a header; also its fields
MAX_PAIRS = 1 << 12  # stamps of arrivals; later arrivals have none
MAX_NOTE = 1 << 12  # bytes; the texts of TaskFailed together must be smaller:
MOST_REASON = 500
MOST_TRACE = 3000

# Types of fields, each with its limit: of an int its largest value, of all others their length.
MOST = 2**62
Id = Annotated[str, Meta(max_length=64)]
Word = Annotated[str, Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=2000)]
Digest = Annotated[str, Meta(max_length=64)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
MaybeCount = Count | None  # None: not known
Offset = Annotated[int, Meta(ge=0, le=2**40)]
Tasks = Annotated[list[Count], Meta(max_length=MAX_LIST)]


# ------------------------------------------------------------------ bulk
# kinds of a transfer, in Offers and in links.csv
TASK, FRESH, PUSH, UPDATE = "task", "fresh", "push", "update"
# in links.csv: the transferred part of a fresher model that was too late, and of a push whose task
# ended meanwhile
DROPPED, DROPPED_PUSH = "dropped", "dropped push"


@dataclass(slots=True, eq=False)
class BulkMessage:
    """Vectors and numbers of one task. Nothing changes them after the message is made."""

    kind: ClassVar[str]
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    size_bytes: int = field(default=0, init=False, repr=False)  # see ``codec.size_of``


@dataclass(slots=True, eq=False)
class Assignment(BulkMessage):
    """A task for an edge: vectors to start from, and numbers that override its training plan."""

    kind = TASK


@dataclass(slots=True, eq=False)
class Fresh(BulkMessage):
    """A newer global model for an edge that is training."""

    kind = FRESH


@dataclass(slots=True, eq=False)
class Pushed(BulkMessage):
    """A model of ``version`` for an edge with the open task ``number``, which did not ask."""

    kind = PUSH


@dataclass(slots=True, eq=False)
class Update(BulkMessage):
    """An edge's result for task ``number``, trained from ``version``."""

    kind = UPDATE


# ------------------------------------------------------------------ notes between the actors
class Joined(Struct, frozen=True):
    """An edge is ready; ``tasks`` are those that it still works on (none after a restart)."""

    samples: Count
    tasks: Tasks


class Started(Struct, frozen=True):
    """The task's model is on the edge, and training begins."""

    task: Count


class PushArrived(Struct, frozen=True):
    """A push for ``task`` is on the edge. It comes from the host, as ``transfer``."""

    task: Count
    version: Count
    transfer: Count = 0


class PushReplaced(Struct, frozen=True):
    """A push for ``task`` that waited was dropped for a later one. It comes from the host."""

    task: Count
    version: Count
    transfer: Count = 0


class Ready(Struct, frozen=True):
    """The update of ``task`` (``size_bytes``) is ready for the uplink."""

    task: Count
    size_bytes: Count = 0


class TaskFailed(Struct, frozen=True):
    """Training raised an exception, so the task will have no update.

    ``reason`` is one line, ``trace`` the traceback.
    """

    task: Count
    reason: Annotated[str, Meta(max_length=MOST_REASON)]
    trace: Annotated[str, Meta(max_length=MOST_TRACE)]


class FreshRequest(Struct, frozen=True):
    """A training edge asks, before ``step``, for a model newer than ``version``.

    ``until_ns``: the edge continues to train, and an answer at this emulated moment or later is too
    late. 0: the edge waits for the answer.
    """

    task: Count
    version: Count
    step: Count
    until_ns: Count = 0


class NothingNewer(Struct, frozen=True):
    """The answer to a FreshRequest if the edge's version is still the newest."""

    task: Count


class TooLate(Struct, frozen=True):
    """The answer to this task's FreshRequest was not in time, and none will follow.

    It comes from the host, which knows the moments of both.
    """

    task: Count


class CancelTask(Struct, frozen=True):
    """Stop working on ``task``."""

    task: Count


class UrgeTask(Struct, frozen=True):
    """End the work on ``task`` at the next step and send the update as it is."""

    task: Count


class Acknowledged(Struct, frozen=True):
    """The coordinator has recorded what happens to the update, so the edge may free it."""

    task: Count


# ------------------------------------------------------------------ an edge's host
# Bits of HostReport.throttled. The first four have the numbers of a Raspberry Pi's firmware.
UNDER_VOLTAGE, FREQUENCY_CAPPED, SLOWED_DOWN, TEMPERATURE_LIMIT, THERMAL_EVENT = 1, 2, 4, 8, 16
THROTTLING = {
    UNDER_VOLTAGE: "under-voltage",
    FREQUENCY_CAPPED: "frequency capped",
    SLOWED_DOWN: "throttled",
    TEMPERATURE_LIMIT: "soft temperature limit",
    THERMAL_EVENT: "thermal event",
}
ZERO_CELSIUS_MK = 273_150


class HostFacts(Struct, frozen=True):
    """What does not change during a run. An edge sends it once in each session.

    ``machine``: equal for all edges of one machine (and one network namespace), and for no others.
    ``interface``: the network interface towards the coordinator. A text is empty if the system
    does not tell. ``gpus``: the names of its GPUs, joined by commas.
    """

    host: Id
    machine: Digest
    model: Word
    cpu: Word
    cores: Count
    memory_bytes: Count
    system: Word
    architecture: Word
    python: Word
    torch: Word
    interface: Id
    gpus: Word = ""


class HostReport(Struct, frozen=True):
    """The state of an edge's host and process at one moment.

    None: the system does not tell, or another edge of this host reports it. ``cpu_permille``: of
    all cores. ``temperature_mk``: of the processor, in thousandths of a kelvin. ``throttled``: bits
    of THROTTLING, now or since the last report. ``sent_bytes`` and ``received_bytes``: the
    interface's counters. ``edge_cpu_permille``: of one core, by the edge's process.
    ``ran_us``: how long this process has computed since its first report. ``waited_us``: how long
    it was ready to compute meanwhile, but had no core. ``energy_uj``: what the host's meter has
    counted since this process's first report; None: it has no meter, or it did not answer.
    """

    cpu_permille: Annotated[int, Meta(ge=0, le=1000)] | None
    temperature_mk: Annotated[int, Meta(ge=0, le=1_000_000)] | None
    throttled: Annotated[int, Meta(ge=0, le=sum(THROTTLING))] | None
    sent_bytes: MaybeCount
    received_bytes: MaybeCount
    edge_cpu_permille: Annotated[int, Meta(ge=0, le=10**7)]
    rss_bytes: Count
    ran_us: MaybeCount
    waited_us: MaybeCount
    energy_uj: MaybeCount = None


# ------------------------------------------------------------------ frames of the transport
class Hello(Struct, frozen=True):
    """The first message of a session."""

    edge: Id
    protocol: Count
    package: Text


class Setup(Struct, frozen=True):
    """The answer to Hello: what to run. ``config`` is the shared part of the experiment as JSON.

    ``heartbeat_ns``: interval of the edge's heartbeats. ``silence_ns``: time without a heartbeat of
    the coordinator after which the edge begins a new session. ``report_ns``: interval of the edge's
    reports about its host; 0: none. ``run_id``: a random text of this run. A coordinator that was
    resumed has the same one, so the edge goes on with its tasks.
    """

    config: Annotated[str, Meta(max_length=1 << 19)]
    strategy: Text
    heartbeat_ns: Count = 500_000_000
    silence_ns: Count = 5_000_000_000
    report_ns: Count = 0
    run_id: Text = ""


class Join(Struct, frozen=True):
    """The edge is set up: digests of what it built and, after a broken session, what it still has.

    ``tasks``: those that it still works on. ``held``: (transfer, received bytes of its body) for
    each downlink transfer without a Delivered. ``frozen``: digest of the weights that never travel;
    "" if all of the model does. ``segment``: bytes of the segments that the edge's kernel paces; 0:
    it cannot. ``begins``: (transfer, task) for each of ``held`` that begins a task.
    """

    config: Digest
    layout: Digest
    data: Digest
    samples: Count
    tasks: Tasks
    held: Annotated[list[list[Count]], Meta(max_length=MAX_LIST)]
    frozen: Digest = ""
    segment: Count = 0
    begins: Annotated[list[list[Count]], Meta(max_length=MAX_LIST)] = []


class Welcome(Struct, frozen=True):
    """The edge is admitted."""


class Refuse(Struct, frozen=True):
    """The edge is not admitted, or its session was dropped; ``final``: a retry will not help."""

    reason: Text
    final: bool


class Ping(Struct, frozen=True):
    """A heartbeat; the Pong returns ``sent_ns``. With a payload it measures the path."""

    sent_ns: Count


class Pong(Struct, frozen=True):
    """The echo of a Ping and its payload, with the edge's clock.

    ``sent_ns`` 0: the edge's own heartbeat.
    """

    sent_ns: Count
    clock_ns: Count


class Offer(Struct, frozen=True):
    """Announces a transfer: its content, size and digest.

    ``due_ns``: the emulated moment at which it is ready. ``ahead``: of an update, bytes that follow
    as one piece without a Credit; of a task, so many bytes of its update may do so. ``starts``: the
    task begins as soon as its last byte is there, and no Delivered follows, because nothing on its
    way is emulated. ``pushes``: of an update, how many pushed models for its task the edge has got.
    ``burst``: of an update, the bytes that the edge's kernel sends at once; 0: it cannot pace them.
    """

    transfer: Count
    kind: Id
    meta: Annotated[bytes, Meta(max_length=1 << 16)]
    size: Offset
    digest: Digest
    due_ns: Count
    ahead: Offset = 0
    starts: bool = False
    pushes: Count = 0
    burst: Count = 0


class Piece(Struct, frozen=True):
    """Bytes of a transfer from ``offset`` on; they follow as a raw frame."""

    transfer: Count
    offset: Offset


class Dropped(Struct, frozen=True):
    """The downlink transfer will not go on: the edge forgets what it has of it."""

    transfer: Count


class Credit(Struct, frozen=True):
    """The edge may send the transfer's bytes up to ``limit``.

    If the transfer is restarted, it sends from ``offset`` on. ``leave_ns``: the edge's kernel
    spaces the bytes so that the last one leaves at this moment of the edge's clock; 0: at once.
    """

    transfer: Count
    offset: Offset
    limit: Offset
    leave_ns: Count = 0


class Arrived(Struct, frozen=True):
    """The downlink transfer is complete.

    ``curve``: (bytes, edge clock) at the arrival of the Offer (0 bytes) and of each piece.
    """

    transfer: Count
    curve: Annotated[list[list[Count]], Meta(max_length=MAX_PAIRS)]


class Delivered(Struct, frozen=True):
    """The transfer is delivered at this emulated moment."""

    transfer: Count
    at_ns: Count


class Stamped(Struct, frozen=True):
    """A note that the edge's actor sent at the emulated moment ``at_ns``.

    ``note`` is the encoded note. ``pushes``: how many pushed models for its task the edge has got.
    """

    at_ns: Count
    note: Annotated[bytes, Meta(max_length=MAX_NOTE)]
    pushes: Count = 0


class Working(Struct, frozen=True):
    """The edge computes for ``task`` and must end at the emulated moment ``due_ns``.

    A task that does not end in time shows that the host could not keep up.
    """

    task: Count
    due_ns: Count


class Trained(Struct, frozen=True):
    """A native device has trained on ``samples`` samples for ``task`` in ``spent_ns`` of real time.

    A more expensive step counts as more samples, as in ``emulator.compute.Device``.
    """

    task: Count
    samples: Offset
    spent_ns: Count


class RunFinished(Struct, frozen=True):
    """The run has ended.

    ``more``: another strategy of the comparison follows at the same address.
    """

    reason: Text
    more: bool


# Reasons after which no other strategy follows. The run may be resumed.
BROKEN_OFF_ENDS = ("interrupted", "launcher gone", "internal error", "stopped by an error")


Bulk = Assignment | Fresh | Pushed | Update
ToEdge = Assignment | Fresh | Pushed | NothingNewer | TooLate | CancelTask | UrgeTask | Acknowledged
ToCoordinator = (
    Update | Joined | Started | Ready | FreshRequest | TaskFailed | PushArrived | PushReplaced
)
Frame = (
    Hello
    | Setup
    | Join
    | Welcome
    | Refuse
    | Ping
    | Pong
    | Offer
    | Piece
    | Dropped
    | Credit
    | Arrived
    | Delivered
    | Stamped
    | Working
    | Trained
    | RunFinished
    | HostFacts
    | HostReport
)
