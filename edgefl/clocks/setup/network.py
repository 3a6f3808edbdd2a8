"""Build an experiment's network: every edge's links, what they share, and the latency of notes.

Also what interrupts links and devices: faults, and the times in which edges are away. Absences,
from ``[edges.availability]``, are faults that close the links of an edge and stop its device. The
coordinator gets the same times, and tells the strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from edgefl.catalog import find, options_of
from edgefl.config.experiment import Experiment, Part, PartFinder, parts, trace
from edgefl.config.faults import Availability, EdgePattern, FaultSource, gated, outages
from edgefl.config.links import Devices, Links, Medium
from edgefl.edges.edge import TaskJitter
from edgefl.edges.training import Schedule, TrainingPlan
from edgefl.errors import UserError
from edgefl.record.files import ALL_EDGES
from edgefl.streams import Streams
from emulator import profiles
from emulator.availability import (
    AWAY,
    ExponentialAbsences,
    Presence,
    periodic_absences,
    presence,
    recorded_presence,
)
from emulator.capacity import Capacity
from emulator.capacity.rates import Constant, Lowest
from emulator.capacity.trace import Trace
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
from emulator.delay import Delay, Jitter, Latency
from emulator.errors import BadValue
from emulator.faults import Fault, InOrder
from emulator.links.bottleneck import Bottleneck
from emulator.links.link import Link
from emulator.links.loss import Lossy
from emulator.links.network import Network
from emulator.tdma.channel import Channel, Grid
from emulator.units import NS_PER_S, to_ns

MOST_SENT_BYTES = 400_000  # of the 512 KiB of a config that an edge accepts


@dataclass(frozen=True, slots=True)
class RecordedAbsence:
    """Absences by patterns that repeat. ``patterns``: by edge."""

    patterns: Mapping[str, Presence]
    kind: str = AWAY

    def hits(self, edge: str) -> bool:
        return edge in self.patterns

    def faults(self, edge: str, number: int, streams: Streams) -> Iterable[Fault]:
        return periodic_absences(edge, self.patterns[edge])


@dataclass(frozen=True, slots=True)
class RandomAbsence:
    """Exponential times; ``away_ns``: the mean time away, by edge."""

    there_ns: int
    away_ns: Mapping[str, int]
    kind: str = AWAY

    def hits(self, edge: str) -> bool:
        return edge in self.away_ns

    def faults(self, edge: str, number: int, streams: Streams) -> Iterable[Fault]:
        rng = streams.rng("availability", edge)
        return ExponentialAbsences(edge, rng, self.there_ns, self.away_ns[edge])


def absence(experiment: Experiment, base: Path | None) -> FaultSource | None:
    """The absences of the experiment's edges; None if they are always there.

    A path is relative to ``base``. UserError for a file that is no availability.
    """
    section = experiment.edges.availability
    if section is None or section.kind == "always":
        return None
    if section.kind == "exponential":
        assert section.there_s and section.away_s
        away_ns = _means(experiment, section, section.away_s)
        return RandomAbsence(max(1, to_ns(section.there_s)), away_ns)
    if section.kind == "file":
        return RecordedAbsence(_of_file(experiment, section, base))
    return RecordedAbsence(_days(experiment, section))


def interruptions(experiment: Experiment, base: Path | None) -> tuple[FaultSource, ...]:
    """All that interrupts links and devices: the faults of the config, and absences."""
    away = absence(experiment, base)
    return experiment.faults if away is None else (*experiment.faults, away)


def absent_times(experiment: Experiment, base: Path | None) -> dict[str, Iterator[Fault]] | None:
    """For the coordinator: each edge's absences in order of time; None if there are none."""
    away, streams = absence(experiment, base), Streams(experiment.seed)
    if away is None:
        return None
    return {
        edge: InOrder(away.faults(edge, len(experiment.faults), streams))
        for edge in experiment.edges.ids()
        if away.hits(edge)
    }


def _of_file(
    experiment: Experiment, section: Availability, base: Path | None
) -> dict[str, Presence]:
    """Each edge's pattern: that of its id, or else the clients of the file in turn."""
    ids = experiment.edges.ids()
    if section.patterns is not None:
        return {edge: _presence(section.patterns[edge]) for edge in ids}
    assert section.file is not None
    path = (base or Path()) / Path(section.file).expanduser()
    try:
        clients = recorded_presence(path, section.format, section.period_s)
    except BadValue as error:
        raise UserError(f"edges.availability.file: {error}") from None
    if not clients.keys() & set(ids):
        order: Sequence[str] = list(clients)
        if section.draw:
            drawn = Streams(experiment.seed).rng("availability").permutation(len(order))
            order = [order[place] for place in drawn]
        clients = {edge: clients[order[place % len(order)]] for place, edge in enumerate(ids)}
    return {edge: clients[edge].scaled(section.scale) for edge in ids}


def _presence(pattern: EdgePattern) -> Presence:
    begins, ends = pattern.changes_ns[::2], pattern.changes_ns[1::2]
    return Presence(tuple(zip(begins, ends)), pattern.period_ns)


def with_patterns(experiment: Experiment, base: Path | None) -> Experiment:
    """The experiment with what its availability file says of its edges, in place of the file.

    Edges on other machines get it with the config. UserError for a file that is no availability, or
    whose intervals are too many for that message.
    """
    section = experiment.edges.availability
    if section is None or section.file is None:
        return experiment
    patterns = {
        edge: EdgePattern(
            period_ns=found.period_ns,
            changes_ns=tuple(time_ns for interval in found.there_ns for time_ns in interval),
        )
        for edge, found in _of_file(experiment, section, base).items()
    }
    size = sum(len(pattern.model_dump_json()) for pattern in patterns.values())
    if size > MOST_SENT_BYTES:
        raise UserError(
            f"edges.availability.file: its intervals take {size / 1e3:.0f} kB, expected at most"
            f" {MOST_SENT_BYTES / 1e3:.0f} kB with edges that this command does not start: take"
            " fewer edges, a shorter recording, or edgefl run"
        )
    there = Availability(kind="file", on_leave=section.on_leave, patterns=patterns)
    edges = experiment.edges.model_copy(update={"availability": there})
    return experiment.model_copy(update={"edges": edges})


def _days(experiment: Experiment, section: Availability) -> dict[str, Presence]:
    day = presence([(0.0, section.day_s * section.day_share)], section.day_s, "edges.availability")
    streams = Streams(experiment.seed)
    return {
        edge: day
        if section.phase == "same"
        else day.later(int(streams.rng("availability", edge).integers(day.period_ns)))
        for edge in experiment.edges.ids()
    }


def _means(experiment: Experiment, section: Availability, away_s: float) -> dict[str, int]:
    """The mean time away of each edge, in ns."""
    if not section.speed_exponent:
        return dict.fromkeys(experiment.edges.ids(), max(1, to_ns(away_s)))
    speeds: dict[str, float] = {}
    for part in parts(experiment):
        keys = (part.name,) if part.name else ()
        own = in_samples(part.devices, experiment)
        found = rates(own, len(part.ids), Streams(experiment.seed), keys)
        speeds |= zip(part.ids, found)
    middle = median(speeds.values())
    return {
        edge: max(1, to_ns(away_s * (middle / speed) ** section.speed_exponent))
        for edge, speed in speeds.items()
    }


BIT_PER_MBIT = 1_000_000
DIRECTIONS = ("up", "down")


@dataclass(frozen=True, slots=True)
class Shape:
    """A link's numbers: those of the section, otherwise those of the profile.

    Latency and jitter are one way.
    """

    rates_bit_s: dict[str, int]
    latency_ns: int
    jitter_ns: int
    loss: float


@dataclass(slots=True)
class Builder:
    """Builds links. Links with the same numbers share one capacity, because it keeps a table."""

    experiment: Experiment
    base: Path | None
    media: dict[str, Bottleneck | Channel]
    order: Mapping[str, int]  # edge -> its number among all
    finder: PartFinder
    interruptions: tuple[FaultSource, ...] = ()
    kept: dict[tuple[object, ...], Capacity] = field(default_factory=dict)
    # by id of a section, which stands next to its shape so that no other gets this id
    _shapes: dict[int, tuple[Links, Shape]] = field(default_factory=dict)

    @classmethod
    def of(cls, experiment: Experiment, base: Path | None, granted: bool = False) -> Builder:
        media, places = _media(experiment.medium, base, granted), experiment.edges.places()
        found = PartFinder(experiment), interruptions(experiment, base)
        return cls(experiment, base, media, places, *found)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: links that are made later share the capacities of earlier ones."""
        return {key: getattr(self, key) for key in ("experiment", "base", "media", "kept")}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.experiment, self.base = state["experiment"], state["base"]
        self.media, self.kept = state["media"], state["kept"]
        self.order, self._shapes = self.experiment.edges.places(), {}
        self.finder = PartFinder(self.experiment)
        self.interruptions = interruptions(self.experiment, self.base)

    def supply(self, edge: str, direction: str) -> Link | None:
        """Make an edge's link when the network needs it: an idle device has none."""
        known = edge in self.order and direction in DIRECTIONS
        return self.link(edge, direction) if known else None

    def link(self, edge: str, direction: str) -> Link:
        section = self.finder.part(edge).links
        if section.kind == "native":
            return Link(None, Latency(0))
        shape, medium = self._shape(section), self.media.get(direction)
        delay = self._delay(edge, direction, shape)
        if isinstance(medium, Channel):
            closed = outages(self.interruptions, edge, direction, Streams(self.experiment.seed))
            return medium.link(delay, self._places(edge), closed)
        if medium is None:
            return Link(
                self._gated(self._capacity(direction, section, shape), edge, direction), delay
            )
        own = (
            self._capacity(direction, section, shape)
            if self.experiment.medium.kind == "cell"
            else medium.capacity
        )
        capacity = self._gated(own, edge, direction)
        return medium.link(None if capacity is medium.capacity else capacity, delay)

    def alone(self, edge: str, direction: str) -> Capacity | None:
        """The edge's capacity while no other edge sends; None if the link is not emulated."""
        section = self.finder.part(edge).links
        if section.kind == "native":
            return None
        medium, kind = self.media.get(direction), self.experiment.medium.kind
        if isinstance(medium, Channel):
            own: Capacity = Constant(_bit_s(self.experiment.medium.rate_mbit_s) or 1)
        elif medium is not None and kind != "cell":
            own = medium.capacity
        else:
            own = self._capacity(direction, section, self._shape(section))
            own = own if medium is None else Lowest(own, medium.capacity)
        return self._gated(own, edge, direction)

    def at_most(self, size_bytes: int, direction: str) -> int:
        """Bytes that the link carries until ``size_bytes`` are sent, if all edges send as much.

        On a TDMA channel these are whole slots, in both directions.
        """
        section, edges = self.experiment.medium, len(self.order)
        if section.kind != "tdma":
            return size_bytes * (edges if direction in self.media else 1)
        slot_ns, guard_ns = _ms(section.slot_ms) or 1, _ms(section.guard_ms) or 0
        rate_bit_s = _bit_s(section.rate_mbit_s) or 1
        needed = -(-size_bytes * 8 * NS_PER_S // (rate_bit_s * (slot_ns - guard_ns)))
        slots = max(needed, section.slots_per_transfer or 1) * (section.frame_slots or 1)
        return -(-2 * edges * slots * slot_ns * rate_bit_s // (8 * NS_PER_S))

    def _places(self, edge: str) -> tuple[int] | None:
        """The edge's slot in each frame, by the order of edges; None without frames."""
        frame_slots = self.experiment.medium.frame_slots
        return None if frame_slots is None else (self.order[edge] % frame_slots,)

    def _shape(self, section: Links) -> Shape:
        """``shape_of``, computed once for all edges of a section."""
        if id(section) not in self._shapes:
            self._shapes[id(section)] = section, shape_of(section)
        return self._shapes[id(section)][1]

    def _gated(self, capacity: Capacity, edge: str, direction: str) -> Capacity:
        if not self.interruptions:
            return capacity
        return (
            gated(capacity, self.interruptions, edge, direction, Streams(self.experiment.seed))
            or capacity
        )

    def _delay(self, edge: str, direction: str, shape: Shape) -> Delay:
        if not shape.jitter_ns:
            return Latency(shape.latency_ns)
        seed = int(Streams(self.experiment.seed).rng("jitter", edge, direction).integers(2**62))
        return Jitter(shape.latency_ns, shape.jitter_ns, seed=seed)

    def _capacity(self, direction: str, section: Links, shape: Shape) -> Capacity:
        name = section.trace_up if direction == "up" else section.trace_down
        rate_bit_s = shape.rates_bit_s[direction]
        # All that a capacity depends on: links with an equal key share it.
        key = (name or rate_bit_s, shape.loss, shape.latency_ns)
        if name is not None and section.trace_start == "first_byte":
            # the trace begins with the first byte on this link, so no other link shares it
            return self._new_capacity(name, rate_bit_s, section, shape)
        if key not in self.kept:
            self.kept[key] = self._new_capacity(name, rate_bit_s, section, shape)
        return self.kept[key]

    def _new_capacity(
        self, name: str | None, rate_bit_s: int, section: Links, shape: Shape
    ) -> Capacity:
        capacity = (
            Constant(rate_bit_s)
            if name is None
            else trace(name, self.base or Path(), section.trace_start)
        )
        return Lossy(capacity, shape.loss, 2 * shape.latency_ns) if shape.loss else capacity


def network(
    experiment: Experiment, base: Path | None, granted: bool = False, at_first_use: bool = False
) -> Network:
    """Build every edge's uplink and downlink, and on a TDMA channel the broadcasts' link, up to the
    moment when one leaves the channel.

    Paths of traces are relative to ``base``. ``granted``: on a TDMA channel bytes move only in
    slots that a strategy grants. ``at_first_use``: build each link when it is first used, but the
    first of each group at once, so that what is wrong with it is known before the run. The links
    of a shared bottleneck are built at once: their order decides between equal moments.
    """
    builder = Builder.of(experiment, base, granted)
    later = at_first_use and not any(
        isinstance(each, Bottleneck) for each in builder.media.values()
    )
    links = Network(builder.supply if later else None)
    for part in builder.finder.parts:
        for edge in part.ids[:1] if later else part.ids:
            for direction in DIRECTIONS:
                links.add_link(edge, direction, builder.link(edge, direction))
    if isinstance(channel := builder.media.get("down"), Channel):
        links.add_link(ALL_EDGES, "down", channel.link())
    return links


def latencies(experiment: Experiment) -> dict[str, int]:
    """Each edge's one-way latency (ns). An algorithm's notes take it, too."""
    found: dict[str, int] = {}
    for part in parts(experiment):
        native = part.links.kind == "native"
        found |= dict.fromkeys(part.ids, 0 if native else shape_of(part.links).latency_ns)
    return found


def longest_delay_ns(experiment: Experiment) -> int:
    """The longest one-way delay (ns) of a byte on any link, including jitter."""
    shapes = [shape_of(part.links) for part in parts(experiment) if part.links.kind != "native"]
    return max(
        (
            Jitter(each.latency_ns, each.jitter_ns).most_ns if each.jitter_ns else each.latency_ns
            for each in shapes
        ),
        default=0,
    )


def shape_of(section: Links) -> Shape:
    """The numbers of an emulated link."""
    said = {
        "up": _bit_s(section.up_mbit_s),
        "down": _bit_s(section.down_mbit_s),
        "latency": _ms(section.latency_ms),
        "jitter": _ms(section.jitter_ms),
        "loss": section.loss,
    }
    if section.profile is not None:
        profile = profiles.link_profile(section.profile, **said)
        return Shape(
            {"up": profile.up_bit_s, "down": profile.down_bit_s},
            profile.latency_ns,
            profile.jitter_ns,
            profile.loss,
        )
    return Shape(
        {way: int(said[way] or 1) for way in DIRECTIONS},
        int(said["latency"] or 0),
        int(said["jitter"] or 0),
        said["loss"] or 0.0,
    )


def usual_bit_s(capacity: Capacity) -> int:
    """A typical rate (bit/s) for comparisons. This call does not begin a trace."""
    while isinstance(capacity, (Lossy, Lowest)):
        # of a gated link: the capacity without its outages
        capacity = capacity.capacity if isinstance(capacity, Lossy) else capacity.parts[0]
    return round(capacity.mean_bit_s) if isinstance(capacity, Trace) else capacity.segment(0)[0]


def _media(section: Medium, base: Path | None, granted: bool) -> dict[str, Bottleneck | Channel]:
    """The bottleneck or channel that all emulated links share, by direction."""
    if section.kind == "tdma":
        grid = Grid(_ms(section.slot_ms) or 1, _ms(section.guard_ms) or 0, section.frame_slots or 1)
        # the first edge that is ready takes the next free slots
        channel = Channel(
            grid,
            _bit_s(section.rate_mbit_s) or 1,
            section.slots_per_transfer,
            automatic=not granted,
        )
        return {"up": channel, "down": channel}
    return {
        way: Bottleneck(
            _shared(getattr(section, f"{way}_mbit_s"), getattr(section, f"trace_{way}"), base)
        )
        for way in section.shared
    }


def _shared(mbit_s: float | None, name: str | None, base: Path | None) -> Capacity:
    return Constant(_bit_s(mbit_s) or 1) if name is None else trace(name, base or Path())


def _bit_s(mbit_s: float | None) -> int | None:
    return None if mbit_s is None else max(round(mbit_s * BIT_PER_MBIT), 1)


def _ms(ms: float | None) -> int | None:
    return None if ms is None else to_ns(ms / 1000)


# ---------------------------------------------------------------------- devices
# The emulated devices of edges, from the ``[devices]`` sections, and how much they train.

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


def in_samples(section: Devices, experiment: Experiment) -> Devices:
    """The section with samples per second, where it has samples per slot of a TDMA channel."""
    slot_ms = experiment.medium.slot_ms
    if section.samples_per_slot is None or slot_ms is None:
        return section
    per_s = section.samples_per_slot / (slot_ms / 1000)
    return section.model_copy(update={"samples_per_s": per_s})


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
        section = in_samples(part.devices, self._experiment)
        if section.kind == "native":
            return lambda place: Native()
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
