"""A run's pace and the time left. Times are arguments: this file reads no clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from edgefl.config.experiment import Stop

WINDOW_S = 30.0  # the pace is measured over this time, because it changes as devices come and go
BAR = 20


class Point(NamedTuple):
    """The progress of a run at a wall time."""

    wall_s: float
    emulated_s: float
    versions: int
    updates: int  # received and not discarded


class Pace:
    """The pace from points that are added in order of time; ``line`` shows it to a person."""

    def __init__(self, stop: Stop, started_s: float) -> None:
        self.stop = stop
        self._points: deque[Point] = deque([Point(started_s, 0.0, 0, 0)])

    def start(self, point: Point) -> None:
        """Begin here: what a resumed run did before says nothing about its pace now."""
        self._points = deque([point])

    def take(self, point: Point) -> None:
        """Add a point and drop those older than the window, except the latest of them."""
        self._points.append(point)
        while len(self._points) > 2 and self._points[1].wall_s <= point.wall_s - WINDOW_S:
            self._points.popleft()

    @property
    def updates_per_s(self) -> float:
        """Updates received and not discarded, per wall second."""
        first, last = self._points[0], self._points[-1]
        return (last.updates - first.updates) / max(last.wall_s - first.wall_s, 1e-9)

    @property
    def left_s(self) -> float | None:
        """Wall seconds until the first stop condition at this pace; None without progress."""
        first, last = self._points[0], self._points[-1]
        spent_s = last.wall_s - first.wall_s
        left = [
            max(goal - now, 0.0) / (now - before) * spent_s
            for goal, now, before in (
                (self.stop.emulated_s, last.emulated_s, first.emulated_s),
                (self.stop.versions, last.versions, first.versions),
                (self.stop.updates, last.updates, first.updates),
            )
            if goal is not None and now > before
        ]
        return min(left, default=None)

    @property
    def share(self) -> float:
        """Share of the run that is done, 0 to 1, by the nearest stop condition."""
        last = self._points[-1]
        shares = [
            now / goal
            for goal, now in (
                (self.stop.emulated_s, last.emulated_s),
                (self.stop.versions, last.versions),
                (self.stop.updates, last.updates),
            )
            if goal is not None
        ]
        return min(max(shares), 1.0)

    def bar(self) -> str:
        """Return the share as a bar and as a percentage: "━━━━━━━━━━──────────  50%"."""
        done = round(BAR * self.share)
        return f"{'━' * done}{'─' * (BAR - done)} {self.share:4.0%}"

    def line(self) -> str:
        """Return "123.4 of 1000 s emulated, version 12, 345 updates (23.1/s), 0:01:23 left"."""
        now, left_s = self._points[-1], self.left_s
        parts = [
            f"{now.emulated_s:.1f}{_of(self.stop.emulated_s)} s emulated",
            f"version {now.versions}{_of(self.stop.versions)}",
            f"{now.updates}{_of(self.stop.updates)} updates ({self.updates_per_s:.1f}/s)",
            *([] if left_s is None else [f"{clock(left_s)} left"]),
        ]
        return ", ".join(parts)


def _of(goal: float | None) -> str:
    return "" if goal is None else f" of {goal:g}" if goal < 1e6 else f" of {goal:.0f}"


def clock(seconds: float) -> str:
    """Format seconds as "0:01:23"."""
    minutes, whole = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{whole:02d}"
