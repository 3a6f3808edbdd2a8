"""FedCompass: devices get local steps by speed, so that groups deliver together (Li 2024).

A scheduler measures each device's speed. Source: Li et al. 2024, ICLR, arXiv 2309.14675. The
equations follow the authors' code (github.com/APPFL/FedCompass and APPFL: CompassScheduler,
FedCompassAggregator), because of the paper's text only its beginning was available.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from edgefl.strategies.base.events_and_decisions import (
    Assign,
    Decision,
    EdgeJoined,
    Publish,
    Report,
    SetAlarm,
    TaskClosed,
    UpdateArrived,
)
from edgefl.strategies.base.strategy import MOST_FAILED, Strategy, StrategyOptions
from edgefl.vectors import with_changes

# the times of a group that has been aggregated: no device joins it, and its other updates are late
PASSED = -1
FARTHEST_NS = 1 << 62  # the latest moment of an alarm


class FedCompassOptions(StrategyOptions):
    """The defaults are those of the authors' examples."""

    alpha: float = Field(0.9, gt=0, le=1)
    """Weight of all devices together, if their updates are fresh (gap 0)."""
    staleness_exponent: float = Field(0.5, ge=0)
    """Exponent a of the factor (gap + 1)^-a in the weight of an update; 0: no damping."""
    weighting: Literal["equal", "samples"] = "equal"
    """Share p_i of a device in `alpha`: the same for all, or its share of all samples."""
    # the authors' 100 would make training.epochs without meaning
    max_steps: int | None = Field(None, ge=1, le=100_000)
    """Largest number of local steps of a task (Q_max; 100 in the authors' examples), in place of
    `training.epochs`; none: each device's steps by `training.epochs`.
    """
    min_share: float = Field(0.2, gt=0, le=1)
    """Least number of local steps of a task, as a share of the largest (Q_min / Q_max)."""
    speed_momentum: float = Field(0.9, gt=0, le=1)
    """Share of the newest measurement in the estimate of a device's speed."""
    latest_time_factor: float = Field(1.5, ge=1)
    """A group is waited for as long as it is expected to take, times this factor (lambda)."""


@dataclass(slots=True)
class ArrivalGroup:
    """Devices that should deliver at ``expected_ns``; the group is waited for until ``latest_ns``.

    ``awaited``: the devices that still work. ``arrived``: the updates of the others.
    """

    expected_ns: float
    latest_ns: int
    awaited: list[str] = field(default_factory=list)
    arrived: list[UpdateArrived] = field(default_factory=list)


class FedCompass(Strategy):
    """w <- w + sum alpha (gap_i + 1)^(-a) p_i D_i ,  over a group's updates and the late ones that
    wait for the next step. p_i = 1 / N, or n_i / n.

    All edges take part. Speed s_i of device i: seconds for a step, from the time between a task and
    its update, transfers included: first time / steps, then (1 - m) s_i + m time / steps.

    A device's first task has Q_max steps, and its update makes a step alone. From then on:

    Join: the group in which it has most steps, q = floor((T_expected - now) / s_i), of those with
    Q_min <= q <= Q_max. Otherwise create a group: q is the largest of floor((T_latest + s_j Q_max -
    now) / s_i) <= Q_max over the groups that still wait, s_j of the group's fastest device, so that
    they can meet in the next one; at least Q_min; Q_max if there is no such group.
    T_expected = now + q s_i ;  T_latest = now + lambda q s_i.

    A group makes its step when all have delivered, or at T_latest; its devices wait until then, and
    are assigned again, the fastest first. A device that delivers later gets work at once, and its
    update waits for the step of the next group.

    The first public version of the authors' code has (gap + 1)^(+a), corrected in APPFL. Of two
    late updates of one device it uses the newer one; here both count. It has no rule for devices
    that leave: here a group does not wait for them. Normalisation buffers: mixed with the weights.
    """

    Options = FedCompassOptions

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.begun = False
        self.failed = 0  # tasks in a row that were closed without an update
        self.given_ns: dict[str, int] = {}  # edge -> time of its latest task
        self.speeds: dict[str, float] = {}  # s_i, ns for a step
        self.most: dict[str, int] = {}  # Q_max of each device
        self.groups: dict[int, ArrivalGroup] = {}  # by number, in the order of their creation
        self.group_of: dict[str, int] = {}  # edges at work -> their group; none in its first task
        self.made = 0  # groups so far
        self.late: list[UpdateArrived] = []

    def started(self, now: int) -> list[Decision]:
        self.begun = True
        return self._hand_out(now)

    def joined(self, event: EdgeJoined, now: int) -> list[Decision]:
        return self._hand_out(now) if self.begun else []

    def arrived(self, update: UpdateArrived, now: int) -> list[Decision]:
        self.failed = 0
        self._measure(update, now)
        number = self.group_of.pop(update.edge, None)
        if number is None:
            return [*self._fuse([update]), *self._hand_out(now)]
        group = self.groups[number]
        group.awaited.remove(update.edge)
        (self.late if now > group.latest_ns else group.arrived).append(update)
        return [*self._end_if_over(number), *self._hand_out(now)]

    def closed(self, event: TaskClosed, now: int) -> list[Decision]:
        self.failed += 1
        if self.failed >= MOST_FAILED * len(self.known):
            return self.hopeless("no task delivers")
        number = self.group_of.pop(event.edge, None)
        if number is None:
            return self._hand_out(now)
        self.groups[number].awaited.remove(event.edge)
        return [*self._end_if_over(number), *self._hand_out(now)]

    def rang(self, name: str, now: int) -> list[Decision]:
        number = int(name.rpartition(" ")[2])
        if number not in self.groups or not self.groups[number].arrived:
            return []  # it has been aggregated; or it has no update yet, and all will be late
        return [*self._aggregate(number), *self._hand_out(now)]

    def _measure(self, update: UpdateArrived, now: int) -> None:
        """Update s_i, and set Q_max with the first update."""
        edge = update.edge
        steps = int(min(max(update.numbers.get("steps", 1.0), 1.0), 1e9))
        self.most.setdefault(edge, self.options.max_steps or steps)
        speed = max(now - self.given_ns[edge], 1) / steps
        if edge in self.speeds:
            momentum = self.options.speed_momentum
            speed = (1 - momentum) * self.speeds[edge] + momentum * speed
        self.speeds[edge] = speed

    def _end_if_over(self, number: int) -> list[Decision]:
        """Aggregate or drop a group in which no device works any more."""
        group = self.groups[number]
        if group.awaited:
            return []
        if group.arrived:
            return self._aggregate(number)
        del self.groups[number]
        return []

    def _aggregate(self, number: int) -> list[Decision]:
        group = self.groups[number]
        updates, self.late, group.arrived = [*self.late, *group.arrived], [], []
        group.expected_ns = group.latest_ns = PASSED
        if not group.awaited:
            del self.groups[number]
        return self._fuse(updates)

    def _fuse(self, updates: list[UpdateArrived]) -> list[Decision]:
        """Make a server step of these updates."""
        gaps = [self.version - update.base_version for update in updates]
        damped = [(gap + 1) ** -self.options.staleness_exponent for gap in gaps]
        self.weights = with_changes(
            self.weights,
            [update.weights for update in updates],
            [update.base for update in updates],
            [
                self.options.alpha * factor * self._share(update.edge)
                for factor, update in zip(damped, updates)
            ],
            self.layout.parameters,
        )
        self.version += 1
        report = {
            "gathered": float(len(updates)),
            "gap": sum(gaps) / len(updates),
            "groups": float(len(self.groups)),
        }
        tasks = tuple(update.task for update in updates)
        return [Report(report), Publish(self.weights, made_of=tasks)]

    def _share(self, edge: str) -> float:
        """Return p_i."""
        if self.options.weighting == "equal":
            return 1 / len(self.known)
        return self.known[edge] / sum(self.known.values())

    def _hand_out(self, now: int) -> list[Decision]:
        """Give work to every idle edge that does not wait for its group."""
        waiting = {update.edge for group in self.groups.values() for update in group.arrived}
        free = [edge for edge in self.idle if edge not in waiting]
        self.given_ns |= dict.fromkeys(free, now)
        self.mark_running(free)
        new = tuple(edge for edge in free if edge not in self.speeds)
        decisions: list[Decision] = []
        if new:
            decisions.append(Assign(new, {"weights": self.weights}, self._plan(None)))
        known = [edge for edge in free if edge in self.speeds]
        for edge in sorted(known, key=lambda edge: (self.speeds[edge], edge)):
            steps, created = self._schedule(edge, now)
            decisions.append(Assign((edge,), {"weights": self.weights}, self._plan(steps)))
            if created is not None:
                decisions.append(SetAlarm(f"group {created}", self.groups[created].latest_ns))
        return decisions

    def _plan(self, steps: int | None) -> dict[str, float]:
        """Return the numbers of a task with so many steps; None: with the most."""
        most = self.options.max_steps
        if most is None:
            return {} if steps is None else {"most_steps": float(steps)}
        # an epoch has at least one step
        return {"epochs": float(most), "most_steps": float(most if steps is None else steps)}

    def _schedule(self, edge: str, now: int) -> tuple[int, int | None]:
        """Put the edge into a group. Return its steps, and the group's number if it is new."""
        most, speed = self.most[edge], self.speeds[edge]
        least = max(1, round(self.options.min_share * most))
        steps, chosen = self._join(now, speed, least, most)
        created = chosen is None
        if chosen is None:
            steps, chosen = self._steps_alone(now, speed, least, most), self.made
            self.made += 1
            latest = now + steps * speed * self.options.latest_time_factor
            self.groups[chosen] = ArrivalGroup(now + steps * speed, round(min(latest, FARTHEST_NS)))
        self.groups[chosen].awaited.append(edge)
        self.group_of[edge] = chosen
        return steps, chosen if created else None

    def _join(self, now: int, speed: float, least: int, most: int) -> tuple[int, int | None]:
        """Return the steps in the best group, and its number; None if no group fits."""
        best, chosen = least, None
        for number, group in self.groups.items():
            steps = math.floor((group.expected_ns - now) / speed)
            if best <= steps <= most:
                best, chosen = steps, number
        return best, chosen

    def _steps_alone(self, now: int, speed: float, least: int, most: int) -> int:
        """Return the steps of a device that begins a new group."""
        found = -1
        for group in self.groups.values():
            if now < group.latest_ns:
                members = [*group.awaited, *(update.edge for update in group.arrived)]
                again = min(self.speeds[edge] * self.most[edge] for edge in members)
                steps = math.floor((group.latest_ns + again - now) / speed)
                if steps <= most:
                    found = max(found, steps)
        return most if found < 0 else max(found, least)
