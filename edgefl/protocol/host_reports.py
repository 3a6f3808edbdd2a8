"""What an edge says about the host on which it runs: facts once, reports during the run."""

from __future__ import annotations

from typing import Annotated

from edgefl.protocol.field_limits import Count, Digest, Id, Limit, MaybeCount
from emulator.values import value_class

Word = Annotated[str, Limit(100)]

# Bits of HostReport.throttled. The first four have the numbers of a Raspberry Pi's firmware.
UNDER_VOLTAGE, FREQUENCY_CAPPED, SLOWED_DOWN, TEMPERATURE_LIMIT, THERMAL_EVENT = 1, 2, 4, 8, 16
THROTTLING = {
    UNDER_VOLTAGE: "under-voltage",
    FREQUENCY_CAPPED: "frequency capped",
    SLOWED_DOWN: "throttled",
    TEMPERATURE_LIMIT: "soft temperature limit",
    THERMAL_EVENT: "thermal event",
}
ZERO_CELSIUS_MK = 273_150


@value_class(frozen=True, slots=True)
class HostFacts:
    """What does not change during a run. An edge sends it once in each session.

    ``machine``: equal for all edges of one machine (and one network namespace), and for no others.
    ``interface``: the network interface towards the coordinator. A text is empty if the system
    does not tell. ``gpus``: the names of its GPUs, joined by commas.
    """

    host: Id
    machine: Digest
    model: Word
    cpu: Word
    cores: Count
    memory_bytes: Count
    system: Word
    architecture: Word
    python: Word
    torch: Word
    interface: Id
    gpus: Word = ""


@value_class(frozen=True, slots=True)
class HostReport:
    """The state of an edge's host and process at one moment.

    None: the system does not tell, or another edge of this host reports it. ``cpu_permille``: of
    all cores. ``temperature_mk``: of the processor, in thousandths of a kelvin. ``throttled``: bits
    of THROTTLING, now or since the last report. ``sent_bytes`` and ``received_bytes``: the
    interface's counters. ``edge_cpu_permille``: of one core, by the edge's process.
    ``ran_us``: how long this process has computed since its first report. ``waited_us``: how long
    it was ready to compute meanwhile, but had no core. ``energy_uj``: what the host's meter has
    counted since this process's first report; None: it has no meter, or it did not answer.
    """

    cpu_permille: Annotated[int | None, Limit(1000)]
    temperature_mk: Annotated[int | None, Limit(1_000_000)]
    throttled: Annotated[int | None, Limit(sum(THROTTLING))]
    sent_bytes: MaybeCount
    received_bytes: MaybeCount
    edge_cpu_permille: Annotated[int, Limit(10**7)]
    rss_bytes: Count
    ran_us: MaybeCount
    waited_us: MaybeCount
    energy_uj: MaybeCount = None
