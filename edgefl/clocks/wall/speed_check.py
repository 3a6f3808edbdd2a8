"""Check before a run that this host trains as fast as the emulated devices; choose the speed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.clocks.process_messages import FleetReady
from edgefl.clocks.setup.network import devices, in_tokens, longest_text
from edgefl.clocks.setup.plan import options
from edgefl.config.experiment import MOST_AUTO_SPEED, Experiment
from edgefl.errors import UserError
from emulator.compute import Native

# Share of the rate measured on the idle host: coordinator, evaluator and jobs need the rest.
HEADROOM = 0.7
# A chosen speed is rounded down to one of these times a power of ten. Measurements of two runs on
# one host differ by a few percent; so both runs mostly get the same speed.
TIDY = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12)


@dataclass(frozen=True, slots=True)
class TooFast:
    """Why the devices of ``strategy`` train faster than this host, or may do so.

    ``refusal`` also says what to do. ``strain``: the reason for strain that a forced run records.
    """

    strategy: str
    refusal: str
    strain: str

    def __str__(self) -> str:
        return f"strategy {self.strategy}: {self.refusal}"


def too_fast(experiment: Experiment, base: Path | None, fleet: FleetReady) -> list[TooFast]:
    """The strategies that are too fast for this host, or may be, because trial trainings failed.

    None if nothing was to be measured: a GPU trains, or the edges are on other machines. Rates are
    in samples per real second.
    """
    have, reason = host_per_s(fleet), fleet.not_measured
    found: list[TooFast] = []
    for name, rate in _needed(experiment, base, fleet) if reason or have is not None else ():
        need = rate * experiment.chosen_speed
        if reason and rate:
            refusal = (
                "speed cannot be chosen or checked, because this host's training could not be"
                f" measured ({reason}): mend that, or --force (the run will be strained)"
            )
            strain = f"forced: this host's training could not be measured ({reason})"
        elif have is not None and need > have:
            works = tidy(HEADROOM * have / rate)
            refusal = (
                f"its devices train up to {need:.0f} samples/s together, this host {have:.0f}: set"
                f" speed={works:g} or speed=auto (chooses by itself), or --force (the run will be"
                " strained)"
            )
            strain = f"forced: its devices train up to {need:.0f} samples/s, this host {have:.0f}"
        else:
            continue
        found.append(TooFast(name, refusal, strain))
    return found


def auto_speed(experiment: Experiment, base: Path | None, fleet: FleetReady) -> float:
    """The highest speed, up to MOST_AUTO_SPEED, at which this host can run every strategy.

    MOST_AUTO_SPEED if this host trains no emulated device, because the edges are elsewhere or
    native; and if trial trainings failed, which ``too_fast`` reports. UserError if a GPU trains.
    """
    if fleet.samples_per_s is None and experiment.training.device not in (None, "cpu"):
        raise UserError(
            'speed: expected a number, found "auto", which measures the training of CPUs only'
            f' (training.device = "{experiment.training.device}")'
        )
    rates = [rate for _, rate in _needed(experiment, base, fleet)]
    have = host_per_s(fleet)
    if have is None or not any(rates):
        return MOST_AUTO_SPEED
    return tidy(HEADROOM * have / max(rates))


def tidy(speed: float) -> float:
    """Round ``speed`` down to a value of TIDY times a power of ten, at most MOST_AUTO_SPEED."""
    if speed >= MOST_AUTO_SPEED:
        return MOST_AUTO_SPEED
    power = math.floor(math.log10(speed)) + 1  # 10 ** power is above ``speed``
    tidied = (float(f"{each * 10.0**power:.2g}") for each in (*TIDY, 0.1))
    return next(each for each in tidied if each <= speed)


def host_per_s(fleet: FleetReady) -> float | None:
    """Samples per real second of all cores that train; None if not measured."""
    if fleet.samples_per_s is None:
        return None
    return fleet.samples_per_s * max(fleet.cores - 1, 1)


def _needed(
    experiment: Experiment, base: Path | None, fleet: FleetReady
) -> Iterator[tuple[str, float]]:
    """For each strategy, the sum of the rates (samples per emulated second) of the fastest devices
    that may train at one time.
    """
    # all emulated devices have a rate
    emulated: dict[str, Any] = {
        edge: device
        for edge, device in devices(experiment, fleet.samples).items()
        if not isinstance(device, Native)
    }
    # a speed in tokens counts as that of full texts
    tokens = in_tokens(experiment)
    length = longest_text(experiment, base) if tokens else 1
    rates = sorted(
        (
            device.samples_per_s / (length if edge in tokens else 1)
            for edge, device in emulated.items()
        ),
        reverse=True,
    )
    for entry in experiment.strategies:
        strategy, values = options(entry, base)
        yield entry.name, sum(rates[: strategy.concurrency(values, len(rates))])
