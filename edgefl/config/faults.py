"""``[[faults]]`` of the experiment file: what happens to which edges, and when.

The moments are the same in every process and on both clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from pydantic import Field, field_validator, model_validator

from edgefl.config.section import Section
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
    edges: tuple[str, ...] = Field((), strict=False)
    """Ids of the edges that have the fault, or `"all"`. Default: all edges."""
    at_s: float | None = Field(None, ge=0)
    """Emulated second of a single fault. Give either this or `every_s`."""
    every_s: float | None = Field(None, gt=0)
    """Mean emulated seconds from the end of one fault to the start of the next, for repeated
    faults. The times are exponential and drawn from `seed`, for each edge separately.
    """
    for_s: float | None = Field(None, ge=1e-9)
    """Length of the fault in emulated seconds; required for a cut, a slow period or a freeze. A
    `"kill"` with a length is followed by a restart.
    """
    for_random: bool = False
    """With `every_s`: lengths are exponential with mean `for_s`, instead of constant."""
    factor: float | None = Field(None, gt=0, le=1)
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
