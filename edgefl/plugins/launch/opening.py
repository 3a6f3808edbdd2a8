"""Open connections to hosts, all at the same time, and ask about keys that are not known."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from edgefl.errors import needs
from edgefl.plugins.launch.connections import (
    HostConnection,
    HostError,
    LocalConnection,
    UnknownHostKey,
    addresses_of,
    nearest_address,
)
from edgefl.plugins.launch.inventory import Host
from emulator.errors import BadValue

NAMESPACES = Path("/run/netns")
MOST_TYPED = 4096
Ask = Callable[[UnknownHostKey], Awaitable[bool]]


async def open_connection(host: Host) -> HostConnection:
    """Connect to one host. HostError, or UnknownHostKey, which a person may accept."""
    if host.via == "local":
        return LocalConnection(host)
    if host.via == "netns":
        return await open_netns(host)
    with needs("launch", "a connection by ssh"):
        from edgefl.plugins.launch.ssh import open_ssh
    return await open_ssh(host)


async def open_connections(
    hosts: Sequence[Host], ask: Ask
) -> dict[str, HostConnection | HostError]:
    """Connect to all hosts; map each name to a connection, or to what went wrong.

    ``ask`` decides about a host key that is not known, one at a time (see ``asker``); an
    accepted one is added to known_hosts.
    """
    one_question = asyncio.Lock()

    async def opened(host: Host) -> HostConnection | HostError:
        try:
            try:
                return await open_connection(host)
            except UnknownHostKey as unknown:
                async with one_question:
                    if not await ask(unknown):
                        return unknown
                unknown.accept()
                return await open_connection(host)  # the key is checked again
        except HostError as error:
            return error

    found = await asyncio.gather(*map(opened, hosts))
    return {host.name: each for host, each in zip(hosts, found)}


# ---------------------------------------------------------------------- network namespaces
async def open_netns(host: Host) -> LocalConnection:
    """Return a connection into the namespace of a lab's host, or that has the host's name.

    HostError if there is none, or without the rights to use it.
    """
    if shutil.which("ip") is None:
        raise HostError(host.name, "needs the program ip, which is not installed (iproute2)")
    if os.geteuid() != 0:
        raise HostError(host.name, "a network namespace needs root")
    from emulator import attach  # only a machine that launches has a lab

    try:  # a host of a running lab: that of EMULATOR_LAB, or the only one
        machine = attach().host(host.name)
        return LocalConnection(host, machine.outside_address, machine.argv(()))
    except BadValue as error:
        why_not = error
    if not (NAMESPACES / host.name).exists():
        raise HostError(host.name, f"no network namespace of this name (ip netns list); {why_not}")
    inside = LocalConnection(host, None, ("ip", "netns", "exec", host.name))
    theirs, ours = await asyncio.gather(addresses_of(inside), addresses_of(LocalConnection(host)))
    inside.own_address = nearest_address(theirs, ours)
    return inside


# ---------------------------------------------------------------------- unknown keys
def asker(accept_new: bool) -> Ask:
    """Return the function that decides about unknown host keys.

    ``accept_new``: accept them all, as `ssh -o StrictHostKeyChecking=accept-new` does. Else ask on
    the terminal; without one, accept none.
    """

    async def ask(unknown: UnknownHostKey) -> bool:
        if not accept_new:
            return sys.stdin.isatty() and await ask_on_terminal(unknown)
        _print(
            f"edgefl: {unknown.host}: the {unknown.kind} key with fingerprint"
            f" {unknown.fingerprint} is added to {unknown.file}\n"
        )
        return True

    return ask


async def ask_on_terminal(unknown: UnknownHostKey) -> bool:
    """Show the key as ssh does, and wait for "yes", "no" or its fingerprint."""
    _print(f"{unknown.question()} ")
    while (answer := await _line()) not in ("yes", "no", "", unknown.fingerprint):
        _print("Please type 'yes', 'no' or the fingerprint: ")
    return answer in ("yes", unknown.fingerprint)


async def _line() -> str:
    """The next line of the terminal; "" at its end.

    Other hosts go on meanwhile, and Ctrl-C ends the wait.
    """
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    ready = asyncio.Event()
    loop.add_reader(terminal, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(terminal)
    line = os.read(terminal, MOST_TYPED).decode(errors="replace")  # a terminal gives one line
    return line.strip() or "?" if line else ""


def _print(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
