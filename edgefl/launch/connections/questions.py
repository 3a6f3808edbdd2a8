"""Ask a person whether the key of a host is the right one."""

from __future__ import annotations

import asyncio
import os
import sys

from edgefl.launch.connections.connection import UnknownHostKey
from edgefl.launch.connections.opening import Ask

MOST_TYPED = 4096


def asker(accept_new: bool) -> Ask:
    """Return the function that decides about unknown host keys.

    ``accept_new``: accept them all, as `ssh -o StrictHostKeyChecking=accept-new` does. Else ask on
    the terminal; without one, accept none.
    """
    if accept_new:
        return accept_new_key
    return ask_on_terminal if sys.stdin.isatty() else refuse


async def refuse(unknown: UnknownHostKey) -> bool:
    """Accept no key."""
    return False


async def accept_new_key(unknown: UnknownHostKey) -> bool:
    """Accept the key, and print it."""
    _print(
        f"edgefl: {unknown.host}: the {unknown.kind} key with fingerprint {unknown.fingerprint} is"
        f" added to {unknown.file}\n"
    )
    return True


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
