"""Commands in a network namespace of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from edgefl.launch.connections.connection import HostError
from edgefl.launch.connections.local import LocalConnection
from edgefl.launch.connections.own_addresses import addresses_of, nearest_address
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
    inside = NetnsConnection(host, None, ("ip", "netns", "exec", host.name))
    theirs, ours = await asyncio.gather(addresses_of(inside), addresses_of(LocalConnection(host)))
    inside.own_address = nearest_address(theirs, ours)
    return inside


def in_a_lab(name: str) -> tuple[LabMachine | None, str]:
    """The host of a running lab (that of EMULATOR_LAB, or the only one), or why there is none."""
    try:
        return attach().host(name), ""
    except BadValue as error:
        return None, str(error)
