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

from dataclasses import field
from typing import Annotated, ClassVar

import numpy as np

from edgefl.protocol.field_limits import Count, Digest, Id, Limit, Offset, Text
from edgefl.protocol.host_reports import HostFacts, HostReport
from emulator.values import value_class

PROTOCOL = 8
# for the Setup frame, which has a whole config; the codec computes the limit of other headers
MAX_HEADER_BYTES = 1 << 20
MAX_PIECE_BYTES = 1 << 20
MAX_ARRAYS = 64  # vectors of a bulk message; also its numbers
MAX_NAME = 64  # characters
MAX_LIST = 16  # items of any list in a header; also its fields
MAX_PAIRS = 1 << 12  # stamps of arrivals; later arrivals have none
MAX_NOTE = 1 << 12  # bytes; the texts of TaskFailed together must be smaller:
MOST_REASON = 500
MOST_TRACE = 3000


# ------------------------------------------------------------------ bulk
TASK, FRESH, UPDATE = "task", "fresh", "update"  # kinds of a transfer, in Offers and in links.csv
DROPPED = "dropped"  # in links.csv: the transferred part of a fresher model that was too late


@value_class(frozen=True, slots=True, eq=False)
class Assignment:
    """A task for an edge: vectors to start from, and numbers that override its training plan."""

    kind: ClassVar[str] = TASK
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    size_bytes: int = field(default=0, init=False, repr=False)  # see ``codec.size_of``


@value_class(frozen=True, slots=True, eq=False)
class Fresh:
    """A newer global model for an edge that is training."""

    kind: ClassVar[str] = FRESH
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    size_bytes: int = field(default=0, init=False, repr=False)  # see ``codec.size_of``


@value_class(frozen=True, slots=True, eq=False)
class Update:
    """An edge's result for task ``number``, trained from ``version``."""

    kind: ClassVar[str] = UPDATE
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    size_bytes: int = field(default=0, init=False, repr=False)  # see ``codec.size_of``


# ------------------------------------------------------------------ notes between the actors
@value_class(frozen=True, slots=True)
class Joined:
    """An edge is ready; ``tasks`` are those that it still works on (none after a restart)."""

    samples: Count
    tasks: Annotated[list[int], Limit(MAX_LIST)]


@value_class(frozen=True, slots=True)
class Started:
    """The task's model is on the edge, and training begins."""

    task: Count


@value_class(frozen=True, slots=True)
class Ready:
    """The update of ``task`` (``size_bytes``) is ready for the uplink."""

    task: Count
    size_bytes: Count = field(default=0, compare=False)


@value_class(frozen=True, slots=True)
class TaskFailed:
    """Training raised an exception, so the task will have no update.

    ``reason`` is one line, ``trace`` the traceback.
    """

    task: Count
    reason: Annotated[str, Limit(MOST_REASON)]
    trace: Annotated[str, Limit(MOST_TRACE)]


@value_class(frozen=True, slots=True)
class FreshRequest:
    """A training edge asks, before ``step``, for a model newer than ``version``.

    ``until_ns``: the edge continues to train, and an answer at this emulated moment or later is too
    late. 0: the edge waits for the answer.
    """

    task: Count
    version: Count
    step: Count
    until_ns: Count = 0


@value_class(frozen=True, slots=True)
class NothingNewer:
    """The answer to a FreshRequest if the edge's version is still the newest."""

    task: Count


@value_class(frozen=True, slots=True)
class TooLate:
    """The answer to this task's FreshRequest was not in time, and none will follow.

    It comes from the host, which knows the moments of both.
    """

    task: Count


@value_class(frozen=True, slots=True)
class CancelTask:
    """Stop working on ``task``."""

    task: Count


@value_class(frozen=True, slots=True)
class UrgeTask:
    """End the work on ``task`` at the next step and send the update as it is."""

    task: Count


@value_class(frozen=True, slots=True)
class Acknowledged:
    """The coordinator has recorded what happens to the update, so the edge may free it."""

    task: Count


# ------------------------------------------------------------------ frames of the transport
@value_class(frozen=True, slots=True)
class Hello:
    """The first message of a session."""

    edge: Id
    protocol: Count
    package: Text


@value_class(frozen=True, slots=True)
class Setup:
    """The answer to Hello: what to run. ``config`` is the shared part of the experiment as JSON.

    ``heartbeat_ns``: interval of the edge's heartbeats. ``silence_ns``: time without a heartbeat of
    the coordinator after which the edge begins a new session. ``report_ns``: interval of the edge's
    reports about its host; 0: none. ``run_id``: a random text of this run. A coordinator that was
    resumed has the same one, so the edge goes on with its tasks.
    """

    config: Annotated[str, Limit(1 << 19)]
    strategy: Text
    heartbeat_ns: Count = 500_000_000
    silence_ns: Count = 5_000_000_000
    report_ns: Count = 0
    run_id: Text = ""


@value_class(frozen=True, slots=True)
class Join:
    """The edge is set up: digests of what it built and, after a broken session, what it still has.

    ``tasks``: those that it still works on. ``held``: (transfer, received bytes of its body) for
    each downlink transfer without a Delivered. ``frozen``: digest of the weights that never travel;
    "" if all of the model does.
    """

    config: Digest
    layout: Digest
    data: Digest
    samples: Count
    tasks: Annotated[list[int], Limit(MAX_LIST)]
    held: Annotated[list[list[int]], Limit(MAX_LIST)]
    frozen: Digest = ""


@value_class(frozen=True, slots=True)
class Welcome:
    """The edge is admitted."""


@value_class(frozen=True, slots=True)
class Refuse:
    """The edge is not admitted, or its session was dropped; ``final``: a retry will not help."""

    reason: Text
    final: bool


@value_class(frozen=True, slots=True)
class Ping:
    """A heartbeat; the Pong returns ``sent_ns``. With a payload it measures the path."""

    sent_ns: Count


@value_class(frozen=True, slots=True)
class Pong:
    """The echo of a Ping and its payload, with the edge's clock.

    ``sent_ns`` 0: the edge's own heartbeat.
    """

    sent_ns: Count
    clock_ns: Count


@value_class(frozen=True, slots=True)
class Offer:
    """Announces a transfer: its content, size and digest.

    ``due_ns``: the emulated moment at which it is ready. ``ahead``: of an update, bytes that follow
    as one piece without a Credit; of a task, so many bytes of its update may do so. ``starts``: the
    task begins as soon as its last byte is there, and no Delivered follows, because nothing on its
    way is emulated.
    """

    transfer: Count
    kind: Id
    meta: Annotated[bytes, Limit(1 << 16)]
    size: Offset
    digest: Digest
    due_ns: Count
    ahead: Offset = 0
    starts: bool = False


@value_class(frozen=True, slots=True)
class Piece:
    """Bytes of a transfer from ``offset`` on; they follow as a raw frame."""

    transfer: Count
    offset: Offset


@value_class(frozen=True, slots=True)
class Credit:
    """The edge may send the transfer's bytes up to ``limit``.

    If the transfer is restarted, it sends from ``offset`` on.
    """

    transfer: Count
    offset: Offset
    limit: Offset


@value_class(frozen=True, slots=True)
class Arrived:
    """The downlink transfer is complete.

    ``curve``: (bytes, edge clock) at the arrival of the Offer (0 bytes) and of each piece.
    """

    transfer: Count
    curve: Annotated[list[list[int]], Limit(MAX_PAIRS)]


@value_class(frozen=True, slots=True)
class Delivered:
    """The transfer is delivered at this emulated moment."""

    transfer: Count
    at_ns: Count


@value_class(frozen=True, slots=True)
class Stamped:
    """A note that the edge's actor sent at the emulated moment ``at_ns``.

    ``note`` is the encoded note.
    """

    at_ns: Count
    note: Annotated[bytes, Limit(MAX_NOTE)]


@value_class(frozen=True, slots=True)
class Working:
    """The edge computes for ``task`` and must end at the emulated moment ``due_ns``.

    A task that does not end in time shows that the host could not keep up.
    """

    task: Count
    due_ns: Count


@value_class(frozen=True, slots=True)
class Trained:
    """A native device has trained on ``samples`` samples for ``task`` in ``spent_ns`` of real time.

    A more expensive step counts as more samples, as in ``emulator.compute.Device``.
    """

    task: Count
    samples: Offset
    spent_ns: Count


@value_class(frozen=True, slots=True)
class RunFinished:
    """The run has ended.

    ``more``: another strategy of the comparison follows at the same address.
    """

    reason: Text
    more: bool


# Reasons after which no other strategy follows. The run may be resumed.
BROKEN_OFF_ENDS = ("interrupted", "launcher gone", "internal error", "stopped by an error")


Bulk = Assignment | Fresh | Update
ToEdge = Assignment | Fresh | NothingNewer | TooLate | CancelTask | UrgeTask | Acknowledged
ToCoordinator = Update | Joined | Started | Ready | FreshRequest | TaskFailed
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
