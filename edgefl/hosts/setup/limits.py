"""Deadlines of an experiment's tasks, so generous that only tasks that never end miss them."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment, StrategyEntry
from edgefl.config.faults import slowed
from edgefl.config.groups import PartFinder
from edgefl.edges.training import Course
from edgefl.hosts.setup.network import Builder, longest_delay_ns
from edgefl.hosts.setup.plan import (
    DeviceMaker,
    in_tokens,
    longest_text,
    options,
    training_plan,
)
from edgefl.protocol.messages import Assignment
from edgefl.streams import Streams
from emulator.capacity import Capacity
from emulator.capacity.service import Steady, curve_of
from emulator.compute import Device, Drawn, Memoryless, Rate
from emulator.units import FOREVER, to_ns

TIMES = 3  # times the emulated time of a phase, but at least ``liveness_s`` longer than it
LONGEST_DRAW = 20  # times the mean: one exponential draw in 5e8 is longer


class EmulatedLimits:
    """Time limits of one run's tasks. ``shares``: samples by edge, where the split is known.

    A transfer's limit is based on the time in which the link, used alone, carries the bytes of
    all edges that share it.
    """

    def __init__(
        self,
        experiment: Experiment,
        entry: StrategyEntry,
        base: Path | None,
        shares: Mapping[str, int],
    ) -> None:
        found, values = options(entry, base)
        self.rule = found.rule(values)
        self.plan = training_plan(experiment)
        self.experiment, self.streams = experiment, Streams(experiment.seed)
        self.slack_ns = to_ns(experiment.network.liveness_s * experiment.chosen_speed)
        self.delay_ns = longest_delay_ns(experiment)
        self._finder = PartFinder(experiment)
        self._builder = Builder.of(experiment, base)
        self._capacities: dict[tuple[str, str], Capacity | None] = {}
        self._nominal = DeviceMaker(experiment, shares)
        self._devices: dict[str, Device] = {}
        self._in_tokens = in_tokens(experiment)
        self._longest = longest_text(experiment, base) if self._in_tokens else 1
        given_s = experiment.network.task_timeout_s
        self.total_ns = None if given_s is None else to_ns(given_s)
        # The latest limits that do not depend on the moment: of a transfer at a constant rate, with
        # its bytes, by edge and direction; of a plain task at a constant speed, by edge and samples
        self._transfers: dict[tuple[str, str], tuple[int, int]] = {}
        self._trainings: dict[tuple[str, int], int] = {}

    def state(self) -> dict[str, Any]:
        """What depends on the run so far: a device may be hot, a trace may have begun."""
        return {"capacities": self._capacities, "devices": self._devices}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._capacities, self._devices = state["capacities"], state["devices"]

    def download_ns(
        self, edge: str, size_bytes: int, slots: tuple[int, ...] | None, now: int
    ) -> int:
        if slots is None:
            return self._transfer_ns(edge, "down", size_bytes, now)
        slot_ns = to_ns((self.experiment.medium.slot_ms or 0.0) / 1000)
        last_ns = (max(slots) + 2) * slot_ns if slots else now
        return max(0, last_ns - now) + self.delay_ns + self.slack_ns

    def upload_ns(self, edge: str, size_bytes: int, now: int) -> int:
        return self._transfer_ns(edge, "up", size_bytes, now)

    def training_ns(self, edge: str, samples: int, task: Assignment, now: int) -> int:
        plain = not task.numbers
        if plain and (edge, samples) in self._trainings:
            return self._trainings[edge, samples]
        try:
            steps = self.plan.steps(task, self.rule, samples)
        except ValueError:  # the edge will report it
            return FOREVER
        course = Course(
            task=task,
            local_samples=samples,
            batch_size=self.plan.batch_size,
            batches_per_epoch=self.plan.batches_per_epoch,
            drop_last=self.plan.drop_last,
            steps=steps,
            whole_batches=not self.rule.moves,
        )
        work = course.samples_at(course.steps) * self.rule.work
        if edge in self._in_tokens:
            work *= self._longest
        device = self._device(edge)
        limit_ns = self._generous(_longest_ns(device, work, now))
        if plain and type(device) is Rate:
            self._trainings[edge, samples] = limit_ns
        return limit_ns

    def _transfer_ns(self, edge: str, direction: str, size_bytes: int, now: int) -> int:
        key = edge, direction
        latest = self._transfers.get(key)
        if latest is not None and latest[0] == size_bytes:
            return latest[1]
        if key not in self._capacities:
            self._capacities[key] = self._builder.alone(
                edge, direction, self._finder.part(edge).links
            )
        capacity = self._capacities[key]
        if capacity is None:
            return FOREVER
        curve = curve_of(capacity, now)
        end_ns = curve.when(self._builder.at_most(size_bytes, direction))
        if end_ns >= FOREVER:
            return FOREVER
        limit_ns = self._generous(end_ns - now + self.delay_ns)
        if type(curve) is Steady:
            self._transfers[key] = size_bytes, limit_ns
        return limit_ns

    def _generous(self, time_ns: int | None) -> int:
        if time_ns is None or time_ns >= FOREVER:
            return FOREVER
        return min(FOREVER, max(TIMES * time_ns, time_ns + self.slack_ns))

    def _device(self, edge: str) -> Device:
        if edge not in self._devices:
            self._devices[edge] = slowed(
                self._nominal.of(edge), self._builder.interruptions, edge, self.streams
            )
        return self._devices[edge]


def _longest_ns(device: Device, work: float, now: int) -> int | None:
    """The time (ns) that the device needs for ``work`` samples from ``now`` on.

    For devices with random times it is the longest, or one that is almost never exceeded.
    """
    match device:
        case Memoryless():
            return LONGEST_DRAW * Rate(device.samples_per_s).duration_ns(work)
        case Drawn():
            return ceil(work / device.task_samples * device.runtime.high_ns)
    return device.duration_ns(work, now)


def task_limits(
    experiment: Experiment, entry: StrategyEntry, base: Path | None, shares: Mapping[str, int]
) -> EmulatedLimits | None:
    """The limits of a run's tasks; None if ``network.task_timeout_s`` is 0."""
    if experiment.network.task_timeout_s == 0:
        return None
    return EmulatedLimits(experiment, entry, base, shares)
