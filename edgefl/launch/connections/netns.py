"""Commands in a network namespace of this machine."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgefl.launch.connections.connection import HostError
from edgefl.launch.connections.local import LocalConnection
from edgefl.launch.host import Host
from emulator import BadValue, LabMachine, attach

NAMESPACES = Path("/run/netns")


class NetnsConnection(LocalConnection):
    """Starts processes in the network namespace of a lab's host, or that has the host's name."""


async def open_netns(host: Host) -> NetnsConnection:
    """Return a connection. HostError if there is no such namespace, or not the rights to use it."""
    if shutil.which("ip") is None:
        raise HostError(host.name, "needs the program ip, which is not installed (iproute2)")
    if os.geteuid() != 0:
        raise HostError(host.name, "a network namespace needs root")
    machine, why_not = in_a_lab(host.name)
    if machine is not None:
        return NetnsConnection(host, machine.outside_address, machine.argv(()))
    if not (NAMESPACES / host.name).exists():
        raise HostError(host.name, f"no network namespace of this name (ip netns list); {why_not}")
    theirs, ours = await asyncio.gather(_addresses(host, "-n", host.name), _addresses(host))
    inside = ("ip", "netns", "exec", host.name)
    return NetnsConnection(host, nearest_address(theirs, ours), inside)


def in_a_lab(name: str) -> tuple[LabMachine | None, str]:
    """The host of a running lab (that of EMULATOR_LAB, or the only one), or why there is none."""
    try:
        return attach().host(name), ""
    except BadValue as error:
        return None, str(error)


def nearest_address(theirs: Sequence[str], ours: Sequence[str]) -> str | None:
    """The first of our addresses in the same network as one of theirs; None if there is none.

    Addresses are of the form "10.0.0.1/24".
    """
    networks = [ipaddress.ip_interface(each).network for each in theirs]
    for each in map(ipaddress.ip_interface, ours):
        if any(each.ip in network for network in networks):
            return str(each.ip)
    return None


async def _addresses(host: Host, *where: str) -> list[str]:
    done = await LocalConnection(host).run(["ip", *where, "-j", "address", "show"])
    if done.status:
        raise HostError(host.name, done.said())
    interfaces: list[dict[str, Any]] = json.loads(done.out or b"[]")
    return [
        f"{each['local']}/{each['prefixlen']}"
        for interface in interfaces
        for each in interface.get("addr_info", ())
        if each.get("scope") == "global"
    ]
