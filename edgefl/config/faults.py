"""``[[faults]]`` of the experiment file: what happens to which edges and when, the same moments in
every process and on both clocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from edgefl.config.section import Section
from edgefl.streams import Streams
from emulator.capacity import Capacity
from emulator.capacity.compose import Gated
from emulator.compute import Device
from emulator.faults import (
    CUTS,
    LASTING,
    SLOWING,
    Fault,
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
    """One fault (``at_s``) or a random process of them (``every_s``) on each of ``edges``."""

    kind: Literal[
        "kill", "restart", "freeze", "cut", "cut_up", "cut_down", "slow", "duplicate", "corrupt"
    ]
    """What goes wrong: `kill`, `restart`, `freeze` an edge's process; `cut`, `cut_up`, `cut_down`
    its links; `slow` its device; `corrupt` (its next update comes damaged and is sent again) or
    `duplicate` (comes twice, is used once).
    """
    edges: tuple[str, ...] = Field((), strict=False)  # none named: all
    """Ids of the edges that have the fault; `[]`: all edges."""
    at_s: float | None = Field(None, ge=0)
    """Once, at this emulated second; or else ..."""
    every_s: float | None = Field(None, gt=0)
    """... again and again on each of them, this many emulated seconds between the end of one and
    the next on average (exponential, by `seed`).
    """
    for_s: float | None = Field(None, ge=1e-9)
    """Length of a cut, a slow stretch or a freeze, emulated seconds; a kill with it is followed by
    a restart.
    """
    for_random: bool = False
    """With `every_s`: lengths are exponential, of mean `for_s`."""
    factor: float | None = Field(None, gt=0, le=1)
    """Of a slow device's speed, above 0 and at most 1."""

    @field_validator("edges", mode="before")
    @classmethod
    def _all_of_them(cls, value: Any) -> Any:
        return () if value == "all" else value

    @model_validator(mode="after")
    def _whole(self) -> FaultEntry:
        if (self.at_s is None) == (self.every_s is None):
            raise ValueError(
                "expected one of at_s (once) and every_s (again and again, mean time between)"
            )
        if self.for_s is None and self.kind in LASTING:
            raise ValueError(f"for_s: missing; a {self.kind} lasts")
        if self.for_s is not None and self.kind not in (*LASTING, "kill"):
            raise ValueError(f"for_s: a {self.kind} does not last")
        if (self.factor is None) == (self.kind == "slow"):
            raise ValueError(
                "factor: expected with kind slow and with no other (0.5: half as fast)"
            )
        if self.for_random and (self.every_s is None or self.for_s is None):
            raise ValueError("for_random: expected with every_s and for_s only")
        return self

    def hits(self, edge: str) -> bool:
        return not self.edges or edge in self.edges

    def faults(self, edge: str, number: int, streams: Streams) -> Iterable[Fault]:
        """This entry, the file's ``number``-th, on one edge; a list if there are finitely many."""
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


def schedule(entries: Sequence[FaultEntry], edges: Sequence[str], streams: Streams) -> Schedule:
    """Everything that happens, in order of time."""
    return Schedule(*(source for edge in edges for source in _sources(entries, edge, streams)))


def revives(entries: Sequence[FaultEntry]) -> bool:
    """Whether dead edges come back."""
    return any(
        entry.kind == "restart" or (entry.kind == "kill" and entry.for_s is not None)
        for entry in entries
    )


def told(fault: Fault) -> dict[str, Any]:
    """A fault as the record tells it."""
    return {"kind": fault.kind, "edge": fault.target} | (
        {"for_s": fault.for_ns / NS_PER_S} if fault.for_ns else {}
    )


def gated(
    capacity: Capacity | None,
    entries: Sequence[FaultEntry],
    edge: str,
    direction: str,
    streams: Streams,
) -> Capacity | None:
    """The capacity of an edge's link with its outages; itself if it has none, or is not shaped."""
    gate = outages(entries, edge, direction, streams)
    return capacity if capacity is None or gate is None else Gated(capacity, gate)


def outages(
    entries: Sequence[FaultEntry], edge: str, direction: str, streams: Streams
) -> Outages | None:
    """When an edge's link is closed; None if it never is."""
    cuts = any(entry.kind in CUTS[direction] and entry.hits(edge) for entry in entries)
    return Outages(_timeline(entries, edge, streams, CUTS[direction])) if cuts else None


def slowed(device: Device, entries: Sequence[FaultEntry], edge: str, streams: Streams) -> Device:
    """An edge's device with its slow and frozen stretches; itself if it has none."""
    if not any(entry.kind in SLOWING and entry.hits(edge) for entry in entries):
        return device
    return Slowed(device, _timeline(entries, edge, streams, SLOWING))


def _timeline(
    entries: Sequence[FaultEntry], edge: str, streams: Streams, kinds: Sequence[str]
) -> Timeline:
    sources = _sources(entries, edge, streams, kinds)
    if all(isinstance(source, list) for source in sources):
        return Timeline(
            sorted((fault for source in sources for fault in source), key=lambda fault: fault.at_ns)
        )
    return Timeline(heapq.merge(*sources, key=lambda fault: fault.at_ns))


def _sources(
    entries: Sequence[FaultEntry], edge: str, streams: Streams, kinds: Sequence[str] | None = None
) -> list[Iterable[Fault]]:
    """The random numbers of an entry do not depend on which others are asked for."""
    chosen = [
        (number, entry)
        for number, entry in enumerate(entries)
        if entry.hits(edge) and (kinds is None or entry.kind in kinds)
    ]
    return [entry.faults(edge, number, streams) for number, entry in chosen]
