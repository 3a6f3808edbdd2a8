"""What the processes of a run tell each other.

::

    launcher    -> warm parent   PrepareFleet, StartWorkers, ForkEdges, InjectFault
                <-               FleetReady | RunRefused, ProcessExited
    launcher    -> coordinator   StartRun, StopRun
                <-               Listening, InjectFault, then RunEnded | RunRefused | BugFound
    coordinator -> evaluator     EvaluateSnapshot
                <-               SnapshotScores
    coordinator -> job worker    DoJob
                <-               JobFinished | JobRaised; WorkerDied comes from the warm parent
    parallel runs <- forked run  FirstStep, ProgressLine, then RunEnded | RunRefused | BugFound
"""

from __future__ import annotations

from typing import Any

from edgefl.hosts.ipc import message

SHARES = "shares.json"  # in the scratch directory: samples by edge, as far as the split is known


# ------------------------------------------------------------------ how a run ends
@message
class RunEnded:
    summary: dict[str, Any]


@message
class RunRefused:
    """The user can correct this: the receiver raises it as UserError."""

    reason: str


@message
class BugFound:
    """``blame``: in whose code, in one line. The process has printed the rest on stderr."""

    blame: str


@message
class FirstStep:
    """What can be refused at the start of a run has been accepted."""


@message
class ProgressLine:
    line: str


# ------------------------------------------------------------------ warm parent
@message
class PrepareFleet:
    """Load data and model, and write w_0, its layout and SHARES into ``scratch``. ``experiment`` is
    JSON; ``fleet``: with the data of all edges; ``calibrate``: measure the speed of this host.
    """

    experiment: str
    base: str | None
    scratch: str
    fleet: bool
    calibrate: bool


@message
class FleetReady:
    """``samples_per_s``: of one core, None if not calibrated; ``samples``: by edge."""

    data_digest: str
    samples_per_s: float | None
    cores: int
    samples: dict[str, int]


@message
class StartWorkers:
    """The first strategy runs at ``speed``: send stderr to the file ``log``, fork evaluator and
    job worker.
    """

    log: str
    speed: float


@message
class ForkEdges:
    """``index``: of the strategy; ``address``: of its coordinator. A process that an edge still
    has is killed.
    """

    edges: tuple[str, ...]
    address: str
    index: int


@message
class InjectFault:
    """``fault``: "kill", "restart", "freeze" or "thaw"; the launcher turns a restart into
    ForkEdges.
    """

    fault: str
    edge: str


@message
class ProcessExited:
    """A child of the warm parent has failed. ``name``: "edge NAME", "evaluator", "job worker"."""

    name: str
    status: int


# ------------------------------------------------------------------ coordinator
@message
class StartRun:
    """``experiment`` is JSON, the other texts are paths; ``strains``: why this host cannot keep
    up, as far as that is known beforehand; ``more``: another strategy or seed follows;
    ``speed_auto``: the launcher has chosen the experiment's speed.
    """

    experiment: str
    index: int
    directory: str
    base: str | None
    scratch: str
    data_digest: str
    keys: str | None
    more: bool
    strains: tuple[str, ...] = ()
    speed_auto: bool = False


@message
class Listening:
    port: int


@message
class StopRun:
    reason: str


# ------------------------------------------------------------------ evaluator and job worker
@message
class EvaluateSnapshot:
    """``file`` holds the weights; the evaluator deletes it."""

    version: int
    at_ns: int
    file: str


@message
class SnapshotScores:
    """``scores`` are texts: JSON has no nan."""

    version: int
    file: str
    scores: tuple[str | None, ...]


@message
class DoJob:
    """``job`` is a row (``edgefl.jobs.plain``), its arrays lie in ``file``."""

    order: str
    due_ns: int
    file: str
    job: Any


@message
class JobFinished:
    """``result``: vectors and numbers, the arrays in ``file``; ``real_s``: how long it took."""

    order: str
    file: str
    result: Any
    real_s: float


@message
class JobRaised:
    """``users``: the user can correct it; otherwise ``error`` is a traceback."""

    order: str
    error: str
    users: bool


@message
class WorkerDied:
    """The job worker has died with its order, and another one has been forked."""

    status: int
