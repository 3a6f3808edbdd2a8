"""The addresses of a host, as it tells them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from edgefl.launch.connections.connection import HostConnection, HostError

Interface = IPv4Interface | IPv6Interface
MOST = 1000  # addresses of one host


async def addresses_of(connection: HostConnection) -> list[Interface]:
    """Return the addresses of a host with their networks, without loopback; IPv4 first.

    HostError if its answer is none.
    """
    done = await connection.run(["ip", "-j", "address", "show", "scope", "global"])
    if done.status:
        raise HostError(connection.host.name, done.said())
    try:
        found = [
            ip_interface(f"{each['local']}/{each['prefixlen']}")
            for interface in json.loads(done.out or b"[]")
            for each in interface.get("addr_info", ())
            if each != {}  # an address of another scope
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise HostError(connection.host.name, "ip does not list its addresses as JSON") from error
    return sorted(found, key=lambda each: each.version)[:MOST]


def nearest_address(theirs: Sequence[Interface], ours: Sequence[Interface]) -> str | None:
    """The first of our addresses in the same network as one of theirs; None if there is none."""
    networks = [each.network for each in theirs]
    near = (each.ip for each in ours if any(each.ip in network for network in networks))
    return next(map(str, near), None)
