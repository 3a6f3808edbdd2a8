"""Open connections to hosts, all at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from edgefl.errors import needs
from edgefl.launch.connections.connection import HostConnection, HostError, UnknownHostKey
from edgefl.launch.connections.local import LocalConnection
from edgefl.launch.connections.netns import open_netns
from edgefl.launch.host import Host

Ask = Callable[[UnknownHostKey], Awaitable[bool]]


async def open_connection(host: Host) -> HostConnection:
    """Connect to one host. HostError, or UnknownHostKey, which a person may accept."""
    if host.via == "local":
        return LocalConnection(host)
    if host.via == "netns":
        return await open_netns(host)
    with needs("launch", "a connection by ssh"):
        from edgefl.launch.connections.ssh import open_ssh
    return await open_ssh(host)


async def open_connections(
    hosts: Sequence[Host], ask: Ask
) -> dict[str, HostConnection | HostError]:
    """Connect to all hosts; map each name to a connection, or to what went wrong.

    ``ask`` decides about a host key that is not known, one at a time (see ``questions.asker``); an
    accepted one is added to known_hosts.
    """
    one_question = asyncio.Lock()
    found = await asyncio.gather(*(_opened(host, ask, one_question) for host in hosts))
    return {host.name: each for host, each in zip(hosts, found)}


async def _opened(host: Host, ask: Ask, one_question: asyncio.Lock) -> HostConnection | HostError:
    try:
        return await open_connection(host)
    except UnknownHostKey as unknown:
        async with one_question:
            accepted = await ask(unknown)
        if not accepted:
            return unknown
        try:
            unknown.accept()
        except OSError as error:
            return HostError(host.name, f"{unknown.file} cannot be written ({error.strerror})")
    except HostError as error:
        return error
    try:
        return await open_connection(host)  # the key is checked again
    except HostError as error:
        return error
