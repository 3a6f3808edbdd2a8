"""Messages between the processes of a run.

::

    launcher    -> warm parent   PrepareFleet, StartWorkers, ForkEdges, InjectFault
                <-               FleetReady | RunRefused, ProcessExited, RunRefused
    warm parent -> several edges InjectFault
                <-               ProcessExited: one of them has ended
    launcher    -> coordinator   StartRun, StopRun
                <-               Listening, InjectFault, ProgressLine,
                                 then RunEnded | RunRefused | BugFound
    coordinator -> evaluator     EvaluateSnapshot
                <-               SnapshotScores
    coordinator -> job worker    DoJob
                <-               JobFinished | JobRaised; WorkerDied comes from the warm parent
    parallel runs <- forked run  FirstStep, ProgressLine, LastingLine,
                                 then RunEnded | RunRefused | BugFound
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefl.clocks.ipc import Int64, Message

# in the scratch directory: samples by edge, where the split is known; and the digest of the
# weights that never travel, where there are any
SHARES, FROZEN = "shares.json", "frozen.txt"


def frozen_digest(scratch: Path) -> str:
    """Read the digest of the weights that never travel; "" if the warm parent has written none."""
    path = scratch / FROZEN
    return path.read_text(encoding="utf-8") if path.exists() else ""


# ------------------------------------------------------------------ how a run ends
class RunEnded(Message, frozen=True):
    summary: dict[str, Any]


class RunRefused(Message, frozen=True):
    """The run failed for a reason that the user can correct: the receiver raises UserError."""

    reason: str


class BugFound(Message, frozen=True):
    """The run failed in code. ``blame``: one line that says in which code.

    The process has printed the traceback on stderr.
    """

    blame: str


class FirstStep(Message, frozen=True):
    """The run has started: it can no longer be refused."""


class ProgressLine(Message, frozen=True):
    """A line for the user, while the run goes on."""

    line: str


class LastingLine(Message, frozen=True):
    """A line for the user that no line of progress replaces."""

    line: str


# ------------------------------------------------------------------ warm parent
class PrepareFleet(Message, frozen=True):
    """Load data and model, and write w_0, its layout and SHARES into ``scratch``.

    ``experiment``: JSON. ``fleet``: load the data of all edges. ``calibrate``: measure the speed
    of this host.
    """

    experiment: str
    base: Path | None
    scratch: Path
    fleet: bool
    calibrate: bool


class FleetReady(Message, frozen=True):
    """The warm parent is ready.

    ``samples_per_s``: of one core; None if it was not to be measured, or if the measurement has
    failed: ``not_measured`` says why. ``samples``: by edge. ``engines``: what computes each
    strategy's training here.
    """

    data_digest: str
    samples_per_s: float | None
    cores: Int64
    samples: dict[str, Int64]
    not_measured: str
    engines: tuple[str, ...]


class StartWorkers(Message, frozen=True):
    """Redirect stderr to the file ``log``, and fork evaluator and job worker.

    ``speed``: of the first strategy. ``go_on``: keep what is in the file.
    """

    log: str
    speed: float
    go_on: bool


class ForkEdges(Message, frozen=True):
    """Fork the processes of these edges. An edge's former process is killed first; an edge that
    shared one is started again in it.

    ``index``: of the strategy. ``address``: of its coordinator.
    """

    edges: tuple[str, ...]
    address: str
    index: Int64


class InjectFault(Message, frozen=True):
    """Inject a fault into an edge's process.

    ``fault``: "kill", "restart", "freeze" or "thaw". The launcher turns a restart into ForkEdges.
    """

    fault: str
    edge: str


class ProcessExited(Message, frozen=True):
    """A child of the warm parent has failed, or one edge of several in a child.

    ``name``: for the user, such as "edge e000", "evaluator" or "job worker". ``edges``: that have
    ended by this.
    """

    name: str
    status: Int64
    edges: tuple[str, ...] = ()


# ------------------------------------------------------------------ coordinator
class StartRun(Message, frozen=True):
    """Run the strategy at ``index`` of ``experiment`` (JSON) in ``directory``.

    ``scratch``: the folder with large data. ``more``: another strategy or seed follows.
    ``strains``: why this host cannot keep up, as far as the start check knows. ``speed_auto``: the
    launcher has chosen the experiment's speed. ``resume``: go on with the run in ``directory``.
    ``engine``: what computes its training.
    """

    experiment: str
    index: Int64
    directory: Path
    base: Path | None
    scratch: Path
    data_digest: str
    keys: Path | None
    more: bool
    strains: tuple[str, ...]
    speed_auto: bool
    resume: bool
    engine: str


class Listening(Message, frozen=True):
    port: Int64


class StopRun(Message, frozen=True):
    reason: str


# ------------------------------------------------------------------ runs in forks, virtual clock
class NewScores(Message, frozen=True):
    """metrics.csv has new rows. The run waits for the answer."""


class ScoresSeen(Message, frozen=True):
    """``reason``: why the run ends now; None: it goes on."""

    reason: str | None


# ------------------------------------------------------------------ evaluator and job worker
class EvaluateSnapshot(Message, frozen=True):
    """Evaluate the weights in ``file``. The coordinator deletes the file.

    ``of_edges``: on each edge's own samples.
    """

    version: Int64
    at_ns: Int64
    file: str
    of_edges: bool


class SnapshotScores(Message, frozen=True):
    """The scores of one snapshot, as texts: JSON has no nan."""

    version: Int64
    file: str
    scores: tuple[str | None, ...]


class DoJob(Message, frozen=True):
    """Run a job. ``job`` is a row (``edgefl.jobs.plain``); its arrays are in ``file``."""

    order: str
    due_ns: Int64
    file: str
    job: Any


class JobFinished(Message, frozen=True):
    """The result of a job. ``result``: vectors and numbers, with the arrays in ``file``.

    ``real_s``: how long the job took, in real seconds.
    """

    order: str
    file: str
    result: Any
    real_s: float


class JobRaised(Message, frozen=True):
    """A job has failed. ``users``: the user can correct it; otherwise ``error`` is a traceback."""

    order: str
    error: str
    users: bool


class WorkerDied(Message, frozen=True):
    """The job worker has died during a job. A new one has been forked."""

    status: Int64
