"""What was found out about a host, and whether that is enough: no input and no output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter
from rich.filesize import decimal

from edgefl import __version__
from edgefl.config.experiment import Experiment
from edgefl.config.groups import parts
from edgefl.config.links import Links
from edgefl.launch.environment import OLDEST, Count, VersionPart
from edgefl.launch.host import Host
from edgefl.launch.installer import BASE_BYTES, OWN_BYTES
from edgefl.launch.wheels import MACHINES
from edgefl.loading.names import own_names
from emulator import profiles
from emulator.units import NS_PER_S

EDGE_BYTES = 350_000_000  # of memory: an edge with Python, torch and the digits
MODELS_PER_EDGE = 4  # vectors of the model's size in training: start, weights, gradient, update
SAME_MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of architectures
MBIT = 1e6


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What ``host_probe`` tells about a machine; "" or None: not known.

    ``free_bytes``: on the disk of the work folder. ``edgefl`` and ``torch``: versions.
    """

    system: str
    name: str
    board: str
    machine: str
    bits: int
    libc: str
    cores: Count
    memory_bytes: Count | None
    available_bytes: Count | None
    free_bytes: Count
    python: tuple[VersionPart, VersionPart, VersionPart]
    implementation: str
    executable: str
    edgefl: str
    torch: str
    has_data: bool

    @classmethod
    def parsed(cls, found: Any) -> MachineFacts:
        """Check the probe's answer. ValueError if it is something else."""
        if not isinstance(found, dict) or found.keys() != {each.name for each in fields(cls)}:
            raise ValueError("unexpected keys")
        return TypeAdapter(cls).validate_python(found)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The host's clock compared with ours, by the fastest of several pings.

    ``offset_ns``: theirs minus ours, known to ``uncertainty_ns``; ``rtt_ns``: median round trip.
    """

    offset_ns: int
    uncertainty_ns: int
    rtt_ns: int


@dataclass(frozen=True, slots=True)
class Goodput:
    """The network between a host and this machine, measured; seen from the host.

    ``over``: "tcp": a connection as edges make it; "connection": that of the commands.
    """

    over: str
    up_bit_s: float
    down_bit_s: float


@dataclass(slots=True)
class Survey:
    """What was found out about one host. ``problems``: why it cannot do its part."""

    host: str
    reachable: bool = False
    machine: MachineFacts | None = None
    clock: ClockOffset | None = None
    goodput: Goodput | None = None
    samples_per_s: float | None = None
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"fits": not self.problems}


def clock_of(pings: Sequence[tuple[int, int, int, int]]) -> ClockOffset:
    """Compare clocks as NTP does.

    A ping has four moments (ns): sent by our clock, come and gone by theirs, back by ours.
    """
    trips = sorted((back - sent) - (gone - come) for sent, come, gone, back in pings)
    sent, come, gone, back = min(pings, key=lambda ping: (ping[3] - ping[0]) - (ping[2] - ping[1]))
    return ClockOffset(
        offset_ns=((come - sent) + (gone - back)) // 2,
        uncertainty_ns=-(-max(trips[0], 0) // 2),
        rtt_ns=trips[len(trips) // 2],
    )


def rate_bit_s(size: int, took_ns: int, rtt_ns: int) -> float:
    """The goodput of ``size`` bytes, without the round trip of the command and its answer."""
    return 8 * size * NS_PER_S / max(took_ns - rtt_ns, took_ns // 10, 1)


@dataclass(frozen=True, slots=True)
class Demand:
    """What an experiment needs of a host.

    ``up_bit_s`` and ``down_bit_s``: the emulated links of its edges together, in wall-clock time.
    ``code``: own files that the config names.
    """

    memory_bytes: int
    up_bit_s: float
    down_bit_s: float
    own_data: bool
    code: tuple[str, ...]


def demand(host: Host, experiment: Experiment, model_size: int) -> Demand:
    """Return what the edges of ``host`` need; ``model_size``: elements of the model's vector."""
    vectors = MODELS_PER_EDGE * 4 * model_size
    rates = {"up": 0.0, "down": 0.0}
    for part in parts(experiment):
        edges = len(set(part.ids) & set(host.edges))
        if part.links.kind == "emulated" and experiment.medium.kind in ("none", "cell"):
            for way in rates:
                rates[way] += edges * _rate_bit_s(part.links, way) * experiment.chosen_speed
    return Demand(
        len(host.edges) * (EDGE_BYTES + vectors),
        rates["up"],
        rates["down"],
        experiment.data.source == "local",
        tuple(own_names(experiment)),
    )


def _rate_bit_s(links: Links, way: str) -> float:
    """The rate of a link; 0 if a trace says it."""
    if getattr(links, f"trace_{way}") is not None:
        return 0.0
    own = getattr(links, f"{way}_mbit_s")
    if own is not None or links.profile is None:
        return float(own or 0.0) * MBIT
    return float(getattr(profiles.link_profile(links.profile), f"{way}_bit_s"))


def problems(host: Host, found: Survey, wanted: Demand | None, candidate: int = 0) -> list[str]:
    """Return why the host cannot do its part, each in a few words; none if it can.

    ``candidate``: which of the Pythons of ``pythons`` answered. Without ``wanted`` only what every
    experiment needs is checked.
    """
    machine = found.machine
    if machine is None:
        return []
    reasons = [*_software(host, machine, candidate)]
    room = OWN_BYTES if machine.torch else BASE_BYTES
    if machine.free_bytes < room:
        reasons.append(f"{decimal(machine.free_bytes)} free on its disk, expected {decimal(room)}")
    if host.data is not None and not machine.has_data:
        reasons.append(f"no directory {host.data}")
    if wanted is not None:
        reasons += _for_experiment(host, found, machine, wanted)
    return reasons


def pythons(host: Host) -> list[str]:
    """The Pythons of a host in the order in which they are tried."""
    return list(
        dict.fromkeys([f"{host.environment}/bin/python", host.python or "python3", "python3"])
    )


def _software(host: Host, machine: MachineFacts, candidate: int) -> list[str]:
    if host.python is not None and pythons(host)[candidate] == "python3" != host.python:
        return [f"no Python {host.python}"]
    if machine.implementation != "cpython" or machine.python[:2] < OLDEST:
        version = ".".join(map(str, machine.python))
        return [
            f"{machine.executable} is {machine.implementation} {version}, expected CPython"
            f" {OLDEST[0]}.{OLDEST[1]} or newer: name one with `python`"
        ]
    architecture = SAME_MACHINE.get(machine.machine.lower(), machine.machine)
    if not machine.torch and (architecture not in MACHINES or machine.bits < 64):
        return [f"there is no torch for {machine.machine} with a {machine.bits}-bit Python"]
    if not machine.torch and machine.system == "Linux" and machine.libc != "glibc":
        return [f"there is no torch for {machine.libc or 'this C library'}, only for glibc"]
    if not machine.edgefl:
        return ["no edgefl: `edgefl hosts install`"]
    if machine.edgefl != __version__:
        return [f"edgefl {machine.edgefl}, here {__version__}: `edgefl hosts install`"]
    return [] if machine.torch else ["no torch: `edgefl hosts install`"]


def _for_experiment(host: Host, found: Survey, machine: MachineFacts, wanted: Demand) -> list[str]:
    reasons = []
    free = machine.available_bytes or machine.memory_bytes
    if free is not None and free < wanted.memory_bytes:
        reasons.append(
            f"{decimal(free)} of memory free, {len(host.edges)} edges need about"
            f" {decimal(wanted.memory_bytes)}"
        )
    if wanted.own_data and host.data is None:
        reasons.append('data.source = "local" needs a data set there: name it with `data`')
    if wanted.code and not host.allow_code:
        reasons.append(f"the config needs {wanted.code[0]}, and allow_code is not set")
    if found.goodput is not None:
        for way, has, needs in (
            ("up", found.goodput.up_bit_s, wanted.up_bit_s),
            ("down", found.goodput.down_bit_s, wanted.down_bit_s),
        ):
            if has < needs:
                reasons.append(
                    f"{has / MBIT:.3g} Mbit/s {way}, its emulated links need {needs / MBIT:.3g}"
                )
    return reasons
