"""All that interrupts links and devices: faults, and the times in which edges are away.

Absences, from ``[edges.availability]``, are faults that close the links of an edge and stop its
device. The coordinator gets the same times, and tells the strategy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from edgefl.config.availability import Availability, EdgePattern
from edgefl.config.experiment import Experiment
from edgefl.config.faults import FaultSource
from edgefl.config.groups import parts
from edgefl.errors import UserError
from edgefl.hosts.setup.devices import rates
from edgefl.streams import Streams
from emulator.availability import (
    AWAY,
    ExponentialAbsences,
    Presence,
    periodic_absences,
    presence,
    recorded_presence,
)
from emulator.errors import BadValue
from emulator.faults import Fault, InOrder
from emulator.units import to_ns

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
    match None if section is None else section.kind:
        case "file":
            assert section is not None
            return RecordedAbsence(_of_file(experiment, section, base))
        case "day_night":
            assert section is not None
            return RecordedAbsence(_days(experiment, section))
        case "exponential":
            assert section is not None and section.there_s and section.away_s
            return RandomAbsence(
                max(1, to_ns(section.there_s)), _means(experiment, section, section.away_s)
            )
    return None


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
        found = rates(part.devices, len(part.ids), Streams(experiment.seed), keys)
        speeds |= zip(part.ids, found)
    middle = median(speeds.values())
    return {
        edge: max(1, to_ns(away_s * (middle / speed) ** section.speed_exponent))
        for edge, speed in speeds.items()
    }
