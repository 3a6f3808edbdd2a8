"""What single families of methods report: learned weights, refreshes, rounds and slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from edgefl.live.series import LatestItems, ThinnedItems
from edgefl.reports.dissemination.section import Outcome, RequestsSoFar
from edgefl.reports.slots.section import MARK as OF_ROUND
from edgefl.results.columns import TableColumns
from edgefl.results.summary import number

MOST_POINTS, MOST_NAMES, MOST_SLOTS, MOST_ROUNDS = 2000, 24, 5000, 2000
DEVICE = ("beta", "gamma", "upsilon", "reward")  # numbers of an update with a merged fresh model

Row = Mapping[str, Any]


class Methods:
    """Numbers that strategies report, by name, and the use of TDMA slots.

    ``place_of``: the index of an edge on the page.
    """

    def __init__(self) -> None:
        self.learned: dict[str, ThinnedItems[list[Any]]] = {}
        self.refresh: LatestItems[list[Any]] = LatestItems(MOST_POINTS)
        self.rounds: LatestItems[dict[str, Any]] = LatestItems(MOST_ROUNDS)
        self.slots: LatestItems[list[Any]] = LatestItems(MOST_SLOTS)
        self._requests = RequestsSoFar()  # of open tasks

    def take(self, row: Row, place_of: Mapping[str, int], slot_s: float | None) -> None:
        """Take a row of events.jsonl."""
        decisions = row.get("decisions", ())
        self._requests.take(row)
        if row.get("event") == "task_closed":
            self._requests.by_task.pop(row["task"], None)
        reports = [each["values"] for each in decisions if each.get("do") == "report"]
        for values in reports:
            if OF_ROUND in values:
                self.rounds.add(dict(values))
        if slot_s is not None:
            for slot in _granted(decisions, slot_s, place_of):
                self.slots.add(slot)
        if row.get("event") != "update_arrived" or not isinstance(row.get("numbers"), dict):
            return
        edge, numbers = place_of.get(row["edge"], -1), row["numbers"]
        request = self._requests.by_task.pop(row["task"], None)
        values = {
            name: value
            for values in reports
            if OF_ROUND not in values
            for name, value in values.items()
        }
        if request is not None and request.outcome is Outcome.MERGED:
            values |= {name: numbers[name] for name in DEVICE if name in numbers}
        for name, value in values.items():
            self._point(name, row["t"], value, edge)
        if request is not None:
            point = number(numbers.get("refresh_point"))
            self.refresh.add([row["t"], edge, point, None, request.outcome.value])

    @property
    def asked(self) -> bool:
        """Whether an open task has asked for a fresher model."""
        return bool(self._requests.by_task)

    def take_slots(self, rows: TableColumns, place_of: Mapping[str, int]) -> None:
        """Take rows of slots.csv."""
        begin_s, end_s = rows.get("begins_s"), rows.get("ends_s")
        there = np.flatnonzero(~(np.isnan(begin_s) | np.isnan(end_s)))
        latest, names = there[-self.slots.most :], rows.texts.all
        texts = (rows.get(name)[latest].tolist() for name in ("edge", "direction", "kind"))
        times = begin_s[latest].tolist(), end_s[latest].tolist()
        found = [
            [begin, end, place_of.get(names[edge], -1), names[way], names[kind]]
            for begin, end, edge, way, kind in zip(*times, *texts)
        ]
        self.slots.extend(found, dropped=len(there) - len(latest))

    def _point(self, name: str, t: float, value: Any, edge: int) -> None:
        if name not in self.learned and len(self.learned) == MOST_NAMES:
            return
        if (finite := number(value)) is not None:
            self.learned.setdefault(name, ThinnedItems(MOST_POINTS)).add([t, finite, edge])


def _granted(
    decisions: Iterable[Row], slot_s: float, place_of: Mapping[str, int]
) -> Iterator[list[Any]]:
    """The slots that a strategy gives out: of an uplink to one edge, of a broadcast to all (-1)."""
    for decision in decisions:
        if decision.get("do") == "grant" and decision.get("slots"):
            slots, edge, way = decision["slots"], place_of.get(decision["edge"], -1), "up"
        elif decision.get("do") == "assign" and decision.get("broadcast"):
            slots, edge, way = decision["broadcast"], -1, "down"
        else:
            continue
        begin_s, end_s = round(slots[0] * slot_s, 9), round((slots[-1] + 1) * slot_s, 9)
        yield [begin_s, end_s, edge, way, "granted"]
