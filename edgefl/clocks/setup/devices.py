"""The emulated devices of edges, from the ``[devices]`` sections, and how much they train."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from edgefl.catalog import find, options_of
from edgefl.config.experiment import Experiment
from edgefl.config.groups import Part, PartFinder, parts
from edgefl.config.links import Devices
from edgefl.edges.edge import TaskJitter
from edgefl.edges.training import Schedule, TrainingPlan
from edgefl.errors import UserError
from edgefl.streams import Streams
from emulator import profiles
from emulator.compute import (
    LONG,
    MILD,
    Bursts,
    Bursty,
    Device,
    Drawn,
    Memoryless,
    Native,
    Rate,
    Throttled,
    even_speeds,
    lognormal_speeds,
    runtime_classes,
    table_speeds,
)
from emulator.units import to_ns

LONGS = {"large": LONG, "mild": MILD}


def training_plan(experiment: Experiment) -> TrainingPlan:
    section = experiment.training
    schedule = section.schedule
    return TrainingPlan(
        section.epochs,
        section.batch_size,
        section.learning_rate,
        section.weight_decay,
        section.momentum,
        section.optimizer,
        section.beta1,
        section.beta2,
        section.epsilon,
        section.optimizer_state == "kept",
        section.micro_batch_size,
        None if schedule is None else Schedule(**schedule.model_dump()),
        section.batches_per_epoch,
        section.drop_last,
    )


def emulated_devices(experiment: Experiment) -> frozenset[str]:
    """The edges whose training takes an emulated time."""
    return frozenset(
        edge for part in parts(experiment) if part.devices.kind == "emulated" for edge in part.ids
    )


def in_tokens(experiment: Experiment) -> frozenset[str]:
    """The edges whose speed is in tokens."""
    return frozenset(
        edge for part in parts(experiment) if part.devices.unit == "tokens" for edge in part.ids
    )


def task_jitters(experiment: Experiment) -> dict[str, TaskJitter]:
    """How the tasks of an edge vary in length, by edge; without the edges whose tasks do not."""
    streams = Streams(experiment.seed)
    return {
        edge: TaskJitter(part.devices.task_jitter, streams, edge)
        for part in parts(experiment)
        if part.devices.task_jitter
        for edge in part.ids
    }


def longest_text(experiment: Experiment, base: Path | None) -> int:
    """The tokens of the longest text: the data set's option ``length``. UserError without it."""
    found = None
    if experiment.task is None:
        load_data = find("edgefl.data", experiment.data.name, "load", base, "data set")
        values = options_of(load_data)
        if values is not None:
            found = getattr(values.model_validate(experiment.data.options()), "length", None)
    if not isinstance(found, int):
        raise UserError(
            'devices.unit: expected "samples", found "tokens": the data set has no option length'
        )
    return found


def rates(section: Devices, count: int, streams: Streams, keys: tuple[str, ...]) -> list[float]:
    """The speed of each device, per second; of spreads that draw nothing more, all that it has."""
    given, rng = section.per_s, streams.rng("devices", *keys)
    if section.profile is not None:
        given = profiles.device_profile(section.profile, samples_per_s=given).samples_per_s
    assert given is not None
    if section.sampler is not None:
        if section.sampler.values is None:
            raise UserError(f"devices.sampler.file {section.sampler.file}: was not read here")
        drawn = streams.rng("sampler", *keys)
        return table_speeds(count, given, section.sampler.values, section.sampler.measure, drawn)
    if section.spread == "lognormal":
        assert section.sigma is not None
        return lognormal_speeds(count, given, section.sigma, rng)
    return even_speeds(count, given, section.slowest_ratio, rng)


class DeviceMaker:
    """Makes devices of edges when they are needed: a new one each time, for it may have a state.

    ``samples``: samples by edge, where they are known; runtime classes depend on them. With
    ``data.source`` "shard" or "local" an edge knows only its own data. Then all processes treat
    all sizes as equal.
    """

    def __init__(self, experiment: Experiment, samples: Mapping[str, int] | None = None) -> None:
        self._experiment, self._finder = experiment, PartFinder(experiment)
        self._streams, self._samples = Streams(experiment.seed), samples or {}
        self._makers = [self._of_part(part) for part in self._finder.parts]

    def of(self, edge: str) -> Device:
        index, place = self._finder.find(edge)
        return self._makers[index](place)

    def _of_part(self, part: Part) -> Callable[[int], Device]:
        """What makes the device of the edge at a place in the part."""
        section, slot_ms = part.devices, self._experiment.medium.slot_ms
        if section.kind == "native":
            return lambda place: Native()
        if section.samples_per_slot is not None and slot_ms is not None:
            per_s = section.samples_per_slot / (slot_ms / 1000)
            section = section.model_copy(update={"samples_per_s": per_s})
        keys = (part.name,) if part.name else ()  # each group has its own random numbers
        if section.spread == "classes":
            return self._classes(part, keys)
        speeds = rates(section, len(part.ids), self._streams, keys)
        return lambda place: self._device(section, speeds[place], part.ids[place])

    def _classes(self, part: Part, keys: tuple[str, ...]) -> Callable[[int], Device]:
        """Draw runtime classes. An edge with unknown data has size 1: its device is not used."""
        section, plan, samples = part.devices, training_plan(self._experiment), self._samples
        sizes = samples if self._experiment.data.source == "partition" else {}
        classes = runtime_classes(
            [float(sizes.get(edge, 1)) for edge in part.ids],
            LONGS[section.long],
            self._streams.rng("devices", *keys),
            section.gamma,
        )

        def drawn(place: int) -> Device:
            edge = part.ids[place]
            own = plan.task_samples(samples[edge]) if edge in samples else 1
            return Drawn(classes[place], section.task_samples or float(own), self._seed(edge))

        return drawn

    def _device(self, section: Devices, rate: float, edge: str) -> Device:
        heat, bursts = section.throttling, section.bursts
        if section.spread == "exponential":
            return Memoryless(rate, self._seed(edge))
        if heat is not None:
            budget_ns, recovery_ns = to_ns(heat.budget_s), to_ns(heat.recovery_s)
            return Throttled(rate, rate * heat.hot_share, budget_ns, recovery_ns)
        if bursts is not None:
            calm_ns, burst_ns = to_ns(bursts.calm_s), to_ns(bursts.burst_s)
            rng = self._streams.rng("bursts", edge)
            return Bursty(rate, Bursts(calm_ns, burst_ns, bursts.share, rng))
        return Rate(rate)

    def _seed(self, edge: str) -> int:
        return int(self._streams.rng("runtimes", edge).integers(2**62))


def devices(experiment: Experiment, samples: Mapping[str, int] | None = None) -> dict[str, Device]:
    """Every edge's device by id; see ``DeviceMaker``."""
    maker = DeviceMaker(experiment, samples)
    return {edge: maker.of(edge) for edge in experiment.edges.ids()}
