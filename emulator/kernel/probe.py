"""Find out what this system has of the things that kernel mode needs.

Qdiscs are tried in a separate namespace, because the kernel does not list them.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, fields
from pathlib import Path

from emulator.errors import BadValue, Unavailable
from emulator.kernel.commands import Argv, KernelShape, Place
from emulator.kernel.namespaces import claimed, clear, execute

_TUN = Path("/dev/net/tun")
_IPV6 = Path("/proc/sys/net/ipv6")
_TRIES: dict[str, Argv] = {
    "sch_tbf": ["tbf", "rate", "1mbit", "burst", "3000", "limit", "15000"],
    "sch_htb": ["htb", "default", "1"],
    "sch_netem": ["netem", "delay", "1ms"],
    "sch_blackhole": ["blackhole"],
}
_U32 = ["protocol", "ip", "prio", "1", "u32", "match", "ip", "src", "198.18.0.0/32"]


@dataclass(frozen=True, slots=True)
class System:
    """What this system has; ``complaint`` is the reason why there are no namespaces."""

    linux: bool = False
    root: bool = False
    ip: bool = False
    tc: bool = False
    namespaces: bool = False
    veth: bool = False
    sch_tbf: bool = False
    sch_htb: bool = False
    sch_netem: bool = False
    tun: bool = False
    ipv6: bool = False
    bridge: bool = False
    cls_u32: bool = False
    sch_blackhole: bool = False
    complaint: str = ""

    def lines(self) -> list[str]:
        """One line per item: its name, and yes, no or not tried."""
        told = {
            field.name: "yes" if getattr(self, field.name) else "no"
            for field in fields(self)
            if field.name != "complaint"
        }
        if not self.can_try:
            told |= dict.fromkeys(("namespaces", "veth", "bridge", "cls_u32", *_TRIES), "not tried")
        return [f"{name:<14}{what}" for name, what in told.items()]

    @property
    def can_try(self) -> bool:
        """Whether it makes sense to try to create a namespace."""
        return self.linux and self.root and self.ip and self.tc


def tools() -> System:
    """Find what can be found without changing the system."""
    return System(
        linux=sys.platform.startswith("linux"),
        root=hasattr(os, "geteuid") and os.geteuid() == 0,
        ip=shutil.which("ip") is not None,
        tc=shutil.which("tc") is not None,
        tun=_TUN.exists(),
        ipv6=_IPV6.exists(),
    )


def examine() -> System:
    """Find everything; with root and the tools, this makes and removes a namespace."""
    found = tools()
    if not found.can_try:
        return found
    with claimed() as place:
        return probe(place, found)


def probe(place: Place, found: System) -> System:
    """Add to ``found`` what a temporary namespace at ``place`` shows."""
    facts = {field.name: getattr(found, field.name) for field in fields(found)}
    try:
        facts["complaint"] = _complaint(["ip", "netns", "add", place.namespace])
        facts["namespaces"] = not facts["complaint"]
        if facts["namespaces"]:
            inside = ["-n", place.namespace]
            facts["veth"] = not _complaint(
                ["ip", *inside, "link", "add", "try0", "type", "veth", "peer", "name", "try1"]
            )
            facts |= {
                kind: not _complaint(
                    ["tc", *inside, "qdisc", "replace", "dev", "lo", "root", *words]
                )
                for kind, words in _TRIES.items()
            }
            facts["bridge"] = not _complaint(
                ["ip", *inside, "link", "add", "try2", "type", "bridge"]
            )
            facts["cls_u32"] = _has_u32(inside)
    finally:
        clear(place)
    return System(**facts)


def _has_u32(inside: list[str]) -> bool:
    root = ["qdisc", "replace", "dev", "lo", "root", "handle", "1:"]
    steps = [
        ["tc", *inside, *root, *_TRIES["sch_htb"]],
        ["tc", *inside, "filter", "add", "dev", "lo", "parent", "1:", *_U32, "flowid", "1:1"],
    ]
    return not any(_complaint(step) for step in steps)


def _complaint(argv: Argv) -> str:
    try:
        execute(argv)
    except BadValue as error:
        return str(error)
    return ""


def require_tools(system: System, what: str = "kernel mode") -> None:
    """Raise BadValue, with advice, if kernel mode cannot be tried on this system.

    ``what`` needs it.
    """
    if not system.linux:
        raise Unavailable(f"{what} needs Linux (any system: emulator proxy)")
    if not system.root:
        raise Unavailable(f"{what} needs root (without root: emulator proxy)")
    missing = [name for name in ("ip", "tc") if not getattr(system, name)]
    if missing:
        raise Unavailable(
            f"{what} needs {' and '.join(missing)}, from the package iproute2 (without it:"
            " emulator proxy)"
        )


def choose(
    system: System, shape: KernelShape, shaper: str | None, latency: bool = True
) -> KernelShape:
    """Return ``shape`` with a shaper and a delay that this system has. BadValue if it has none.

    With ``latency`` False, leave out latency, jitter and loss.
    """
    if not system.namespaces:
        raise Unavailable(
            f"kernel mode needs network namespaces, but this system refuses them:"
            f" {system.complaint}"
        )
    ways = (shape.up, shape.down)
    if any(way.rate_bit_s is not None for way in ways):
        shaper = _shaper(system, shaper)
    delay = _delay(system, shape) if any(way.delays for way in ways) and latency else "none"
    if delay != "relay" and not system.veth:
        raise Unavailable("kernel mode needs veth interfaces, which this kernel does not have")
    return KernelShape(shape.up, shape.down, shaper or shape.shaper, delay)


def _shaper(system: System, wanted: str | None) -> str:
    there = [kind for kind in ("htb", "tbf") if getattr(system, f"sch_{kind}")]
    if wanted is not None and wanted not in there:
        raise Unavailable(
            f"kernel mode: this kernel has no sch_{wanted} (it has:"
            f" {', '.join(there) or 'no shaper'})"
        )
    if not there:
        raise Unavailable("kernel mode needs sch_htb or sch_tbf, and this kernel has neither")
    return wanted or there[0]


def _delay(system: System, shape: KernelShape) -> str:
    # With a random delay, netem lets frames overtake each other. Our links keep order, so the
    # relay makes jitter.
    jitter = shape.up.jitter_ns or shape.down.jitter_ns
    if system.sch_netem and not jitter:
        return "netem"
    if system.tun:
        return "relay"
    missing = (
        "jitter needs /dev/net/tun"
        if jitter
        else "this kernel has neither sch_netem nor /dev/net/tun"
    )
    raise Unavailable(
        f"kernel mode cannot delay or lose frames here: {missing}; --no-latency leaves latency,"
        " jitter and loss out"
    )
