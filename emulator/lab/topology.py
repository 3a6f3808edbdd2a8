"""The topology of a lab: hosts, bridges, the links between them, and background traffic.

It is read from TOML, or from a dict of the same form. Traffic goes up from a link's ``lower`` end
to its ``upper`` end, and down the other way.

    edge-1 --+
    edge-2 --+-- cell ---- server        links: edge-1 to cell, edge-2 to cell, cell to server
             (bridge)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator.delay import delay_of
from emulator.errors import BadValue, check_whole, valid_name
from emulator.plain_text import read_text
from emulator.profiles import link_fields
from emulator.ranges import expanded
from emulator.units import parse_duration, parse_rate

MOST_HOSTS = 254  # each has an address of its own in 198.18.N.0/24
MOST_LINKS = 500  # two taps each, and select() waits for files below number 1024
LEAST_RATE_BIT_S = 8  # tc uses whole bytes/s, and 0 means no rate
MAX_RATE_BIT_S = 100_000_000_000
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class KernelWay:
    """One direction of a link: payload rate, one-way delay, its spread, and share of lost frames.

    With rate None it is not shaped.
    """

    rate_bit_s: int | None = None
    latency_ns: int = 0
    jitter_ns: int = 0
    loss: float = 0.0

    def __post_init__(self) -> None:
        if (
            self.rate_bit_s is not None
            and not LEAST_RATE_BIT_S <= self.rate_bit_s <= MAX_RATE_BIT_S
        ):
            raise BadValue(
                f"rate {self.rate_bit_s} bit/s: kernel mode supports {LEAST_RATE_BIT_S} bit/s to"
                " 100 gbit"
            )
        check_whole("latency", self.latency_ns, unit="ns")
        check_whole("jitter", self.jitter_ns, unit="ns")
        if not 0 <= self.loss < 1:
            raise BadValue(f"loss {self.loss}: expected a share from 0 to below 1")
        if self.jitter_ns:
            delay_of(self.latency_ns, self.jitter_ns, 0)  # BadValue for what no relay can make

    def __str__(self) -> str:
        rate = "not shaped" if self.rate_bit_s is None else f"{self.rate_bit_s / 1e6:g} Mbit/s"
        delay = f" {self.latency_ns / 1e6:g} ms" if self.delays else ""
        jitter = f" +- {self.jitter_ns / 1e6:g} ms" if self.jitter_ns else ""
        return f"{rate}{delay}{jitter}" + (f" loss {100 * self.loss:g} %" if self.loss else "")

    @property
    def delays(self) -> bool:
        """Whether it needs latency, jitter or loss, which only netem or the relay can provide."""
        return bool(self.latency_ns or self.jitter_ns or self.loss)


UNSHAPED = KernelWay()


@dataclass(frozen=True, slots=True)
class KernelShape:
    """Both directions of a link, and how it is made.

    ``shaper`` is htb or tbf; ``delay`` is netem, relay or none.
    """

    up: KernelWay
    down: KernelWay
    shaper: str = "htb"
    delay: str = "none"


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


def _check_names(topology: Topology) -> None:
    check_name("name", topology.name)
    bridges = [bridge.name for bridge in topology.bridges]
    for what, names in (
        ("host or bridge", [*(host.name for host in topology.hosts), *bridges]),
        # A bridge's shared capacity can be changed like a link, so it needs a name of its own.
        ("link", [*(link.name for link in topology.links), *bridges]),
    ):
        for name in names:
            check_name(what, name)
        _refuse_twice(what, names)
    if not topology.hosts:
        raise BadValue("no hosts: a lab needs at least one [[hosts]] with a name")
    for what, count, most in (
        ("hosts", len(topology.hosts), MOST_HOSTS),
        ("links and bridges", len(topology.links) + len(bridges), MOST_LINKS),
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
    bridges = {bridge.name for bridge in topology.bridges}
    nodes = [*(host.name for host in topology.hosts), *bridges]
    pairs: dict[frozenset[str], str] = {}
    joined = {name: {name} for name in bridges}  # the bridges that links join to each one
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
        if pair <= bridges:
            if link.upper in joined[link.lower]:  # frames would circulate
                raise BadValue(
                    f"link {link.name}: bridges {link.lower} and {link.upper} form a loop with the"
                    " links above: expected one way between two"
                )
            both = joined[link.lower] | joined[link.upper]
            joined |= dict.fromkeys(both, both)


def _check_bridges(topology: Topology) -> None:
    """Refuse a shared capacity without links on both sides."""
    for bridge in topology.bridges:
        for side, key, ends in (
            ("below", "to", [link.upper for link in topology.links]),
            ("above", "from", [link.lower for link in topology.links]),
        ):
            if bridge.shared and bridge.name not in ends:
                raise BadValue(
                    f"bridge {bridge.name}: its shared rate needs a link {side} it, with"
                    f" {key} = {bridge.name!r}"
                )


Table = Mapping[str, Any]
RATES = ("rate", "up", "down")
DELAYS = ("latency", "jitter", "loss")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "hosts": ("name", "here"),
    "bridges": ("name", *RATES),
    "links": ("name", "from", "to", "profile", *RATES, *DELAYS),
    "traffic": ("from", "to", "rate", "on", "off"),
}
_TOP = ("name", "seed", *_KEYS)


def read_topology(path: Path) -> Topology:
    """Read a TOML file. BadValue, with the file's name, if it is none or does not make sense."""
    try:
        content = tomllib.loads(read_text(path))
    except OSError as error:
        raise BadValue(f"{path}: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadValue(f"{path}: not valid TOML: {error}") from None
    try:
        return parse_topology({"name": _stem(path)} | content)
    except BadValue as error:
        raise BadValue(f"{path}: {error}") from None


def parse_topology(content: Table) -> Topology:
    """Make a topology of a dict with the keys of the file. BadValue if it does not make sense."""
    for key in content:
        valid_name("key", key, _TOP)
    seed = content.get("seed", 0)
    check_whole("seed", seed)
    return Topology(
        hosts=tuple(_each(content, "hosts", _hosts)),
        bridges=tuple(_each(content, "bridges", _bridges)),
        links=tuple(_each(content, "links", _links)),
        traffic=tuple(_each(content, "traffic", _traffic)),
        name=content.get("name", "lab"),
        seed=seed,
    )


def changed(link: LabLink, said: Mapping[str, str]) -> LabLink:
    """Return ``link`` with other values: keys of RATES and DELAYS; "none" for a rate unshapes.

    BadValue for what is wrong, and for a delay of a link that was made without.
    """
    for key in said:
        valid_name(f"link {link.name}: key", key, (*RATES, *DELAYS))
    if not said:
        raise BadValue(
            f"link {link.name}: nothing to set, expected one of up=2mbit, down=20mbit, rate=none,"
            " latency=30ms, jitter=5ms, loss=1%"
        )
    up, down = _ways(said, (link.up, link.down))
    if not link.delayed and any(key in said for key in DELAYS):
        raise BadValue(
            f"link {link.name}: it was made without latency, jitter and loss; give it latency ="
            ' "0ms" in the topology to change them later'
        )
    return replace(link, up=up, down=down)


def _stem(path: Path) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in path.stem)


def _each(content: Table, section: str, make: Callable[[Table], Sequence[Any]]) -> list[Any]:
    tables = content.get(section, [])
    if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
        raise BadValue(f"{section}: expected tables, as in [[{section}]]")
    made: list[Any] = []
    for number, table in enumerate(tables, 1):
        where = f"[[{section}]] number {number}"
        if not isinstance(table, Mapping):
            raise BadValue(f"{where}: expected a table with keys, found {table!r}")
        try:
            for key in table:
                valid_name("key", key, _KEYS[section])
            made += make(table)
        except BadValue as error:
            raise BadValue(f"{where}: {error}") from None
    return made


def _text(table: Table, key: str) -> str:
    if key not in table:
        raise BadValue(f"key {key!r} is missing")
    if not isinstance(table[key], str):
        raise BadValue(f"{key} {table[key]!r}: expected text in quotes")
    return str(table[key])


def _hosts(table: Table) -> list[LabHost]:
    here = table.get("here", False)
    if not isinstance(here, bool):
        raise BadValue(f"here {here!r}: expected true or false")
    return [LabHost(name, here) for name in expanded(_text(table, "name"))]


def _bridges(table: Table) -> list[LabBridge]:
    up, down = _ways(table, (UNSHAPED, UNSHAPED))
    return [LabBridge(name, up, down) for name in expanded(_text(table, "name"))]


def _links(table: Table) -> list[LabLink]:
    pairs = [
        (lower, upper)
        for lower in expanded(_text(table, "from"))
        for upper in expanded(_text(table, "to"))
    ]
    names = expanded(_text(table, "name")) if "name" in table else [f"{a}-{b}" for a, b in pairs]
    if len(names) != len(pairs):
        raise BadValue(f"name stands for {len(names)} names, from and to for {len(pairs)} links")
    start = (UNSHAPED, UNSHAPED)
    if "profile" in table:
        start = kernel_ways(_text(table, "profile"))
    up, down = _ways(table, start)
    delayed = any(key in table for key in ("profile", *DELAYS))
    return [LabLink(name, *pair, up, down, delayed) for name, pair in zip(names, pairs)]


def _traffic(table: Table) -> list[LabTraffic]:
    times = [table.get(key) for key in ("on", "off")]
    if (times[0] is None) != (times[1] is None):
        raise BadValue("on and off: expected both or none")
    spans = [None if time is None else parse_duration(str(time)) for time in times]
    if 0 in spans:
        raise BadValue("on and off: expected times above 0")
    rate_bit_s = parse_rate(_text(table, "rate"))
    return [
        LabTraffic(sender, receiver, rate_bit_s, *spans)
        for sender in expanded(_text(table, "from"))
        for receiver in expanded(_text(table, "to"))
    ]


def kernel_ways(profile: str | None, **texts: Any) -> tuple[KernelWay, KernelWay]:
    """Both directions (up, down) of a link, as ``profiles.link_fields`` reads them."""
    fields = link_fields(profile, **texts)
    up_bit_s, down_bit_s = fields.pop("up_bit_s", None), fields.pop("down_bit_s", None)
    return KernelWay(up_bit_s, **fields), KernelWay(down_bit_s, **fields)


def _ways(table: Table, ways: tuple[KernelWay, KernelWay]) -> tuple[KernelWay, KernelWay]:
    """``ways`` (up, down) with the rates and delays that ``table`` gives."""
    if "rate" in table and ("up" in table or "down" in table):
        raise BadValue("rate is for both directions: expected rate, or up and down")
    delays = link_fields(None, **{key: table[key] for key in DELAYS if key in table})
    changed_ways = []
    for direction, way in zip(("up", "down"), ways):
        rate: dict[str, Any] = {}
        for key in ("rate", direction):
            if key in table:
                text = _text(table, key)
                rate["rate_bit_s"] = None if text == "none" else parse_rate(text)
        changed_ways.append(replace(way, **delays, **rate))
    return changed_ways[0], changed_ways[1]
