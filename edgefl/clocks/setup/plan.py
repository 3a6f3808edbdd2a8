"""Build the parts of an experiment that need no torch: strategy with its timetable, packing of
messages, deadlines of tasks, fidelity record.

They are the same on both clocks and on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.catalog import own_code
from edgefl.clocks.setup.network import (
    BIT_PER_MBIT,
    Builder,
    DeviceMaker,
    devices,
    in_tokens,
    longest_delay_ns,
    longest_text,
    task_jitters,
    training_plan,
)
from edgefl.compression.compressor import Compressor
from edgefl.compression.compressor import find as find_compressor
from edgefl.compression.packing import Packing
from edgefl.config.experiment import Experiment, Named, StrategyEntry, parts
from edgefl.config.faults import slowed
from edgefl.edges.training import (
    Course,
    batches,
    pass_samples,
    samples_after,
)
from edgefl.errors import UserError
from edgefl.protocol.messages import Assignment
from edgefl.strategies.base.catalog import load
from edgefl.strategies.base.gradients import Gradients
from edgefl.strategies.base.slotted import Slotted, Timetable
from edgefl.strategies.base.strategy import SelectingOptions, Strategy, StrategyOptions
from edgefl.strategies.selection.selector import find as find_selector
from edgefl.streams import Streams
from edgefl.vectors import Layout
from emulator.capacity import Capacity
from emulator.capacity.service import Steady, curve_of
from emulator.compute import Device, Drawn, Memoryless, Rate
from emulator.fidelity import Fidelity, Thresholds
from emulator.host import host_facts
from emulator.tdma.closed_form import Tdma
from emulator.units import FOREVER, NS_PER_S, to_ns

BESIDE_BYTES = 256  # at most, for names and numbers next to the vector
TIMES = 3  # times the emulated time of a phase, but at least ``liveness_s`` longer than it
LONGEST_DRAW = 20  # times the mean: one exponential draw in 5e8 is longer


def options(entry: StrategyEntry, base: Path | None) -> tuple[type[Strategy], StrategyOptions]:
    """The strategy's class and its checked options."""
    found = load(entry.strategy, base)
    return found, found.Options.model_validate(entry.options())


def strategy(
    experiment: Experiment,
    entry: StrategyEntry,
    base: Path | None,
    weights: np.ndarray,
    layout: Layout,
) -> Strategy:
    """A new strategy whose model is w_0."""
    found, values = options(entry, base)
    with own_code(entry.strategy, found):
        made = found(weights, layout, values, Streams(experiment.seed))
    if isinstance(values, SelectingOptions) and "selection" in values.model_fields_set:
        chosen = values.selection
        made.selector = find_selector(chosen.name, chosen.options(), base)
    if isinstance(made, Slotted):
        made.use(timetable(experiment, layout, devices(experiment), base))
    if isinstance(made, Gradients) and experiment.training.decay is not None:
        made.decay = experiment.training.decay.at
    return made


def packing(
    experiment: Experiment, index: int, layout: Layout, base: Path | None
) -> Packing | None:
    """Return the packing of the strategy at ``index``, for a run or an edge; None without the
    table. ``base``: the folder of the user's code.
    """
    section = experiment.compression
    if section.up is None and section.down is None:
        return None
    found, values = options(experiment.strategies[index], base)
    return Packing(
        _method(section.up, base),
        _method(section.down, base),
        layout,
        Streams(experiment.seed),
        found.delivers,
        section.cost_samples,
        found.submodel_parameters(values, layout),
    )


def model_bytes(experiment: Experiment, layout: Layout, base: Path | None) -> int:
    """Return the bytes of a model on its way down, or of its change on its way up if that is
    more.
    """
    section = experiment.compression
    ways = [_method(way, base) for way in (section.up, section.down)]
    return Packing(ways[0], ways[1], layout, Streams(experiment.seed)).model_bytes()


def _method(section: Named | None, base: Path | None) -> Compressor | None:
    return None if section is None else find_compressor(section.name, section.options(), base)


def fidelity(experiment: Experiment) -> Fidelity:
    """An empty fidelity record with the config's limits and this host's facts."""
    limits = experiment.fidelity
    return Fidelity(
        Thresholds(
            limits.transfer_lag_ms, limits.transfer_lag_share, overrun_share=limits.overrun_share
        ),
        host_facts(),
    )


def refuse_native(experiment: Experiment) -> None:
    """Raise UserError for native devices or links: under the virtual clock nothing takes its real
    time.
    """
    for index, part in enumerate(parts(experiment)):
        place = f"groups[{index}]." if part.name else ""
        for name, kind in (("devices", part.devices.kind), ("links", part.links.kind)):
            if kind == "native":
                raise UserError(
                    f'{place}{name}.kind = "native" needs the wall clock; for the virtual clock'
                    " set emulated numbers"
                )


def timetable(
    experiment: Experiment, layout: Layout, devices: dict[str, Device], base: Path | None = None
) -> Timetable:
    """The timetable. UserError if the model does not fit into ``medium.slots_per_transfer``.

    ``base``: the folder of the user's code.
    """
    medium, plan = experiment.medium, experiment.training
    slot_ns, guard_ns = _ns(medium.slot_ms), _ns(medium.guard_ms)
    size_bytes = model_bytes(experiment, layout, base)
    transfer_slots = slots_of_model(experiment, size_bytes + BESIDE_BYTES)
    late_ns = longest_delay_ns(experiment) - guard_ns
    jitters = task_jitters(experiment)

    def compute_slots(edge: str, samples: int, steps: int | None) -> int | None:
        if edge in jitters:
            return None
        used = pass_samples(samples, plan.batch_size, plan.drop_last)
        if steps is None:
            steps = plan.epochs * (plan.batches_per_epoch or batches(used, plan.batch_size))
        return _slots(devices[edge], samples_after(steps, used, plan.batch_size), slot_ns)

    known = all(isinstance(device, Rate) for device in devices.values()) and not jitters
    return Timetable(
        slot_ns,
        transfer_slots,
        late_ns,
        known,
        compute_slots,
        lambda n, s, tau: Tdma(n, s, transfer_slots, tau).auto_delay,
    )


def slots_of_model(experiment: Experiment, size_bytes: int) -> int:
    """Slots per model, r: the config's ``slots_per_transfer``, or as many as the model needs.

    UserError if the config gives fewer than the model needs.
    """
    medium = experiment.medium
    usable_ns = _ns(medium.slot_ms) - _ns(medium.guard_ms)
    rate_bit_s = round((medium.rate_mbit_s or 0.0) * BIT_PER_MBIT)
    needed = max(-(-size_bytes * 8 * NS_PER_S // (rate_bit_s * usable_ns)), 1)
    given = medium.slots_per_transfer
    if given is not None and needed > given:
        each = f"slots of {medium.slot_ms:g} ms at {medium.rate_mbit_s:g} Mbit/s"
        raise UserError(
            f"medium.slots_per_transfer: a model of {size_bytes} bytes needs {needed} {each}, found"
            f" {given}; expected more slots or a higher rate"
        )
    return given or needed


def _slots(device: Device, samples: int, slot_ns: int) -> int | None:
    return -(-device.duration_ns(samples) // slot_ns) if isinstance(device, Rate) else None


def _ns(ms: float | None) -> int:
    return to_ns((ms or 0.0) / 1000)


class EmulatedLimits:
    """Time limits of one run's tasks, so generous that only tasks that never end miss them.

    ``shares``: samples by edge, where the split is known.

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
        self._builder = Builder.of(experiment, base)
        self._capacities: dict[tuple[str, str], Capacity | None] = {}
        self._nominal = DeviceMaker(experiment, shares)
        self._devices: dict[str, Device] = {}
        self._jitters = task_jitters(experiment)
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
            plan=self.plan,
            local_samples=samples,
            steps=steps,
            whole_batches=not self.rule.moves,
        )
        work = course.samples_at(course.steps) * self.rule.work
        if edge in self._in_tokens:
            work *= self._longest
        if edge in self._jitters:
            work *= self._jitters[edge].factor(task.number)
            plain = False
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
            self._capacities[key] = self._builder.alone(edge, direction)
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
