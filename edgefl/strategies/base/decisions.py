"""All that a strategy can decide. Decisions are carried out in list order; nothing after Finish."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from edgefl.jobs import Job


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """Give each edge a task: ``vectors`` (with "weights") go down its link, ``numbers`` override
    the training plan.

    ``broadcast``: to all at once, in these slots of the TDMA channel, ready for use at the border
    behind them; (): they have it already.
    """

    edges: tuple[str, ...]
    vectors: dict[str, np.ndarray] = field(repr=False)
    numbers: dict[str, float] = field(default_factory=dict)
    broadcast: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The edge may send its update now, or in these ``slots`` of the TDMA channel."""

    edge: str
    task: int
    slots: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SendFresh:
    """Answer a FreshRequested; ``weights`` None says that there is nothing newer.

    ``version``: the number that the model goes by; None: it is the current version.
    """

    edge: str
    task: int
    weights: np.ndarray | None = field(repr=False)
    version: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """A new global model: the version rises by one. The array must not change afterwards.

    ``made_of``: the tasks whose updates it is made of; None: of all that have arrived since the
    last Publish and were not discarded. It is for the record and changes nothing.
    """

    weights: np.ndarray = field(repr=False)
    made_of: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SetAlarm:
    """Ring AlarmRang(name) at ``at_ns``; the same name set again moves the alarm."""

    name: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Call a task off: whatever it would deliver is not wanted."""

    edge: str
    task: int


@dataclass(frozen=True, slots=True)
class Urge:
    """The edge is to report now: its run ends at the next step and what it has is its update.
    One that asks for fresher models goes on to its end.
    """

    edge: str


@dataclass(frozen=True, slots=True)
class Discard:
    """This task's update was not used, and why."""

    task: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """Numbers worth keeping about this event, all finite; they go to the record and change
    nothing.
    """

    values: dict[str, float]
    edge: str | None = None  # whom they are about


@dataclass(frozen=True, slots=True, eq=False)
class RunJob:
    """Do heavy work during the run; JobDone(name) or JobFailed(name) comes ``cost_ns`` from now, or
    when it really ends if that is later.

    Updates arrive as usual. No other job under way may have that name. The job's arrays
    must not change any more.
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
    """What of ``decisions`` is carried out: nothing after Finish. TypeError for anything but a
    list.
    """
    if not isinstance(decisions, list):
        raise TypeError(
            f"expected a list of decisions ([] for none), found {type(decisions).__name__}"
        )
    for number, decision in enumerate(decisions, 1):
        if isinstance(decision, Finish):
            return decisions[:number]
    return decisions
