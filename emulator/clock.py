"""The two clocks of a run, both in emulated nanoseconds."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

from emulator.errors import BadValue
from emulator.units import NS_PER_S

_PR_SET_TIMERSLACK = 29


class WallClock:
    """Emulated time that runs ``speed`` times as fast as CLOCK_MONOTONIC after ``start``.

    ``monotonic_ns`` reads that clock.
    """

    def __init__(
        self, speed: float = 1.0, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        if not 0 < speed < float("inf"):
            raise BadValue(
                f"speed {speed}: expected a number above 0 (emulated seconds per real second)"
            )
        self.speed, self.monotonic_ns = speed, monotonic_ns
        self._origin_ns: int | None = None
        self._from_ns = 0
        self.began_unix_s: float | None = None
        """Unix time of emulated 0, to line up with what other programs have recorded."""

    def start_from(self, at_ns: int) -> None:
        """Let ``start`` begin at this emulated moment, and stand still there until then."""
        self._from_ns = at_ns

    def start(self) -> None:
        """Set emulated time 0, or the moment of ``start_from``, to now."""
        self._origin_ns = self.monotonic_ns()
        self.began_unix_s = time.time_ns() / NS_PER_S - self._from_ns / self.speed / NS_PER_S

    def now(self) -> int:
        """Emulated ns since ``start``; before it 0, or the moment of ``start_from``."""
        return self.at_monotonic(self.monotonic_ns())

    def at_monotonic(self, monotonic_ns: int) -> int:
        """Convert a CLOCK_MONOTONIC time, from any process of this machine, to emulated ns.

        Before ``start`` it does not move.
        """
        if self._origin_ns is None:
            return self._from_ns
        return self._from_ns + int((monotonic_ns - self._origin_ns) * self.speed)

    def real_s_until(self, t_ns: int) -> float:
        """Real seconds from now to the emulated moment ``t_ns``; negative if it has passed."""
        now_ns = self.monotonic_ns()
        origin_ns = now_ns if self._origin_ns is None else self._origin_ns
        return ((t_ns - self._from_ns) / self.speed + (origin_ns - now_ns)) / NS_PER_S

    def wait_until(self, t_ns: int) -> None:
        """Sleep until the emulated moment ``t_ns`` and never return early.

        ``precise_timers`` makes it more exact.
        """
        if self._origin_ns is None:
            raise RuntimeError("wait_until needs a started clock")
        # The second comparison is in emulated ns: with rounding, the first alone could return
        # before now() reaches t_ns.
        while (rest_s := self.real_s_until(t_ns)) > 0 or self.now() < t_ns:
            time.sleep(max(rest_s, 0.0))


class VirtualClock:
    """Emulated time that the host of the run moves forward in jumps."""

    def __init__(self) -> None:
        self._now_ns = 0

    def now(self) -> int:
        return self._now_ns

    def advance(self, to_ns: int) -> None:
        """Jump to ``to_ns``. ValueError if that is in the past."""
        if to_ns < self._now_ns:
            raise ValueError(f"time cannot go back from {self._now_ns} to {to_ns} ns")
        self._now_ns = to_ns


def precise_timers() -> bool:
    """Set 1 ns timer slack (default 50 us) for this thread and threads that it starts later.

    Return False if the system does not support or allow it.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    status: int = libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
    return status == 0
