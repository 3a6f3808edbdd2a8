"""What the launcher gets from the processes that it has started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from edgefl.errors import UserError
from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import BugFound, ProgressLine, RunRefused, StopRun


class ProcessDied(Exception):
    """A process that the run needs was killed, or a ``bug`` ended it, which it has printed."""

    def __init__(self, message: str, bug: bool = False) -> None:
        super().__init__(message)
        self.bug = bug


def stop(control: Channel, reason: str) -> None:
    """Ask a coordinator to end its run."""
    with suppress(BrokenPipeError):  # the coordinator has just ended
        control.send(StopRun(reason))


def failure(show: Callable[[], None]) -> OSError | None:
    """Call ``show``. Returns why the output cannot be written, so that the run first ends in
    order.
    """
    try:
        show()
    except OSError as error:
        return error
    return None


def first_answer(
    control: Channel,
    process: subprocess.Popen[bytes],
    name: str,
    say: Callable[[str], None],
) -> Any:
    """Return the first message that is no line for the user; those go to ``say``.

    Errors as in ``checked``; ProcessDied, too, if the process has ended.
    """
    try:
        while isinstance(message := checked(control.receive()), ProgressLine):
            say(message.line)
        return message
    except EOFError:
        raise ProcessDied(f"{name} died (exit status {process.wait()})") from None


def checked(message: Any) -> Any:
    """Return ``message``. UserError or ProcessDied if it reports that the run has failed."""
    match message:
        case RunRefused(reason):
            raise UserError(reason)
        case BugFound(blame):
            raise ProcessDied(blame, bug=True)
    return message
