"""All events that a strategy receives."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgefl.by_name import ByName


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
)


def _by_name(event: UpdateArrived | JobDone) -> None:
    object.__setattr__(event, "vectors", ByName(event.vectors))
    object.__setattr__(event, "numbers", ByName(event.numbers))
