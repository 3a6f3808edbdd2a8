"""All that can happen to a strategy."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgefl.by_name import ByName


@dataclass(frozen=True, slots=True)
class EdgeJoined:
    """An edge can be given work; ``samples`` is the size of its data. At t = 0 they come sorted
    by id.
    """

    edge: str
    samples: int


@dataclass(frozen=True, slots=True)
class RunStarted:
    """Follows the EdgeJoined of t = 0: the moment to hand out the first tasks."""


@dataclass(frozen=True, slots=True)
class EdgeLost:
    """The edge is silent; its task stays open for the grace time, then TaskClosed tells."""

    edge: str


@dataclass(frozen=True, slots=True)
class TaskClosed:
    """A task that will never deliver: its edge is gone, its training has failed, it took too long,
    or what it sent was refused (already recorded with that reason).
    """

    edge: str
    task: int
    reason: str


@dataclass(frozen=True, slots=True)
class UpdateReady:
    """An edge has finished and wants the uplink."""

    edge: str
    task: int


@dataclass(frozen=True, slots=True, eq=False)
class UpdateArrived:
    """An edge's result: ``vectors`` and ``numbers`` as its rule's ``payload`` made them, and the
    model that it started from.
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

    ``until_ns``: it trains on, and what is there at that moment or later is too late; 0: it stands
    still until the answer.
    """

    edge: str
    task: int
    base_version: int
    step: int
    until_ns: int = 0


@dataclass(frozen=True, slots=True)
class AlarmRang:
    """The moment that SetAlarm(name, at) asked for."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class JobDone:
    """The result of RunJob(name), at its emulated end: finite flat vectors, and numbers. It
    comes once for each job.
    """

    name: str
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _by_name(self)


@dataclass(frozen=True, slots=True)
class JobFailed:
    """RunJob(name) will never have a result, at its emulated end: what came of it is not finite,
    or its worker died again and again.
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
