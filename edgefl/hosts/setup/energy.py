"""The energy model of an experiment: the power of each of its edges."""

from __future__ import annotations

from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.hosts.setup.network import latencies
from edgefl.record.energy import EnergyBook
from emulator.energy.power import EdgePower


def energy_book(experiment: Experiment) -> EnergyBook | None:
    """The energy book of a new run; None if no edge of it has [devices.energy] or [links.radio]."""
    found: dict[str, EdgePower] = {}
    latency_ns = latencies(experiment)
    for part in parts(experiment):
        device, radio = part.devices.energy, part.links.radio
        if device is None and radio is None:
            continue
        board = None if device is None else device.power(part.devices.profile)
        air = None if radio is None else radio.power(part.links.profile)
        kinds = {ns: EdgePower.of(board, air, ns) for ns in {latency_ns[e] for e in part.ids}}
        found |= {edge: kinds[latency_ns[edge]] for edge in part.ids}
    return EnergyBook.of(found, experiment.stop.target_joules) if found else None
