"""The coordinator's end of the channel to its launcher: orders to end, and lines for the user."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

from edgefl.hosts.ipc import Channel
from edgefl.hosts.process_messages import ProgressLine
from edgefl.hosts.processes import end_soon
from edgefl.hosts.room import WaitForRoom
from edgefl.hosts.wall.coordinator.thread_messages import Interrupt
from edgefl.hosts.wall.system import System


class LauncherEnd:
    """``directory``: of the run, for messages."""

    def __init__(self, channel: Channel, directory: Path, system: System) -> None:
        self.channel, self.directory, self.system = channel, directory, system
        self.may_wait = False  # an order to end can be heard, and there was none

    def obey(self, tell: Callable[[Any], None]) -> None:
        """Start the thread that passes orders to end to ``tell``."""
        self.may_wait = True
        self.system.start(Thread(target=self._obey, args=(tell,), name="control", daemon=True))

    def say(self, line: str) -> None:
        """Give the launcher a line for the user."""
        with suppress(OSError):  # the launcher has ended
            self.channel.send(ProgressLine(line))

    def room(
        self, sleep: Callable[[float], None], waited: Callable[[Path, float], None]
    ) -> WaitForRoom:
        """How the run waits while its disk is full: until it shall end.

        ``waited`` gets the file and the seconds, once there is room again.
        """
        now_s = self.system.monotonic_s
        return WaitForRoom(self.say, now_s, sleep, lambda: not self.may_wait, waited)

    def _obey(self, tell: Callable[[Any], None]) -> None:
        """End the run when the launcher asks for it or dies.

        If it dies, the process ends soon, even if a thread hangs.
        """
        try:
            while True:
                order = self.channel.receive()
                self.may_wait = False
                tell(Interrupt(order.reason))
        except (EOFError, OSError):
            self.may_wait = False
            end_soon()
            tell(Interrupt("launcher gone"))
            with suppress(OSError):  # the terminal may have closed, too
                print(
                    f"edgefl: {self.directory}: the launcher has ended, so the run ends",
                    file=sys.stderr,
                    flush=True,
                )
