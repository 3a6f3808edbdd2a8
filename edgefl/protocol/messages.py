"""Every message of the protocol, with its limits.

Three sorts. *Bulk* messages carry models and cross the emulated link as a transfer. *Notes* are
small messages between the actors. *Frames* belong to the transport: sessions, offers, pieces,
credits.

How one update travels (downlink and uplink alike, only the side that paces differs)::

    coordinator                                   edge
      Offer(task, sizes, digest)       ------->     allocates
      Piece, Piece, ...   (paced here) ------->     stamps each arrival
                                       <-------   Arrived(curve)
      Delivered(at = max(due, last))   ------->     Edge.receive(Assignment, now = at); trains
                                       <-------   Offer(update, due = at + emulated compute time)
      at due: Coordinator may Allow; Credit ---->
                                       <-------   Piece, Piece, ... (never beyond the credit)
      Coordinator.receive(Update, now = max(due, last))
      Acknowledged                     ------->     forgets it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np

PROTOCOL = 2
# the Setup frame carries a whole config; the codec derives the limit of every other header
MAX_HEADER_BYTES = 1 << 20
MAX_PIECE_BYTES = 1 << 20
MAX_ARRAYS = 64  # vectors of a bulk message, and numbers
MAX_NAME = 64  # letters
MAX_LIST = 16  # items of any list in a header, and fields
MAX_PAIRS = 1 << 12  # arrivals that are stamped; more of them have no stamp
MAX_NOTE = 1 << 12  # bytes; of TaskFailed's texts, together below that:
MOST_REASON = 500
MOST_TRACE = 3000


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest int, or the longest str, bytes, list or dict, that a field may hold."""

    most: int


Id = Annotated[str, Limit(64)]
Text = Annotated[str, Limit(2000)]
Digest = Annotated[str, Limit(64)]
Count = Annotated[int, Limit(2**62)]
Offset = Annotated[int, Limit(2**40)]


# ------------------------------------------------------------------ bulk
TASK, FRESH, UPDATE = "task", "fresh", "update"  # kinds of a transfer, in Offers and in links.csv
DROPPED = "dropped"  # in links.csv: the part of a fresher model that came until it was too late


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Work for an edge: the vectors to start from, and numbers that override its training plan."""

    kind: ClassVar[str] = TASK
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Fresh:
    """A newer global model for an edge in training."""

    kind: ClassVar[str] = FRESH
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An edge's result for task ``number``, trained from ``version``."""

    kind: ClassVar[str] = UPDATE
    number: int
    version: int
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)


# ------------------------------------------------------------------ notes between the actors
@dataclass(frozen=True, slots=True)
class Joined:
    """An edge stands ready; ``tasks`` are those that it still works on (none after a restart)."""

    samples: Count
    tasks: Annotated[list[int], Limit(MAX_LIST)]


@dataclass(frozen=True, slots=True)
class Started:
    """The task's model is on the edge and training begins."""

    task: Count


@dataclass(frozen=True, slots=True)
class Ready:
    """The update of ``task``, of so many bytes, waits for the uplink."""

    task: Count
    size_bytes: Count = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """Training raised an exception: the task will have no update. ``reason``: in one line;
    ``trace``: the traceback.
    """

    task: Count
    reason: Annotated[str, Limit(MOST_REASON)]
    trace: Annotated[str, Limit(MOST_TRACE)]


@dataclass(frozen=True, slots=True)
class FreshRequest:
    """An edge in training, before ``step``, asks for a model newer than ``version``.

    ``until_ns``: it trains on, and an answer that comes at this emulated moment or later is too
    late; 0: it stands still until the answer.
    """

    task: Count
    version: Count
    step: Count
    until_ns: Count = 0


@dataclass(frozen=True, slots=True)
class NothingNewer:
    """The answer to a FreshRequest when the edge's version is still the newest."""

    task: Count


@dataclass(frozen=True, slots=True)
class TooLate:
    """No answer to this task's FreshRequest has come in time, and none will: of the host, to
    whom the moments of both are known.
    """

    task: Count


@dataclass(frozen=True, slots=True)
class CancelTask:
    """Stop working on ``task``."""

    task: Count


@dataclass(frozen=True, slots=True)
class UrgeTask:
    """End the work on ``task`` at the next step and report what there is."""

    task: Count


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The update's fate is on record: the edge may forget it."""

    task: Count


# ------------------------------------------------------------------ frames of the transport
@dataclass(frozen=True, slots=True)
class Hello:
    """First word of a session."""

    edge: Id
    protocol: Count
    package: Text


@dataclass(frozen=True, slots=True)
class Setup:
    """The answer: what is run. ``config`` is the shared part of the experiment as JSON.

    ``heartbeat_ns``: how often the edge gives a sign of life; ``silence_ns``: how long it waits for
    one before it begins a new session.
    """

    config: Annotated[str, Limit(1 << 19)]
    strategy: Text
    heartbeat_ns: Count = 500_000_000
    silence_ns: Count = 5_000_000_000


@dataclass(frozen=True, slots=True)
class Join:
    """The edge has built its side and says what it built; after a broken session also what it still
    works on and holds.

    ``held``: (transfer, bytes of its body received) for each downlink transfer that it has not been
    told to be delivered.
    """

    config: Digest
    layout: Digest
    data: Digest
    samples: Count
    tasks: Annotated[list[int], Limit(MAX_LIST)]
    held: Annotated[list[list[int]], Limit(MAX_LIST)]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The edge is in."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The edge is not let in, or its session was dropped; ``final``: trying again will not help."""

    reason: Text
    final: bool


@dataclass(frozen=True, slots=True)
class Ping:
    """Heartbeat; ``sent_ns`` comes back in the Pong. With a payload it probes the path."""

    sent_ns: Count


@dataclass(frozen=True, slots=True)
class Pong:
    """Echo of a Ping (payload too), with the edge's own clock; ``sent_ns`` 0: the edge's own
    heartbeat.
    """

    sent_ns: Count
    clock_ns: Count


@dataclass(frozen=True, slots=True)
class Offer:
    """A transfer is about to come: what it holds, its size and digest. ``due_ns``: emulated
    moment at which it is offered (uplink).
    """

    transfer: Count
    kind: Id
    meta: Annotated[bytes, Limit(1 << 16)]
    size: Offset
    digest: Digest
    due_ns: Count


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a transfer from ``offset``; they follow as a raw frame."""

    transfer: Count
    offset: Offset


@dataclass(frozen=True, slots=True)
class Credit:
    """The edge may send the transfer's bytes up to ``limit``, from ``offset`` on if it starts
    anew.
    """

    transfer: Count
    offset: Offset
    limit: Offset


@dataclass(frozen=True, slots=True)
class Arrived:
    """The downlink transfer is complete: (bytes, edge clock) at each piece's arrival."""

    transfer: Count
    curve: Annotated[list[list[int]], Limit(MAX_PAIRS)]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The transfer counts as delivered at this emulated moment."""

    transfer: Count
    at_ns: Count


@dataclass(frozen=True, slots=True)
class Stamped:
    """A note that the edge's actor sent at the emulated moment ``at_ns``; ``note`` is the
    encoded note.
    """

    at_ns: Count
    note: Annotated[bytes, Limit(MAX_NOTE)]


@dataclass(frozen=True, slots=True)
class Working:
    """The edge computes for ``task``, which must be done at the emulated moment ``due_ns``: if
    it never is, the host could not keep up.
    """

    task: Count
    due_ns: Count


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is over. ``more``: another strategy of the comparison follows at the same address."""

    reason: Text
    more: bool


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
    | RunFinished
)
