"""The addresses of a host, and the one at which its edges reach the coordinator."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from edgefl.clocks.network_addresses import any_host, is_loopback
from edgefl.plugins.launch.connections.connection import HostConnection, HostError
from edgefl.plugins.launch.connections.local import LocalConnection
from edgefl.plugins.launch.inventory import CoordinatorPlace

Interface = IPv4Interface | IPv6Interface
MOST = 1000  # addresses of one host


async def addresses_of(connection: HostConnection) -> list[Interface]:
    """Return the addresses of a host with their networks, without loopback; IPv4 first.

    HostError if its answer is none.
    """
    done = await connection.run(["ip", "-j", "address", "show", "scope", "global"])
    if done.status:
        raise HostError(connection.host.name, done.last_line())
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


async def coordinator_address(
    place: CoordinatorPlace, coordinator: HostConnection | None, host: HostConnection
) -> str:
    """Return the address for the edges of ``host``.

    ``coordinator``: the connection to the coordinator's host; None: it runs here. HostError if the
    host has no way to it that can be found.
    """
    if place.address is not None:
        return place.address
    if coordinator is None:
        if host.own_address is not None:
            return host.own_address
        coordinator = LocalConnection(place.host)
    elif place.host.via == "ssh":
        return place.host.name
    theirs, ours = await addresses_of(host), await addresses_of(coordinator)
    near = nearest_address(theirs, ours)
    if near is not None:
        return near
    for address in (str(each.ip) for each in ours):
        done = await host.run(["ip", "route", "get", address])
        if done.status == 0:
            return address
    raise HostError(
        host.host.name,
        "no address found at which it reaches the coordinator: give coordinator.address",
    )


def listen_host(wanted: str, addresses: Iterable[str]) -> str:
    """The address on which the coordinator listens; ``wanted``: that of the config.

    It is loopback if all edges are on this machine.
    """
    addresses = list(addresses)
    if not is_loopback(wanted) or all(is_loopback(address) for address in addresses):
        return wanted
    return any_host(addresses)


def edge_addresses(listens_on: str, addresses: Mapping[str, str]) -> dict[str, str]:
    """The address of the coordinator for each host: its own one if it listens only on loopback.

    A host of this machine is reached by IPv4, but the coordinator may listen on ``::1``.
    """
    if not is_loopback(listens_on):
        return dict(addresses)
    return dict.fromkeys(addresses, listens_on)
