"""The emulated capacity of all links of a run together, made from its config."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.config.links import Links
from edgefl.errors import UserError
from edgefl.hosts.setup.network import DIRECTIONS, Builder, usual_bit_s
from edgefl.live.link_bins import CapacityAt
from edgefl.loading.file import FACTS
from edgefl.results.rundirs import read_config
from emulator.capacity import Capacity
from emulator.links.bottleneck import Bottleneck
from emulator.tdma.channel import Channel
from emulator.units import to_ns


def unknown(way: str, at_s: float) -> None:
    """The capacity of links that are not emulated, or whose config cannot be read."""


def capacity_of(run: Path) -> CapacityAt:
    """Return what all links of the run together can carry, from its config.toml.

    Code that the config names is not loaded. If a trace is missing, the capacity is unknown.
    """
    config = dict(read_config(run))
    facts = config.pop(FACTS, {})
    try:
        return _of(Experiment.model_validate(config), Path(facts.get("base", run)))
    except (UserError, ValueError, OSError):  # the emulator raises ValueError for a bad trace
        return unknown


def _of(experiment: Experiment, base: Path) -> CapacityAt:
    builder = Builder.of(experiment, base)
    links = {way: _links(experiment, builder, way) for way in DIRECTIONS}

    def at(way: str, at_s: float) -> float | None:
        found, moment = links[way], to_ns(at_s)
        if not found:
            return None
        own = sum(count * _bit_s(each, moment) for each, count in found.items())
        shared = builder.media.get(way)
        if isinstance(shared, Channel):
            return (experiment.medium.rate_mbit_s or 0.0) * 1e6
        return min(own, _bit_s(shared.capacity, moment)) if isinstance(shared, Bottleneck) else own

    return at


def _links(experiment: Experiment, builder: Builder, way: str) -> Counter[Any]:
    """The capacities of all edges and how many links have each; empty if one is not emulated."""
    found: Counter[Any] = Counter()
    for part in parts(experiment):
        for edge in part.ids:
            alone = builder.alone(edge, way)
            if alone is None:
                return Counter()
            found[usual_bit_s(alone) if _from_first_byte(part.links) else alone] += 1
    return found


def _from_first_byte(links: Links) -> bool:
    """Whether a trace begins with the first transfer: no one knows that moment here."""
    return links.trace_start == "first_byte"


def _bit_s(capacity: Capacity | int, moment_ns: int) -> float:
    return capacity if isinstance(capacity, int) else capacity.segment(moment_ns)[0]
