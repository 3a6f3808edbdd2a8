"""The topology of a lab: hosts, bridges, the links between them, and background traffic.

Traffic goes up from a link's ``lower`` end to its ``upper`` end, and down the other way.

    edge-1 --+
    edge-2 --+-- cell ---- server        links: edge-1 to cell, edge-2 to cell, cell to server
             (bridge)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from emulator.errors import BadValue, valid_name
from emulator.kernel.commands import KernelWay

MOST_HOSTS = 254  # each has an address of its own in 198.18.N.0/24
MOST_LINKS = 500  # two taps each, and select() waits for files below number 1024
UNSHAPED = KernelWay()
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host; with ``here`` it is this machine itself, otherwise a network namespace."""

    name: str
    here: bool = False


@dataclass(frozen=True, slots=True)
class LabBridge:
    """A point where several links meet.

    With a rate, traffic between the links below it (where it is the upper end) and those above it
    shares this rate fairly, per host below.
    """

    name: str
    up: KernelWay = UNSHAPED
    down: KernelWay = UNSHAPED

    @property
    def shared(self) -> bool:
        """Whether it has a capacity that its links share."""
        return self.up.rate_bit_s is not None or self.down.rate_bit_s is not None


@dataclass(frozen=True, slots=True)
class LabLink:
    """A link; ``delayed``: it has latency, jitter or loss, or may get them while the lab runs."""

    name: str
    lower: str
    upper: str
    up: KernelWay = UNSHAPED
    down: KernelWay = UNSHAPED
    delayed: bool = False


@dataclass(frozen=True, slots=True)
class LabTraffic:
    """Background traffic from one host to another.

    It loads links like a TCP stream with this rate of payload. With ``on_ns`` and ``off_ns`` it
    sends and rests in turns.
    """

    sender: str
    receiver: str
    rate_bit_s: int
    on_ns: int | None = None
    off_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """Everything that a lab consists of. BadValue if its parts do not fit together."""

    hosts: tuple[LabHost, ...]
    bridges: tuple[LabBridge, ...] = ()
    links: tuple[LabLink, ...] = ()
    traffic: tuple[LabTraffic, ...] = ()
    name: str = "lab"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_names(self)
        _check_links(self)
        _check_bridges(self)
        names = [host.name for host in self.hosts]
        for flow in self.traffic:
            for key, end in (("from", flow.sender), ("to", flow.receiver)):
                valid_name(f"traffic {key} {flow.sender} to {flow.receiver}: host", end, names)
            if flow.sender == flow.receiver:
                raise BadValue(f"traffic from {flow.sender} to itself: expected two hosts")

    def host(self, name: str) -> LabHost:
        """Return the host. BadValue, with the nearest name, if there is none."""
        valid_name("host", name, [host.name for host in self.hosts])
        return next(host for host in self.hosts if host.name == name)


def check_name(what: str, name: object) -> str:
    """Return a name of a host, bridge, link or lab. BadValue if it is none."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "localhost":
        raise BadValue(
            f"{what} {name!r}: expected letters, digits, dots, dashes and underscores, such as"
            " edge-1 (at most 63; not localhost)"
        )
    return name


def _bridges(topology: Topology) -> list[str]:
    return [bridge.name for bridge in topology.bridges]


def _nodes(topology: Topology) -> list[str]:
    return [*(host.name for host in topology.hosts), *_bridges(topology)]


def _check_names(topology: Topology) -> None:
    check_name("name", topology.name)
    for what, names in (
        ("host or bridge", _nodes(topology)),
        # A bridge's shared capacity can be changed like a link, so it needs a name of its own.
        ("link", [*(link.name for link in topology.links), *_bridges(topology)]),
    ):
        for name in names:
            check_name(what, name)
        _refuse_twice(what, names)
    if not topology.hosts:
        raise BadValue("no hosts: a lab needs at least one [[hosts]] with a name")
    for what, count, most in (
        ("hosts", len(topology.hosts), MOST_HOSTS),
        ("links and bridges", len(topology.links) + len(topology.bridges), MOST_LINKS),
    ):
        if count > most:
            raise BadValue(f"{count} {what}: {most} is the maximum of one lab")
    here = [host.name for host in topology.hosts if host.here]
    if len(here) > 1:
        raise BadValue(f"hosts {' and '.join(here)} are both here: at most one is this machine")


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            hint = (
                "; give one of them another name, with name = ..."
                if what == "link"
                else ": expected a name once (names of hosts ignore case)"
            )
            raise BadValue(f"{what} {name!r} exists twice{hint}")
        seen.add(name.lower())


def _check_links(topology: Topology) -> None:
    nodes = _nodes(topology)
    pairs: dict[frozenset[str], str] = {}
    for link in topology.links:
        for key, end in (("from", link.lower), ("to", link.upper)):
            valid_name(f"link {link.name} {key}: host or bridge", end, nodes)
        if link.lower == link.upper:
            raise BadValue(f"link {link.name}: from and to are both {link.lower}, a loop")
        pair = frozenset((link.lower, link.upper))
        if pair in pairs:
            raise BadValue(
                f"links {pairs[pair]} and {link.name} both join {link.lower} and {link.upper}:"
                " expected one"
            )
        pairs[pair] = link.name


def _check_bridges(topology: Topology) -> None:
    """Refuse a loop of bridges, in which frames would circulate, and a capacity without ends."""
    bridges = {bridge.name: bridge for bridge in topology.bridges}
    above: dict[str, set[str]] = {name: set() for name in bridges}
    for link in topology.links:
        if link.lower in bridges and link.upper in bridges:
            above[link.lower].add(link.upper)
            above[link.upper].add(link.lower)
    for loop in _loops(above):
        raise BadValue(f"bridges {' - '.join(loop)} form a loop: expected one way between two")
    for name, bridge in bridges.items():
        sides = {"below": any(link.upper == name for link in topology.links)}
        sides["above"] = any(link.lower == name for link in topology.links)
        missing = [side for side, there in sides.items() if not there]
        if bridge.shared and missing:
            raise BadValue(
                f"bridge {name}: its shared rate needs a link {missing[0]} it, with"
                f" {'to' if missing[0] == 'below' else 'from'} = {name!r}"
            )


def _loops(near: dict[str, set[str]]) -> Iterable[list[str]]:
    """Each loop that a depth-first walk finds, as the names along it."""
    seen: set[str] = set()

    def walk(node: str, path: list[str]) -> Iterable[list[str]]:
        seen.add(node)
        for other in sorted(near[node] - set(path[-1:])):
            if other in path:
                yield [*path[path.index(other) :], node, other]
            elif other not in seen:
                yield from walk(other, [*path, node])

    for start in near:
        if start not in seen:
            yield from walk(start, [])
