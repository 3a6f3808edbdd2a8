"""Two network namespaces joined by a cable: two machines on one local network, without a way out.

This needs root and `ip`; ``refusal`` says why it cannot work here. What a killed test left is
removed by the next one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psutil

PREFIX = "edgeflpair"
NAMESPACES = Path("/run/netns")
FIRST, SECOND, THIRD = "10.77.0.1", "10.77.0.2", "10.77.0.3"
UNUSED = "02:00:00:00:00:99"  # a hardware address that no machine has


@cache
def refusal() -> str:
    """The reason why namespaces cannot be made here; '' if they can."""
    if shutil.which("ip") is None:
        return "not installed: ip (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"{PREFIX}{os.getpid()}x"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespaces: {made.stderr.strip()}" if made.returncode else ""


@contextmanager
def namespace_pair() -> Iterator[tuple[str, str]]:
    """Make two namespaces with the addresses FIRST and SECOND, and return their names."""
    _sweep()
    first, second = (f"{PREFIX}{os.getpid()}{end}" for end in "ab")
    try:
        for name in (first, second):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(*f"-n {first} link add cable type veth peer name cable netns {second}".split())
        for name, address in ((first, FIRST), (second, SECOND)):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        yield first, second
    finally:
        for name in (first, second):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def cut(name: str) -> None:
    """Pull the cable out of this machine."""
    _ip("-n", name, "link", "set", "cable", "down")


def restore(name: str) -> None:
    """Put the cable back in."""
    _ip("-n", name, "link", "set", "cable", "up")


def lose_what_leaves(name: str, to: str) -> None:
    """Lose all packets from this machine to the address ``to``; those from there arrive."""
    _ip(*f"-n {name} neighbour replace {to} lladdr {UNUSED} dev cable nud permanent".split())


def lose_no_more(name: str, to: str) -> None:
    _ip(*f"-n {name} neighbour delete {to} dev cable".split())


def move(name: str, old: str, new: str) -> None:
    """Give this machine another address, as a DHCP server may."""
    _ip(*f"-n {name} address delete {old}/24 dev cable".split())
    _ip(*f"-n {name} address add {new}/24 dev cable".split())


def inside(name: str, *words: str) -> list[str]:
    """The command line that runs these words in a namespace."""
    return ["ip", "netns", "exec", name, *words]


def _sweep() -> None:
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        owner = path.name.removeprefix(PREFIX)[:-1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            subprocess.run(["ip", "netns", "del", path.name], capture_output=True)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
