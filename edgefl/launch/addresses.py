"""The address at which the edges of a host reach the coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edgefl.hosts.network_addresses import any_host, is_loopback
from edgefl.launch.connections.connection import HostConnection, HostError
from edgefl.launch.connections.local import LocalConnection
from edgefl.launch.connections.own_addresses import addresses_of, nearest_address
from edgefl.launch.inventory import CoordinatorPlace


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
