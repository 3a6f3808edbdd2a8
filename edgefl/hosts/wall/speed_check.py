"""Whether this host trains as fast as the emulated devices of a run, checked before the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Experiment
from edgefl.hosts.process_messages import FleetReady
from edgefl.hosts.setup.plan import devices, options
from emulator.compute import Native

HEADROOM = 0.9  # of the speed that would just work


@dataclass(frozen=True, slots=True)
class TooFast:
    """The devices of ``strategy`` train faster than this host; samples per real second."""

    strategy: str
    needed_per_s: float
    host_per_s: float
    speed: float  # that would work

    def __str__(self) -> str:
        return (
            f"strategy {self.strategy}: its devices train up to {self.needed_per_s:.0f} samples/s"
            f" together, this host {self.host_per_s:.0f}: speed={self.speed:g} would work, or"
            " --force (the run will be strained)"
        )

    @property
    def strain(self) -> str:
        """What a forced run records."""
        return (
            f"forced: its devices train up to {self.needed_per_s:.0f} samples/s, this host"
            f" {self.host_per_s:.0f}"
        )


def too_fast(experiment: Experiment, base: Path | None, fleet: FleetReady) -> list[TooFast]:
    """The strategies that this host cannot keep up with; none if its speed was not measured."""
    if fleet.samples_per_s is None:
        return []
    have = fleet.samples_per_s * max(fleet.cores - 1, 1)
    found = []
    for entry in experiment.strategies:
        need = _needed(experiment, entry, base, fleet.samples)
        if need > have:
            speed = float(f"{HEADROOM * experiment.speed * have / need:.2g}")
            found.append(TooFast(entry.name, need, have, speed))
    return found


def _needed(
    experiment: Experiment, entry: Any, base: Path | None, samples: dict[str, int]
) -> float:
    """Samples per real second of the fastest devices that may train at one time."""
    strategy, values = options(entry, base)
    # they all have a rate
    emulated: list[Any] = [
        device for device in devices(experiment, samples).values() if not isinstance(device, Native)
    ]
    rates = sorted((device.samples_per_s for device in emulated), reverse=True)
    return sum(rates[: strategy.concurrency(values, len(rates))]) * experiment.speed
