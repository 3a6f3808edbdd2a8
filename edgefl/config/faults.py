"""Sections of the experiment file about what interrupts edges: ``[[faults]]`` and availability.

What happens to which edges, and when. The moments are the same in every process and on both clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from edgefl.config.section import Section, is_set, refuse_keys_of_other_kinds
from edgefl.streams import Streams
from emulator.capacity import Capacity
from emulator.capacity.rates import Gated
from emulator.compute import Device
from emulator.faults import (
    CUTS,
    LASTING,
    SLOWING,
    Fault,
    InOrder,
    Outages,
    Schedule,
    Slowed,
    Timeline,
    poisson_faults,
    single_fault,
)
from emulator.units import NS_PER_S, to_ns

PROCESS_KINDS = ("kill", "restart", "freeze")


class FaultEntry(Section):
    """Faults of edges: a single one (`at_s`), or a random process of faults (`every_s`)."""

    kind: Literal[
        "kill", "restart", "freeze", "cut", "cut_up", "cut_down", "slow", "duplicate", "corrupt"
    ]
    """What fails. `"kill"`: the edge's process ends. `"restart"`: it starts again. `"freeze"`: it
    stands still. `"cut"`, `"cut_up"`, `"cut_down"`: both links, the uplink or the downlink carry no
    bytes. `"slow"`: the device runs at `factor` of its speed. `"corrupt"`: the next update arrives
    damaged and is sent again. `"duplicate"`: the next update arrives twice and is used once.
    """
    edges: tuple[str, ...] = Field(default=(), strict=False)
    """Ids of the edges that have the fault, or `"all"`. Default: all edges."""
    at_s: float | None = Field(default=None, ge=0)
    """Emulated second of a single fault. Give either this or `every_s`."""
    every_s: float | None = Field(default=None, gt=0)
    """Mean emulated seconds from the end of one fault to the start of the next, for repeated
    faults. The times are exponential and drawn from `seed`, for each edge separately.
    """
    for_s: float | None = Field(default=None, ge=1e-9)
    """Length of the fault in emulated seconds; required for a cut, a slow period or a freeze. A
    `"kill"` with a length is followed by a restart.
    """
    for_random: bool = False
    """With `every_s`: lengths are exponential with mean `for_s`, instead of constant."""
    factor: float | None = Field(default=None, gt=0, le=1)
    """Speed of a slow device, as a share of its full speed (0.5: half as fast). Required for
    `"slow"` only.
    """

    @field_validator("edges", mode="before")
    @classmethod
    def _all_of_them(cls, value: Any) -> Any:
        return () if value == "all" else value

    @model_validator(mode="after")
    def _whole(self) -> FaultEntry:
        if (self.at_s is None) == (self.every_s is None):
            raise ValueError(
                "expected one of at_s (a single fault) and every_s (mean time between repeated"
                " faults)"
            )
        if self.for_s is None and self.kind in LASTING:
            raise ValueError(f"for_s: missing; kind {self.kind} needs a length")
        if self.for_s is not None and self.kind not in (*LASTING, "kill"):
            raise ValueError(f"for_s: kind {self.kind} has no length")
        if (self.factor is None) == (self.kind == "slow"):
            raise ValueError("factor: expected with kind slow only (0.5: half as fast)")
        if self.for_random and (self.every_s is None or self.for_s is None):
            raise ValueError("for_random: expected only with every_s and for_s")
        return self

    def hits(self, edge: str) -> bool:
        """Whether the entry is for this edge."""
        return not self.edges or edge in self.edges

    def faults(self, edge: str, number: int, streams: Streams) -> Iterable[Fault]:
        """Return the faults of one edge by this entry, the ``number``-th of the file.

        A list if their number is finite.
        """
        for_ns, factor = to_ns(self.for_s or 0.0), self.factor or 1.0
        if self.at_s is not None:
            return single_fault(to_ns(self.at_s), edge, self.kind, for_ns, factor)
        assert self.every_s is not None
        return poisson_faults(
            streams.rng("faults", number, edge),
            edge,
            self.kind,
            max(1, to_ns(self.every_s)),
            for_ns,
            factor,
            self.for_random,
        )


class FaultSource(Protocol):
    """What interrupts links and devices: a table of the config, or the absences of edges."""

    @property
    def kind(self) -> str: ...

    def hits(self, edge: str) -> bool: ...

    def faults(self, edge: str, number: int, streams: Streams) -> Iterable[Fault]: ...


def schedule(entries: Sequence[FaultSource], edges: Sequence[str], streams: Streams) -> Schedule:
    """Return all faults of the run, in order of time."""
    return Schedule(*(source for edge in edges for source in _sources(entries, edge, streams)))


def revives(entries: Sequence[FaultEntry]) -> bool:
    """Whether dead edges are restarted."""
    return any(
        entry.kind == "restart" or (entry.kind == "kill" and entry.for_s is not None)
        for entry in entries
    )


def told(fault: Fault) -> dict[str, Any]:
    """A fault as a row of the record."""
    return {"kind": fault.kind, "edge": fault.target} | (
        {"for_s": fault.for_ns / NS_PER_S} if fault.for_ns else {}
    )


def gated(
    capacity: Capacity | None,
    entries: Sequence[FaultSource],
    edge: str,
    direction: str,
    streams: Streams,
) -> Capacity | None:
    """Return the capacity of an edge's link with its outages.

    ``capacity`` itself if the link has no outages or is not shaped.
    """
    gate = outages(entries, edge, direction, streams)
    return capacity if capacity is None or gate is None else Gated(capacity, gate)


def outages(
    entries: Sequence[FaultSource], edge: str, direction: str, streams: Streams
) -> Outages | None:
    """When an edge's link is closed; None if it never is."""
    cuts = any(entry.kind in CUTS[direction] and entry.hits(edge) for entry in entries)
    return Outages(_timeline(entries, edge, streams, CUTS[direction])) if cuts else None


def slowed(device: Device, entries: Sequence[FaultSource], edge: str, streams: Streams) -> Device:
    """Return an edge's device with its slow and frozen periods; the same device if it has none."""
    if not any(entry.kind in SLOWING and entry.hits(edge) for entry in entries):
        return device
    return Slowed(device, _timeline(entries, edge, streams, SLOWING))


def _timeline(
    entries: Sequence[FaultSource], edge: str, streams: Streams, kinds: Sequence[str]
) -> Timeline:
    sources = _sources(entries, edge, streams, kinds)
    if all(isinstance(source, list) for source in sources):
        return Timeline(
            sorted((fault for source in sources for fault in source), key=lambda fault: fault.at_ns)
        )
    return Timeline(InOrder(*sources))


def _sources(
    entries: Sequence[FaultSource], edge: str, streams: Streams, kinds: Sequence[str] | None = None
) -> list[Iterable[Fault]]:
    """The faults of each entry that hits ``edge``, one iterable per entry.

    The random numbers of an entry do not depend on ``kinds``.
    """
    chosen = [
        (number, entry)
        for number, entry in enumerate(entries)
        if entry.hits(edge) and (kinds is None or entry.kind in kinds)
    ]
    return [entry.faults(edge, number, streams) for number, entry in chosen]


# kind -> the keys that it accepts, besides those of every kind
KEYS = {
    "always": (),
    "file": ("file", "format", "period_s", "scale", "draw", "patterns"),
    "day_night": ("day_s", "day_share", "phase"),
    "exponential": ("there_s", "away_s", "speed_exponent"),
}


class EdgePattern(Section):
    """When one edge is there, in a period that repeats; in nanoseconds of emulated time."""

    period_ns: int = Field(gt=0)
    """After this time all begins again."""
    changes_ns: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """The times at which the edge comes and leaves, in turn. Empty: it is never there."""

    @model_validator(mode="after")
    def _in_order(self) -> EdgePattern:
        times = (-1, *self.changes_ns, self.period_ns + 1)
        if len(times) % 2 or any(first > second for first, second in pairwise(times)):
            raise ValueError(
                "changes_ns: expected an even number of times in order, from 0 to period_ns"
            )
        return self


class Availability(Section):
    """When the edges are there, as devices that charge, or are idle, or have a network.

    While an edge is away, its links carry nothing, its training stands still, and the strategy has
    lost it. Needs emulated links and devices.
    """

    kind: Literal["always", "file", "day_night", "exponential"] = "always"
    """`"always"`: no edge leaves. `"file"`: recorded intervals. `"day_night"`: a part of each day.
    `"exponential"`: exponential times there and away, drawn from the seed for each edge.
    """
    on_leave: Literal["keep", "lose"] = "keep"
    """What happens to the task of an edge that leaves. `"keep"`: its training pauses, and the task
    stays open for `network.grace_s`. `"lose"`: the task is closed at once.
    """
    file: str | None = None
    """With kind `"file"`, where it is required: CSV with the columns `edge,begin_s,end_s`, or JSON
    in the form of FLHetBench or FedScale. The path is relative to the config's directory.
    """
    format: Literal["csv", "flhetbench", "fedscale"] | None = None
    """Format of the file. Default: CSV if its name ends in .csv; JSON is known by its keys."""
    period_s: float | None = Field(default=None, gt=0)
    """Seconds after which the intervals of a CSV file repeat. Default: its largest `end_s`."""
    scale: float = Field(default=1.0, gt=0)
    """All times of the file are multiplied by this: 0.01 makes 1.7 hours of a week."""
    draw: bool = False
    """Which client of a file an edge gets, if the file has none of the edges' ids: drawn from the
    seed, instead of in the order of the file.
    """
    patterns: dict[str, EdgePattern] | None = None
    """By edge, instead of a file. In this form the coordinator sends edges on other machines what
    it has read from its file.
    """
    day_s: float = Field(default=86_400.0, gt=0)
    """With `"day_night"`: emulated seconds of a day."""
    day_share: float = Field(default=0.5, gt=0, le=1)
    """With `"day_night"`: the share of the day in which an edge is there."""
    phase: Literal["same", "random"] = "same"
    """With `"day_night"`: `"same"`: all edges come at the start of the run. `"random"`: each has
    its own time of the day, drawn from the seed, as in many time zones.
    """
    there_s: float | None = Field(default=None, ge=1e-9)
    """With `"exponential"`, where it is required: mean emulated seconds for which an edge stays."""
    away_s: float | None = Field(default=None, ge=1e-9)
    """With `"exponential"`, where it is required: mean emulated seconds for which it is away."""
    speed_exponent: float = Field(default=0.0, ge=-5, le=5)
    """With `"exponential"`: the mean time away of an edge is multiplied by (median speed / its
    speed) to this power. 1: a device of half the speed is away twice as long. 0: independent of the
    speed. Needs `devices.spread` `"uniform"` or `"lognormal"`.
    """

    @model_validator(mode="after")
    def _keys_of_its_kind(self) -> Availability:
        refuse_keys_of_other_kinds(self, KEYS)
        if self.patterns is not None:
            for key in ("file", "format", "period_s", "scale", "draw"):
                if is_set(self, key):
                    raise ValueError(f"{key}: expected no patterns with it")
        needed = {"file": ("file",), "exponential": ("there_s", "away_s")}.get(self.kind, ())
        for key in needed if self.patterns is None else ():
            if getattr(self, key) is None:
                raise ValueError(f'{key}: missing; kind = "{self.kind}" needs it')
        return self
