"""From a topology to names, interfaces, neighbours and routes, without touching the system.

The number of a lab determines all its names. A bridge is a namespace with one bridge device, "br".
A bridge with a shared rate has two, "low" and "high", joined by a link that has this rate and the
bridge's name. Each host has one address, on all its interfaces, and a route to every other host
along a shortest path.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from emulator.errors import BadValue, valid_name
from emulator.lab.topology import LabLink, Topology

LABS = 256
LOCKS = Path("/run")
HOSTS_FILES = Path("/etc/netns")
"""``ip netns exec`` shows a file of /etc/netns/NAMESPACE in place of that of /etc."""


@dataclass(frozen=True, slots=True)
class LabNames:
    """The names of everything that lab ``number`` makes.

    Interfaces of this machine begin with ``prefix``; inside namespaces they have short names. The
    number determines all names, so it is enough to remove everything.
    """

    number: int

    @property
    def prefix(self) -> str:
        return f"lab{self.number}-"

    @property
    def namespace_prefix(self) -> str:
        return f"emulator-lab{self.number}-"

    @property
    def lock_file(self) -> Path:
        return LOCKS / f"emulator-lab-{self.number}.lock"

    @property
    def folder(self) -> Path:
        """Where the lab keeps its state while it runs."""
        return LOCKS / f"emulator-lab-{self.number}"

    @property
    def state_file(self) -> Path:
        return self.folder / "lab.json"

    @property
    def relay_socket(self) -> Path:
        return self.folder / "relay.sock"

    def counts_file(self, number: int, end: str) -> Path:
        """What the sender ("sent") or receiver ("arrived") of a background flow has counted."""
        return self.folder / f"traffic-{number}-{end}.json"

    def namespace(self, node: str) -> str:
        return f"{self.namespace_prefix}{node}"

    def hosts_file(self, node: str) -> Path:
        return HOSTS_FILES / self.namespace(node) / "hosts"

    def address(self, index: int) -> str:
        """The address of host ``index``; 198.18.0.0/15 is reserved for measurements (RFC 2544)."""
        return f"198.18.{self.number}.{index + 1}"

    def mac(self, link: int, side: int) -> str:
        """The MAC of an end of link ``link``; the first byte says that it is local."""
        return f"02:65:{self.number:02x}:{link >> 8:02x}:{link & 255:02x}:{side + 1:02x}"

    def interface(self, link: int, side: int) -> str:
        """The name of an end of link ``link`` on this machine; at most 15 characters."""
        return f"{self.prefix}{link}{'ab'[side]}"


Device = tuple[str, str]  # (bridge, its device)


@dataclass(frozen=True, slots=True)
class LabEnd:
    """One end of a link: an interface, and the bridge device that it belongs to, if any.

    ``inside``: the options of ip and tc for its namespace. ``made_as``: its name on this machine,
    before it moves into the namespace. A bridge's end has no address.
    """

    node: str
    name: str
    address: str
    mac: str
    inside: tuple[str, ...]
    made_as: str
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """A link, or the shared capacity of a bridge, with its two ends.

    ``sharers``: the addresses that share its rate fairly; without any, all frames have one queue.
    """

    link: LabLink
    lower: LabEnd
    upper: LabEnd
    sharers: tuple[str, ...] = ()

    def other(self, end: LabEnd) -> LabEnd:
        return self.upper if end is self.lower else self.lower


@dataclass(frozen=True, slots=True)
class HostRoute:
    """How a host reaches another one: over ``own``, to the interface ``next_hop``."""

    target: str
    own: LabEnd
    next_hop: LabEnd


@dataclass(frozen=True, slots=True)
class Wiring:
    """Everything that the commands of a lab are made of.

    ``ports``: per bridge device, the MAC of each host's interface and the port that leads there.
    """

    topology: Topology
    names: LabNames
    wires: tuple[Wire, ...]
    addresses: Mapping[str, str]
    neighbours: Mapping[str, tuple[tuple[LabEnd, LabEnd], ...]]
    routes: Mapping[str, tuple[HostRoute, ...]]
    ports: Mapping[Device, tuple[tuple[str, LabEnd], ...]]

    def wire(self, name: str) -> Wire:
        """The link ``name``, or the only link of the host ``name``. BadValue if there is none."""
        by_name = {wire.link.name: wire for wire in self.wires}
        if name in by_name:
            return by_name[name]
        of_host = [wire for wire in self.wires if name in (wire.lower.node, wire.upper.node)]
        if name in self.addresses and len(of_host) == 1:
            return of_host[0]
        if name in self.addresses and of_host:
            told = ", ".join(wire.link.name for wire in of_host)
            raise BadValue(f"link {name!r}: host {name} has several links, give one of {told}")
        valid_name("link", name, by_name)
        raise AssertionError(name)

    @property
    def routers(self) -> list[str]:
        """The hosts that forward frames of others, in order of the topology."""
        hops = {
            route.next_hop.node
            for routes in self.routes.values()
            for route in routes
            if route.next_hop.node != route.target
        }
        return [host.name for host in self.topology.hosts if host.name in hops]


def wiring(topology: Topology, names: LabNames, fair: bool = True) -> Wiring:
    """Wire ``topology`` up as the lab of these names; ``fair``: the kernel can share rates so."""
    here = {host.name for host in topology.hosts if host.here}
    addresses = {host.name: names.address(k) for k, host in enumerate(topology.hosts)}
    wires = _wires(topology, names, addresses, here)
    segments = _Segments(wires, addresses)
    if fair:
        wires = tuple(segments.with_sharers(wire) for wire in wires)
    neighbours = segments.neighbours()
    return Wiring(
        topology,
        names,
        wires,
        addresses,
        neighbours,
        {host: tuple(_routes(host, neighbours, here)) for host in addresses},
        segments.ports(),
    )


def _wires(
    topology: Topology, names: LabNames, addresses: Mapping[str, str], here: set[str]
) -> tuple[Wire, ...]:
    shared = {bridge.name: bridge.shared for bridge in topology.bridges}
    used: Counter[str] = Counter()

    def end(number: int, side: int, node: str, name: str = "", device: str = "") -> LabEnd:
        if node in shared and not device:
            device = ("high", "low")[side] if shared[node] else "br"
        made_as = names.interface(number, side)
        if not name:
            name = f"{'port' if node in shared else 'eth'}{used[node]}"
            used[node] += 1
        inside = () if node in here else ("-n", names.namespace(node))
        name = made_as if node in here else name
        address, mac = addresses.get(node, ""), names.mac(number, side)
        return LabEnd(node, name, address, mac, inside, made_as, device or None)

    wires = [
        Wire(link, end(number, 0, link.lower), end(number, 1, link.upper))
        for number, link in enumerate(topology.links)
    ]
    for number, bridge in enumerate(topology.bridges, len(wires)):
        if bridge.shared:
            link = LabLink(bridge.name, bridge.name, bridge.name, bridge.up, bridge.down)
            # "up" sends up, from the device that the links below have to that of the links above
            low = end(number, 0, bridge.name, "up", "low")
            wires.append(Wire(link, low, end(number, 1, bridge.name, "down", "high")))
    return tuple(wires)


class _Segments:
    """Which interfaces of hosts reach each other without a host between them."""

    def __init__(self, wires: tuple[Wire, ...], addresses: Mapping[str, str]) -> None:
        self._wires = wires
        self._addresses = addresses
        self._at: dict[Device, list[tuple[LabEnd, LabEnd]]] = {}  # (port, the wire's other end)
        for wire in wires:
            for end in (wire.lower, wire.upper):
                if end.device is not None:
                    port = (end, wire.other(end))
                    self._at.setdefault((end.node, end.device), []).append(port)

    def reached(self, end: LabEnd, other: LabEnd) -> Iterator[tuple[LabEnd, Device | None, LabEnd]]:
        """Walk from ``end``, whose link leads to ``other``.

        Yield (interface of a host, None, itself), and (``end``, device, its port towards ``end``).
        """
        waiting = deque([other])
        while waiting:
            came = waiting.popleft()
            if came.device is None:
                yield came, None, came
                continue
            device = (came.node, came.device)
            yield end, device, came
            waiting += [far for port, far in self._at[device] if port is not came]

    def _host_ends(self) -> Iterator[tuple[LabEnd, LabEnd]]:
        for wire in self._wires:
            for end in (wire.lower, wire.upper):
                if end.device is None:
                    yield end, wire.other(end)

    def neighbours(self) -> dict[str, tuple[tuple[LabEnd, LabEnd], ...]]:
        """For each host: (own interface, interface of a host that it reaches directly)."""
        near: dict[str, dict[str, tuple[LabEnd, LabEnd]]] = {host: {} for host in self._addresses}
        for end, other in self._host_ends():
            for found, device, _ in self.reached(end, other):
                if device is None and found.node != end.node:
                    near[end.node].setdefault(found.node, (end, found))
        return {host: tuple(found.values()) for host, found in near.items()}

    def ports(self) -> dict[Device, tuple[tuple[str, LabEnd], ...]]:
        """For each bridge device: the MAC of each host's interface, and the port towards it."""
        ports: dict[Device, list[tuple[str, LabEnd]]] = {device: [] for device in self._at}
        for end, other in self._host_ends():
            for _, device, port in self.reached(end, other):
                if device is not None:
                    ports[device].append((end.mac, port))
        return {device: tuple(found) for device, found in ports.items()}

    def with_sharers(self, wire: Wire) -> Wire:
        """A shared capacity with the addresses of the hosts below it."""
        if wire.lower.node != wire.upper.node:
            return wire
        below = [
            found.address
            for found, device, _ in self.reached(wire.upper, wire.lower)
            if device is None
        ]
        return Wire(wire.link, wire.lower, wire.upper, tuple(dict.fromkeys(below)))


def _routes(
    host: str, neighbours: Mapping[str, tuple[tuple[LabEnd, LabEnd], ...]], here: set[str]
) -> Iterator[HostRoute]:
    """Shortest paths from ``host``, in breadth-first order; this machine forwards nothing."""
    first: dict[str, tuple[LabEnd, LabEnd]] = {}
    waiting = deque([host])
    while waiting:
        node = waiting.popleft()
        if node in here and node != host:
            continue
        for own, far in neighbours[node]:
            if far.node != host and far.node not in first:
                first[far.node] = (own, far) if node == host else first[node]
                waiting.append(far.node)
    for target, (own, next_hop) in first.items():
        yield HostRoute(target, own, next_hop)
