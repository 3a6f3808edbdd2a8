"""This system: its commands, its network namespaces, and what it has of what a lab needs.

Qdiscs are tried in a separate namespace, because the kernel does not list them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from emulator.errors import BadValue, Unavailable
from emulator.lab.topology import KernelShape, KernelWay

Argv = list[str]

NAMESPACE_FILES = Path("/var/run/netns")
INTERFACE_FILES = Path("/sys/class/net")
_STEP_S = 20.0


def execute(argv: Argv, text: str | None = None) -> str:
    """Run one command and return its output. BadValue, in one line, if it fails.

    ``text`` is its standard input.
    """
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            start_new_session=True,
            **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadValue(f"lab: {' '.join(argv)}: {error}") from None
    if done.returncode:
        complaint = " ".join((done.stderr or done.stdout).split()) or f"status {done.returncode}"
        raise BadValue(f"lab: {' '.join(argv)}: {complaint}")
    return done.stdout


def end_processes(namespace: str, number: int) -> int:
    """Send a signal to every process in the namespace; return how many there were."""
    pids = [int(word) for word in execute(["ip", "netns", "pids", namespace]).split()]
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
    return len(pids)


_TUN = Path("/dev/net/tun")
_IPV6 = Path("/proc/sys/net/ipv6")
_QDISC = "tc {} qdisc replace dev lo root"
# what is tried, with {} for the options of the namespace; cls_u32 needs htb at the root
_TRIES = {
    "veth": "ip {} link add try0 type veth peer name try1",
    "sch_tbf": f"{_QDISC} tbf rate 1mbit burst 3000 limit 15000",
    "sch_netem": f"{_QDISC} netem delay 1ms",
    "bridge": "ip {} link add try2 type bridge",
    "sch_blackhole": f"{_QDISC} blackhole",
    "sch_htb": f"{_QDISC} handle 1: htb default 1",
    "cls_u32": (
        "tc {} filter add dev lo parent 1: protocol ip prio 1 u32 match ip src 198.18.0.0/32"
        " flowid 1:1"
    ),
}


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
        answers = {
            field.name: "yes" if getattr(self, field.name) else "no"
            for field in fields(self)
            if field.name != "complaint"
        }
        if not self.can_try:
            answers |= dict.fromkeys(("namespaces", *_TRIES), "not tried")
        return [f"{name:<14}{answer}" for name, answer in answers.items()]

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


def probe(namespace: str) -> System:
    """Find everything, by means of a namespace of this name; the caller removes it."""
    complaint = _complaint(["ip", "netns", "add", namespace])
    if complaint:
        return replace(tools(), complaint=complaint)
    tried: dict[str, Any] = {
        name: not _complaint(command.format(f"-n {namespace}").split())
        for name, command in _TRIES.items()
    }
    execute(["ip", "netns", "del", namespace])
    return replace(tools(), namespaces=True, **tried)


def _complaint(argv: Argv) -> str:
    try:
        execute(argv)
    except BadValue as error:
        return str(error)
    return ""


def require_tools(system: System, what: str = "emulator lab") -> None:
    """Raise Unavailable, with advice, if ``what`` cannot be tried on this system."""
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
    system: System,
    up: KernelWay,
    down: KernelWay,
    *,
    shaper: str | None = None,
    latency: bool = True,
    delayed: bool = False,
) -> KernelShape:
    """How this system makes a link. Unavailable if it cannot.

    With ``latency`` False, leave out latency, jitter and loss. ``delayed``: the link gets what
    makes them, also if they are 0 now.
    """
    if not system.namespaces:
        raise Unavailable(
            f"kernel mode needs network namespaces, but this system refuses them:"
            f" {system.complaint}"
        )
    shapers = [kind for kind in ("htb", "tbf") if getattr(system, f"sch_{kind}")]
    if shaper is not None and shaper not in shapers:
        raise Unavailable(
            f"kernel mode: this kernel has no sch_{shaper} (it has:"
            f" {', '.join(shapers) or 'no shaper'})"
        )
    if not shapers and any(way.rate_bit_s is not None for way in (up, down)):
        raise Unavailable("kernel mode needs sch_htb or sch_tbf, and this kernel has neither")
    if not latency:
        up, down, delayed = KernelWay(up.rate_bit_s), KernelWay(down.rate_bit_s), False
    delay = "none"
    if delayed or up.delays or down.delays:
        delay = _delay(system, bool(up.jitter_ns or down.jitter_ns))
    if delay != "relay" and not system.veth:
        raise Unavailable("kernel mode needs veth interfaces, which this kernel does not have")
    return KernelShape(up, down, shaper or (shapers or ["htb"])[0], delay)


def _delay(system: System, jitter: bool) -> str:
    # With a random delay, netem lets frames overtake each other. Our links keep order, so the
    # relay makes jitter.
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
