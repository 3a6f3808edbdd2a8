"""All events that a strategy receives, and all decisions that it can make.

Decisions are carried out in the order of the list; those after Finish are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgefl.by_name import ByName
from edgefl.jobs import Job


@dataclass(frozen=True, slots=True)
class EdgeJoined:
    """An edge has joined and can get work; ``samples`` is the size of its data.

    At t = 0 these events come sorted by edge id.
    """

    edge: str
    samples: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """All expected edges have joined: the strategy gives out the first tasks."""


@dataclass(frozen=True, slots=True)
class EdgeLost:
    """An edge is silent. Its task stays open for the grace time; then TaskClosed follows."""

    edge: str


@dataclass(frozen=True, slots=True)
class TaskClosed:
    """A task will never deliver: its edge is gone, its training failed, it took too long, or its
    update was refused.

    A refused update is already recorded with that reason.
    """

    edge: str
    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateReady:
    """An edge has finished training and asks for the uplink."""

    edge: str
    task: int


@dataclass(frozen=True, slots=True, eq=False)
class UpdateArrived:
    """An edge's result has arrived.

    ``vectors`` and ``numbers`` are what its rule's ``payload`` returned; ``base`` is the model
    that it started from, of version ``base_version``.
    """

    edge: str
    task: int
    base_version: int
    base: np.ndarray = field(repr=False)
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _by_name(self)

    @property
    def weights(self) -> np.ndarray:
        return self.vectors["weights"]


@dataclass(frozen=True, slots=True)
class FreshRequested:
    """An edge in training, at ``step``, asks for a model newer than ``base_version``.

    ``until_ns``: it continues to train, and an answer at that moment or later is too late; 0: it
    waits for the answer.
    """

    edge: str
    task: int
    base_version: int
    step: int
    until_ns: int = 0


@dataclass(frozen=True, slots=True)
class AlarmRang:
    """The moment of SetAlarm(name, at_ns) has come."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class JobDone:
    """The result of RunJob(name), at the job's emulated end: finite flat vectors, and numbers.

    It comes once for each job.
    """

    name: str
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _by_name(self)


@dataclass(frozen=True, slots=True)
class JobFailed:
    """RunJob(name) has no result: its values are not finite, or its worker died repeatedly.

    It comes at the job's emulated end.
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The scores of the model that was the current one at ``at_ns``, its ``version``.

    It comes ``evaluation.cost_s`` after ``at_ns``, only to a strategy with ``hears_evaluations =
    True``; on the wall clock when the evaluation really ends if that is later. The first model is
    evaluated, too; the last evaluation of a run, at its end, is no event. ``scores``: by the
    columns of metrics.csv, such as "accuracy" and "test_loss"; nan if a score is not finite.
    """

    version: int
    at_ns: int
    scores: dict[str, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", ByName(self.scores))


Event = (
    EdgeJoined
    | RunStarted
    | EdgeLost
    | TaskClosed
    | UpdateReady
    | UpdateArrived
    | FreshRequested
    | AlarmRang
    | JobDone
    | JobFailed
    | Evaluated
)


def _by_name(event: UpdateArrived | JobDone) -> None:
    object.__setattr__(event, "vectors", ByName(event.vectors))
    object.__setattr__(event, "numbers", ByName(event.numbers))


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """Give each edge a task.

    ``vectors`` (with "weights") are sent down its link; ``numbers`` override the training plan.
    ``broadcast``: send to all edges at once in these slots of the TDMA channel; the edges can use
    the model from the end of the last slot on. (): the edges have the model already.
    """

    edges: tuple[str, ...]
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    broadcast: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Let an edge send its update now, or in these ``slots`` of the TDMA channel."""

    edge: str
    task: int
    slots: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SendFresh:
    """Answer a FreshRequested.

    ``weights``: the newer model; None: there is no newer one. ``version``: the number of that
    model; None: the current version.
    """

    edge: str
    task: int
    weights: np.ndarray | None = field(repr=False)
    version: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """Send a model, unasked, to edges with an open task: see ``LocalRule.pushed``.

    ``vectors`` (with "weights", as long as that of the task) and ``numbers`` go down each edge's
    link, behind what is under way there. ``version``: the number of that model; None: the current
    version. ``replaces``: a push to the same task that waits in the queue, of which nothing was
    sent, is dropped for this one. ``broadcast``: as in Assign; such a push drops waiting ones, and
    is not dropped itself. Right after an Assign with the same slots and vectors it is the same
    transmission, which more edges hear.

    Its download ends with its task. One that arrives when no step follows is too late, and only
    counted.
    """

    edges: tuple[str, ...]
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    version: int | None = None
    replaces: bool = True
    broadcast: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """Publish a new global model: the version rises by one.

    The array must not change afterwards. ``made_of``: the tasks whose updates are in the model;
    None: all that arrived since the last Publish and were not discarded. It is only recorded.
    """

    weights: np.ndarray = field(repr=False)
    made_of: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetAlarm:
    """Ask for AlarmRang(name) at ``at_ns``; setting the same name again moves the alarm."""

    name: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a task: its update is no longer needed."""

    edge: str
    task: int


@dataclass(frozen=True, slots=True)
class Urge:
    """Ask an edge to report now: its training ends at the next step and it sends what it has.

    An edge whose rule asks for fresher models trains to its end instead.
    """

    edge: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Record that a task's update was not used, and why."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Record numbers about this event, all finite."""

    values: dict[str, float]
    edge: str | None = None  # the edge that they are about


@dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """Run heavy work at the server while updates continue to arrive.

    JobDone(name) or JobFailed(name) follows ``cost_ns`` (emulated) from now, or when the work
    really ends if that is later. No other running job may have the same name. The job's arrays
    must not change afterwards.
    """

    name: str
    job: Job = field(repr=False)
    cost_ns: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End the run."""

    reason: str


Decision = (
    Assign
    | Grant
    | SendFresh
    | Push
    | Publish
    | SetAlarm
    | Cancel
    | Urge
    | Discard
    | Report
    | RunJob
    | Finish
)


def up_to_finish(decisions: list[Decision]) -> list[Decision]:
    """Return ``decisions`` up to the first Finish. TypeError for anything but a list."""
    if not isinstance(decisions, list):
        raise TypeError(
            f"expected a list of decisions ([] for none), found {type(decisions).__name__}"
        )
    for number, decision in enumerate(decisions, 1):
        if isinstance(decision, Finish):
            return decisions[:number]
    return decisions
