"""Build the emulated devices of edges from a ``[devices]`` section."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgefl.config.links import Devices
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


@dataclass(frozen=True, slots=True)
class Work:
    """How much the edges train; runtime classes depend on it.

    ``sizes``: samples by edge, empty unless all processes know them all. ``task(edge)``: samples of
    a whole task; 1 for an edge whose data is not known here.
    """

    sizes: Mapping[str, int]
    task: Callable[[str], int]


def device_maker(
    section: Devices, edges: Sequence[str], streams: Streams, keys: tuple[str, ...], work: Work
) -> Callable[[int], Device]:
    """What makes the device of the edge at a place in ``edges``, a new one in each call.

    ``keys`` identify the group of edges, so that each group has its own random numbers.
    """
    if section.kind == "native":
        return lambda place: Native()
    if section.spread == "classes":
        return _classes(section, edges, streams, keys, work)
    per_s = rates(section, len(edges), streams, keys)
    return lambda place: _device(section, per_s[place], edges[place], streams)


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


def _classes(
    section: Devices, edges: Sequence[str], streams: Streams, keys: tuple[str, ...], work: Work
) -> Callable[[int], Device]:
    """Draw runtime classes. An edge with unknown data has size 1: its device is not used here."""
    sizes = [float(work.sizes.get(edge, 1)) for edge in edges]
    classes = runtime_classes(
        sizes, LONGS[section.long], streams.rng("devices", *keys), section.gamma
    )

    def drawn(place: int) -> Device:
        task_samples = section.task_samples or float(work.task(edges[place]))
        return Drawn(classes[place], task_samples, _seed(streams, edges[place]))

    return drawn


def _device(section: Devices, rate: float, edge: str, streams: Streams) -> Device:
    if section.spread == "exponential":
        return Memoryless(rate, _seed(streams, edge))
    heat, bursts = section.throttling, section.bursts
    if heat is not None:
        return Throttled(rate, rate * heat.hot_share, to_ns(heat.budget_s), to_ns(heat.recovery_s))
    if bursts is not None:
        return Bursty(
            rate,
            Bursts(
                to_ns(bursts.calm_s),
                to_ns(bursts.burst_s),
                bursts.share,
                streams.rng("bursts", edge),
            ),
        )
    return Rate(rate)


def _seed(streams: Streams, edge: str) -> int:
    return int(streams.rng("runtimes", edge).integers(2**62))
