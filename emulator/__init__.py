"""Emulated links, TDMA slots and devices under one clock.

The package does not depend on federated learning and can be used alone. Start at links/network.py.

    links/         queues, plans of service, shared bottlenecks, loss; the network of all links
    capacity/      rates over time, and the bytes that they serve; delay.py: what comes after
    tdma/          the slotted channel, and the closed forms of its rounds
    compute.py     how long devices compute; energy/: what it costs; availability.py, faults.py
    profiles.py    named links and devices; traces/: recordings of real links
    proxy/         links in front of any TCP program; lab/: hosts and links by the Linux kernel
    fidelity.py    whether the host was fast enough; calibrate.py: how fast it is
    clock.py       time, and a queue of items by moment; units.py: texts with a unit
    commands/      the command line; figures.py: its drawings

The names in ``__all__`` are the stable interface of the library. Import them from here, as in
``from emulator import Constant, Link, Network``; the modules behind them may move. Each name is
loaded at its first use, so code that needs only ``emulator.units`` does not load numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emulator.capacity import Capacity
    from emulator.capacity.rates import Constant, Gated, Lowest, OnOff, Slotted, Windows
    from emulator.capacity.service import bytes_served, served_at
    from emulator.capacity.trace import Trace, read_trace
    from emulator.clock import Agenda, VirtualClock, WallClock, precise_timers
    from emulator.compute import (
        LONG,
        MEDIUM,
        MILD,
        SHORT,
        Bursts,
        Bursty,
        Device,
        Drawn,
        Memoryless,
        Native,
        Rate,
        RuntimeClass,
        Steps,
        Throttled,
        even_speeds,
        lognormal_speeds,
        runtime_classes,
    )
    from emulator.delay import Delay, Jitter, Latency
    from emulator.errors import BadValue
    from emulator.faults import (
        Fault,
        Outages,
        Schedule,
        Slowed,
        Timeline,
        poisson_faults,
        single_fault,
    )
    from emulator.fidelity import Fidelity, Quantiles, Thresholds
    from emulator.host import host_facts
    from emulator.lab.attached import AttachedLab, LabConnection, LabMachine, attach, lab_namespace
    from emulator.lab.running import Lab
    from emulator.lab.topology import Topology, parse_topology, read_topology
    from emulator.links.bottleneck import Bottleneck, SharedLink
    from emulator.links.link import Bound, Completion, Link, Transfer
    from emulator.links.loss import Lossy
    from emulator.links.network import Network
    from emulator.profiles import DeviceProfile, LinkProfile, device_profile, link_profile
    from emulator.proxy.proxy import Proxy, running_proxy
    from emulator.proxy.routes import ProxyWay, Route
    from emulator.tdma.channel import Channel, ChannelLink, Grid, Use
    from emulator.tdma.closed_form import Round, Tdma, Upload, simulate
    from emulator.units import (
        FOREVER,
        NS_PER_S,
        parse_duration,
        parse_rate,
        parse_size,
        seconds_text,
        to_ns,
    )

__all__ = [
    # units and errors
    "FOREVER",
    "NS_PER_S",
    "BadValue",
    "parse_duration",
    "parse_rate",
    "parse_size",
    "seconds_text",
    "to_ns",
    # capacities: the rate over time
    "Capacity",
    "Constant",
    "Gated",
    "Lossy",
    "Lowest",
    "OnOff",
    "Slotted",
    "Trace",
    "Windows",
    "bytes_served",
    "read_trace",
    "served_at",
    # delays
    "Delay",
    "Jitter",
    "Latency",
    # links, shared bottlenecks, and the network of all links
    "Bottleneck",
    "Bound",
    "Completion",
    "Link",
    "Network",
    "SharedLink",
    "Transfer",
    # TDMA: the slotted channel and its theory
    "Channel",
    "ChannelLink",
    "Grid",
    "Round",
    "Tdma",
    "Upload",
    "Use",
    "simulate",
    # computing devices
    "LONG",
    "MEDIUM",
    "MILD",
    "SHORT",
    "Bursts",
    "Bursty",
    "Device",
    "Drawn",
    "Memoryless",
    "Native",
    "Rate",
    "RuntimeClass",
    "Steps",
    "Throttled",
    "even_speeds",
    "lognormal_speeds",
    "runtime_classes",
    # time
    "Agenda",
    "VirtualClock",
    "WallClock",
    "precise_timers",
    # faults
    "Fault",
    "Outages",
    "Schedule",
    "Slowed",
    "Timeline",
    "poisson_faults",
    "single_fault",
    # named links and devices
    "DeviceProfile",
    "LinkProfile",
    "device_profile",
    "link_profile",
    # links in front of any TCP program
    "Proxy",
    "ProxyWay",
    "Route",
    "running_proxy",
    # a lab of network namespaces
    "AttachedLab",
    "Lab",
    "LabConnection",
    "LabMachine",
    "Topology",
    "attach",
    "lab_namespace",
    "parse_topology",
    "read_topology",
    # fidelity: whether the host was fast enough
    "Fidelity",
    "Quantiles",
    "Thresholds",
    "host_facts",
]

_MODULES = {  # module: the names that it defines
    "emulator.clock": "Agenda VirtualClock WallClock precise_timers",
    "emulator.capacity": "Capacity",
    "emulator.capacity.rates": "Gated Lowest Constant OnOff Windows Slotted",
    "emulator.capacity.service": "bytes_served served_at",
    "emulator.capacity.trace": "Trace read_trace",
    "emulator.compute": (
        "Bursts Bursty Steps LONG MEDIUM MILD SHORT Drawn RuntimeClass runtime_classes Device "
        "Native Rate Memoryless even_speeds lognormal_speeds Throttled"
    ),
    "emulator.delay": "Delay Jitter Latency",
    "emulator.errors": "BadValue",
    "emulator.faults": "Fault Outages Schedule Slowed Timeline poisson_faults single_fault",
    "emulator.fidelity": "Fidelity Thresholds Quantiles",
    "emulator.host": "host_facts",
    "emulator.lab.attached": "AttachedLab LabConnection LabMachine attach lab_namespace",
    "emulator.lab.running": "Lab",
    "emulator.lab.topology": "Topology parse_topology read_topology",
    "emulator.links.bottleneck": "Bottleneck SharedLink",
    "emulator.links.link": "Link Bound Completion Transfer",
    "emulator.links.loss": "Lossy",
    "emulator.links.network": "Network",
    "emulator.profiles": "DeviceProfile LinkProfile device_profile link_profile",
    "emulator.proxy.proxy": "running_proxy Proxy",
    "emulator.proxy.routes": "ProxyWay Route",
    "emulator.tdma.channel": "Channel ChannelLink Grid Use",
    "emulator.tdma.closed_form": "Tdma Round Upload simulate",
    "emulator.units": "FOREVER NS_PER_S parse_duration parse_rate parse_size seconds_text to_ns",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
