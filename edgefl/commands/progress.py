"""The progress of runs under the virtual clock.

On a terminal it is updated in place; elsewhere each run prints a line every few seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from edgefl.commands import show
from edgefl.config.experiment import Stop
from edgefl.results.pace import Pace, Point
from emulator.units import NS_PER_S

PLAIN_EVERY_S, TERMINAL_EVERY_S = 5.0, 0.5


class ProgressLines:
    """One line for each active run, below the permanent output."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self.every_s = TERMINAL_EVERY_S if self.console.is_terminal else PLAIN_EVERY_S
        self._lines: dict[str, str] = {}
        self._live: Live | None = None

    def ticker(
        self, stop: Stop, say: Callable[[str], None], pool: Any = None
    ) -> Callable[[int, Any], None]:
        """Make a function that a host calls after every step; most calls only read the clock."""
        every_s, clock = self.every_s, time.monotonic
        pace, due_s = Pace(stop, clock()), clock() + every_s

        began = False

        def tick(now_ns: int, run: Any) -> None:
            nonlocal due_s, began
            wall_s = clock()
            if wall_s < due_s and began:
                return
            counted = run.coordinator.version, run.counters.updates_accepted
            point = Point(wall_s, now_ns / NS_PER_S, *counted)
            if not began:
                began = True
                pace.start(point)
                return
            due_s = wall_s + every_s
            pace.take(point)
            crowd = (
                f", {pool.busy} of {pool.workers} workers busy"
                if pool is not None and pool.workers > 1
                else ""
            )
            bar = f"{pace.bar()}  " if self.console.is_terminal else ""
            say(bar + pace.line() + crowd)

        return tick

    def show(self, name: str, text: str) -> None:
        """Show the new progress of the run ``name``."""
        self._lines[name] = text
        if not self.console.is_terminal:
            self.console.print(Text(f"{name}: {text}"), soft_wrap=True)
            return
        lines = "\n".join(f"{each}: {line}" for each, line in self._lines.items())
        if self._live is None:
            # no refreshing thread and no redirected streams: forks would inherit both
            self._live = Live(
                console=self.console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Text(lines), refresh=True)

    def say(self, text: str) -> None:
        """Print ``text`` permanently, above the lines of the active runs."""
        self.close()
        show.line(text)

    def end(self, name: str, text: str) -> None:
        """End the line of the run ``name`` and print ``text`` permanently."""
        self._lines.pop(name, None)
        self.say(text)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
        self._live = None
