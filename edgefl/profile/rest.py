"""The time of a task that rate, latency and training do not explain.

A native run pays for the testbed's own protocol, which an emulated run does not: the edge begins to
train when the coordinator has confirmed the download (a round trip), and begins to send when its
update is granted (another one). The work of the programs adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

from edgefl.protocol.messages import FRESH, TASK, UPDATE
from edgefl.results.measured import Span

MOST_MEDIANS = 3


@dataclass(frozen=True, slots=True)
class LinkModel:
    """What an emulated link has: bit/s by direction, and the one-way latency."""

    bit_s: Mapping[str, float]
    latency_s: float

    def seconds(self, row: Mapping[str, str]) -> float:
        """The time of a transfer of links.csv in the model."""
        return 8 * float(row["bytes"]) / self.bit_s[row["direction"]] + self.latency_s


@dataclass(frozen=True, slots=True)
class Rest:
    """Means over tasks of what the model does not explain.

    ``down_s``: of the download. ``up_s``: from there to the end of the upload, without training.
    ``share``: of both together in a task's whole time; None without a whole task.
    """

    down_s: float
    up_s: float
    share: float | None


@dataclass(slots=True)
class MovedTask:
    """The rows of links.csv of one task."""

    down: Mapping[str, str]
    fresh: list[Mapping[str, str]] = field(default_factory=list)
    up: Mapping[str, str] | None = None


def tasks(rows: Sequence[Mapping[str, str]]) -> list[MovedTask]:
    """Return the whole tasks in one edge's rows of links.csv; an edge has one task at a time."""
    found: list[MovedTask] = []
    for row in sorted(rows, key=_offered_s):
        if row["kind"] == TASK:
            found.append(MovedTask(row))
        elif found and row["kind"] == FRESH:
            found[-1].fresh.append(row)
        elif found and row["kind"] == UPDATE and found[-1].up is None:
            found[-1].up = row
    # a task ends before the next one begins; otherwise rows are missing
    return [
        task
        for task, after in pairwise([*found, None])
        if task is not None
        and task.up is not None
        and (after is None or _finished_s(task.up) <= _offered_s(after.down))
    ]


def beyond(
    task: MovedTask, training: Sequence[Span], requests_s: Sequence[float], model: LinkModel
) -> tuple[float, float, float]:
    """Return what the model does not explain of a task's download and of the rest, and its length.

    ``training``: measured spans of the edge; none for an emulated device, whose updates are ready
    in time. ``requests_s``: when the coordinator got requests for fresher models.
    """
    assert task.up is not None
    down_s = _seconds(task.down) - model.seconds(task.down)
    up_s = _seconds(task.up) - model.seconds(task.up)
    begin_s, end_s = _finished_s(task.down), _offered_s(task.up)
    trained = [span for span in training if begin_s < span.ended_s <= end_s]
    if trained:
        asked = sum(begin_s < at_s <= end_s for at_s in requests_s)
        # a request takes a latency; its answer is a transfer, or another latency
        waited_s = (2 * asked - len(task.fresh)) * model.latency_s + sum(
            model.seconds(row) for row in task.fresh
        )
        up_s += end_s - begin_s - waited_s - sum(span.ended_s - span.began_s for span in trained)
    return down_s, up_s, _finished_s(task.up) - _offered_s(task.down)


def rest_of(found: Sequence[tuple[float, float, float]]) -> Rest:
    """Return the means of what ``beyond`` has found of each task.

    Means, so that all tasks together have their time. A task longer than MOST_MEDIANS medians met
    an outage, which is no part of a link's usual behaviour; it does not count.
    """
    if not found:
        return Rest(0.0, 0.0, None)
    most_s = MOST_MEDIANS * median(whole_s for *_, whole_s in found)
    usual = [each for each in found if each[2] <= most_s]
    down_s, up_s, whole_s = (fmean(values) for values in zip(*usual))
    return Rest(down_s, up_s, (down_s + up_s) / whole_s if whole_s > 0 else None)


def _offered_s(row: Mapping[str, str]) -> float:
    return float(row["offered_s"])


def _finished_s(row: Mapping[str, str]) -> float:
    return float(row["finished_s"])


def _seconds(row: Mapping[str, str]) -> float:
    return _finished_s(row) - _offered_s(row)
