"""From an experiment to its torch-free parts: devices, links, the strategy. The same on both clocks and on every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgefl.config import Experiment, StrategyEntry
from edgefl.errors import UserError
from edgefl.strategies.catalog import load
from edgefl.strategies.strategy import Strategy, StrategyOptions
from edgefl.streams import Streams
from edgefl.vectors import Layout
from emulator.capacity.constant import Constant
from emulator.compute import Device, Native, Rate, spread
from emulator.delay.latency import Latency
from emulator.fidelity import Fidelity, Thresholds
from emulator.host import host_facts
from emulator.link import Link
from emulator.network import Network
from emulator.units import to_ns

BIT_PER_MBIT = 1_000_000


def devices(experiment: Experiment) -> dict[str, Device]:
    """Every edge's device by id."""
    ids, section = experiment.edges.ids(), experiment.devices
    if section.kind == "native":
        return {edge: Native() for edge in ids}
    rng = Streams(experiment.seed).rng("devices")
    return {edge: Rate(rate) for edge, rate in zip(ids, spread(len(ids), section.samples_per_s, section.slowest_ratio, rng))}


def latency_ns(experiment: Experiment) -> int:
    """One-way delay of every link, also charged to the notes that belong to an algorithm."""
    return to_ns(experiment.links.latency_ms / 1000) if experiment.links.kind == "emulated" else 0


def network(experiment: Experiment) -> Network:
    """Every edge's uplink and downlink."""
    section, links = experiment.links, Network()
    rates = {"up": section.up_mbit_s, "down": section.down_mbit_s}
    for edge in experiment.edges.ids():
        for direction, rate in rates.items():
            capacity = Constant(round(rate * BIT_PER_MBIT)) if section.kind == "emulated" else None
            links.add_link(edge, direction, Link(capacity, Latency(latency_ns(experiment))))
    return links


def options(entry: StrategyEntry, base: Path | None) -> tuple[type[Strategy], StrategyOptions]:
    """The strategy's class and its checked options."""
    found = load(entry.strategy, base)
    return found, found.Options.model_validate(entry.options())


def strategy(experiment: Experiment, entry: StrategyEntry, base: Path | None, weights: np.ndarray, layout: Layout) -> Strategy:
    """A fresh strategy at w_0."""
    found, values = options(entry, base)
    return found(weights, layout, values, Streams(experiment.seed))


def fidelity(experiment: Experiment) -> Fidelity:
    """An empty book with the config's limits and this host's facts."""
    limits = experiment.fidelity
    return Fidelity(Thresholds(limits.transfer_lag_ms, limits.transfer_lag_share, overrun_share=limits.overrun_share), host_facts())


def refuse_native(experiment: Experiment) -> None:
    """Under the virtual clock nothing takes the time that it really takes."""
    for name, kind in (("devices", experiment.devices.kind), ("links", experiment.links.kind)):
        if kind == "native":
            raise UserError(f'{name}.kind = "native" needs the wall clock; under the virtual clock give emulated numbers')
