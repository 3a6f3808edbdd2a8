"""Build a slotted strategy's timetable of its channel and devices from an experiment."""

from __future__ import annotations

from pathlib import Path

from edgefl.config.experiment import Experiment
from edgefl.edges.training_plan import batches, pass_samples, samples_after
from edgefl.errors import UserError
from edgefl.hosts.setup.message_packing import model_bytes
from edgefl.hosts.setup.network import longest_delay_ns
from edgefl.strategies.base.timetable import Timetable
from edgefl.vectors import Layout
from emulator.compute import Device, Rate
from emulator.tdma.closed_form import Tdma
from emulator.units import NS_PER_S, to_ns

BESIDE_BYTES = 256  # at most, for names and numbers next to the vector
BIT_PER_MBIT = 1_000_000


def timetable(
    experiment: Experiment, layout: Layout, devices: dict[str, Device], base: Path | None = None
) -> Timetable:
    """The timetable. UserError if the model does not fit into ``medium.slots_per_transfer``.

    ``base``: the folder of the user's code.
    """
    medium, plan = experiment.medium, experiment.training
    slot_ns, guard_ns = _ns(medium.slot_ms), _ns(medium.guard_ms)
    size_bytes = model_bytes(experiment, layout, base)
    transfer_slots = slots_of_model(experiment, size_bytes + BESIDE_BYTES)
    late_ns = longest_delay_ns(experiment) - guard_ns

    def compute_slots(edge: str, samples: int, steps: int | None) -> int | None:
        used = pass_samples(samples, plan.batch_size, plan.drop_last)
        if steps is None:
            steps = plan.epochs * (plan.batches_per_epoch or batches(used, plan.batch_size))
        return _slots(devices[edge], samples_after(steps, used, plan.batch_size), slot_ns)

    known = all(isinstance(device, Rate) for device in devices.values())
    return Timetable(
        slot_ns,
        transfer_slots,
        late_ns,
        known,
        compute_slots,
        lambda n, s, tau: Tdma(n, s, transfer_slots, tau).auto_delay,
    )


def slots_of_model(experiment: Experiment, size_bytes: int) -> int:
    """Slots per model, r: the config's ``slots_per_transfer``, or as many as the model needs.

    UserError if the config gives fewer than the model needs.
    """
    medium = experiment.medium
    usable_ns, rate_bit_s = (
        _ns(medium.slot_ms) - _ns(medium.guard_ms),
        round((medium.rate_mbit_s or 0.0) * BIT_PER_MBIT),
    )
    needed = max(-(-size_bytes * 8 * NS_PER_S // (rate_bit_s * usable_ns)), 1)
    given = medium.slots_per_transfer
    if given is not None and needed > given:
        each = f"slots of {medium.slot_ms:g} ms at {medium.rate_mbit_s:g} Mbit/s"
        raise UserError(
            f"medium.slots_per_transfer: a model of {size_bytes} bytes needs {needed} {each}, found"
            f" {given}; expected more slots or a higher rate"
        )
    return given or needed


def _slots(device: Device, samples: int, slot_ns: int) -> int | None:
    return -(-device.duration_ns(samples) // slot_ns) if isinstance(device, Rate) else None


def _ns(ms: float | None) -> int:
    return to_ns((ms or 0.0) / 1000)
