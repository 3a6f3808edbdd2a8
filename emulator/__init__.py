"""Emulated links, TDMA slots and devices under one clock.

The package does not depend on federated learning and can be used alone. Start at links/network.py.

    links/         queues, plans of service, shared bottlenecks, loss; the network of all links
    capacity/      rates over time, and the bytes that they serve; delay.py: what comes after
    tdma/          the slotted channel, and the closed forms of its rounds
    compute.py     how long devices compute; energy/: what it costs; availability.py, faults.py
    profiles.py    named links and devices; traces/: recordings of real links
    proxy/         links in front of any TCP program; lab/: hosts and links by the Linux kernel
    fidelity.py    whether the host was fast enough; calibrate.py: how fast it is
    kernel_pacing.py    the kernel spaces the bytes of a TCP connection
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
    from emulator.capacity import Capacity as Capacity
    from emulator.capacity.rates import Constant as Constant
    from emulator.capacity.rates import Gated as Gated
    from emulator.capacity.rates import Lowest as Lowest
    from emulator.capacity.rates import OnOff as OnOff
    from emulator.capacity.rates import Slotted as Slotted
    from emulator.capacity.rates import Windows as Windows
    from emulator.capacity.service import bytes_served as bytes_served
    from emulator.capacity.service import served_at as served_at
    from emulator.capacity.trace import Trace as Trace
    from emulator.capacity.trace import read_trace as read_trace
    from emulator.clock import Agenda as Agenda
    from emulator.clock import VirtualClock as VirtualClock
    from emulator.clock import WallClock as WallClock
    from emulator.clock import precise_timers as precise_timers
    from emulator.compute import LONG as LONG
    from emulator.compute import MEDIUM as MEDIUM
    from emulator.compute import MILD as MILD
    from emulator.compute import SHORT as SHORT
    from emulator.compute import Bursts as Bursts
    from emulator.compute import Bursty as Bursty
    from emulator.compute import Device as Device
    from emulator.compute import Drawn as Drawn
    from emulator.compute import Memoryless as Memoryless
    from emulator.compute import Native as Native
    from emulator.compute import Rate as Rate
    from emulator.compute import RuntimeClass as RuntimeClass
    from emulator.compute import Steps as Steps
    from emulator.compute import Throttled as Throttled
    from emulator.compute import even_speeds as even_speeds
    from emulator.compute import jitter_factor as jitter_factor
    from emulator.compute import lognormal_speeds as lognormal_speeds
    from emulator.compute import runtime_classes as runtime_classes
    from emulator.delay import Delay as Delay
    from emulator.delay import Jitter as Jitter
    from emulator.delay import Latency as Latency
    from emulator.errors import BadValue as BadValue
    from emulator.faults import Fault as Fault
    from emulator.faults import Outages as Outages
    from emulator.faults import Schedule as Schedule
    from emulator.faults import Slowed as Slowed
    from emulator.faults import Timeline as Timeline
    from emulator.faults import poisson_faults as poisson_faults
    from emulator.faults import single_fault as single_fault
    from emulator.fidelity import Fidelity as Fidelity
    from emulator.fidelity import Quantiles as Quantiles
    from emulator.fidelity import Thresholds as Thresholds
    from emulator.host import host_facts as host_facts
    from emulator.lab.attached import AttachedLab as AttachedLab
    from emulator.lab.attached import LabConnection as LabConnection
    from emulator.lab.attached import LabMachine as LabMachine
    from emulator.lab.attached import attach as attach
    from emulator.lab.attached import lab_namespace as lab_namespace
    from emulator.lab.running import Lab as Lab
    from emulator.lab.topology import Topology as Topology
    from emulator.lab.topology import parse_topology as parse_topology
    from emulator.lab.topology import read_topology as read_topology
    from emulator.links.bottleneck import Bottleneck as Bottleneck
    from emulator.links.bottleneck import SharedLink as SharedLink
    from emulator.links.link import Bound as Bound
    from emulator.links.link import Completion as Completion
    from emulator.links.link import Link as Link
    from emulator.links.link import Transfer as Transfer
    from emulator.links.loss import Lossy as Lossy
    from emulator.links.network import Network as Network
    from emulator.profiles import DeviceProfile as DeviceProfile
    from emulator.profiles import LinkProfile as LinkProfile
    from emulator.profiles import device_profile as device_profile
    from emulator.profiles import link_profile as link_profile
    from emulator.proxy.proxy import Proxy as Proxy
    from emulator.proxy.proxy import running_proxy as running_proxy
    from emulator.proxy.routes import ProxyWay as ProxyWay
    from emulator.proxy.routes import Route as Route
    from emulator.tdma.channel import Channel as Channel
    from emulator.tdma.channel import ChannelLink as ChannelLink
    from emulator.tdma.channel import Grid as Grid
    from emulator.tdma.channel import Use as Use
    from emulator.tdma.closed_form import Round as Round
    from emulator.tdma.closed_form import Tdma as Tdma
    from emulator.tdma.closed_form import Upload as Upload
    from emulator.tdma.closed_form import simulate as simulate
    from emulator.units import FOREVER as FOREVER
    from emulator.units import NS_PER_S as NS_PER_S
    from emulator.units import parse_duration as parse_duration
    from emulator.units import parse_rate as parse_rate
    from emulator.units import parse_size as parse_size
    from emulator.units import seconds_text as seconds_text
    from emulator.units import to_ns as to_ns

_MODULES = {  # module: the names that it defines
    # units and errors
    "emulator.units": "FOREVER NS_PER_S parse_duration parse_rate parse_size seconds_text to_ns",
    "emulator.errors": "BadValue",
    # capacities, the rate over time; delays
    "emulator.capacity": "Capacity",
    "emulator.capacity.rates": "Constant Gated Lowest OnOff Slotted Windows",
    "emulator.capacity.service": "bytes_served served_at",
    "emulator.capacity.trace": "Trace read_trace",
    "emulator.delay": "Delay Jitter Latency",
    # links, shared bottlenecks, and the network of all links
    "emulator.links.link": "Bound Completion Link Transfer",
    "emulator.links.loss": "Lossy",
    "emulator.links.bottleneck": "Bottleneck SharedLink",
    "emulator.links.network": "Network",
    # TDMA: the slotted channel and its theory
    "emulator.tdma.channel": "Channel ChannelLink Grid Use",
    "emulator.tdma.closed_form": "Round Tdma Upload simulate",
    # computing devices, faults, and named links and devices
    "emulator.compute": (
        "LONG MEDIUM MILD SHORT Bursts Bursty Device Drawn Memoryless Native Rate RuntimeClass"
        " Steps Throttled even_speeds jitter_factor lognormal_speeds runtime_classes"
    ),
    "emulator.faults": "Fault Outages Schedule Slowed Timeline poisson_faults single_fault",
    "emulator.profiles": "DeviceProfile LinkProfile device_profile link_profile",
    # time, and whether the host was fast enough
    "emulator.clock": "Agenda VirtualClock WallClock precise_timers",
    "emulator.fidelity": "Fidelity Quantiles Thresholds",
    "emulator.host": "host_facts",
    # links in front of any TCP program; a lab of network namespaces
    "emulator.proxy.proxy": "Proxy running_proxy",
    "emulator.proxy.routes": "ProxyWay Route",
    "emulator.lab.attached": "AttachedLab LabConnection LabMachine attach lab_namespace",
    "emulator.lab.running": "Lab",
    "emulator.lab.topology": "Topology parse_topology read_topology",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
