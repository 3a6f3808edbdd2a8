"""Downloads that are on their way, and those whose delivery the edge may not know yet.

The logic thread keeps this table. It depends only on the inputs of that thread, so it is the same
after a resumption. The pacing thread then goes on with these transfers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefl.coordinator.tasks import OpenTask
from edgefl.hosts.exchange import ends
from edgefl.hosts.wall.coordinator.thread_messages import Carried, Heard
from edgefl.protocol.messages import FRESH, TASK, Assignment, Fresh, Started, ToEdge

REMEMBERED = 4  # deliveries per edge that can be repeated after a broken session


@dataclass(slots=True, eq=False)
class ModelDownload:
    """A transfer to an edge. ``slotted``: it is a copy of a broadcast."""

    number: int
    edge: str
    message: Assignment | Fresh
    slotted: bool


@dataclass(slots=True)
class Downloads:
    """``under_way``: by edge and kind, because an edge has one task. ``delivered``: the latest
    transfers of each edge -> moments of their deliveries (emulated ns).
    """

    under_way: dict[tuple[str, str], ModelDownload] = field(default_factory=dict)
    delivered: dict[str, OrderedDict[int, int]] = field(default_factory=dict)

    def begin(self, download: ModelDownload) -> None:
        self.under_way[download.edge, download.message.kind] = download

    def noted(self, edge: str, note: ToEdge) -> None:
        """A note was sent: the downloads that it ends are over."""
        for kind in (TASK, FRESH):
            found = self.under_way.get((edge, kind))
            if found is not None and ends(note, kind, found.message.number):
                del self.under_way[edge, kind]

    def heard(self, item: Heard | Carried) -> None:
        """A task has started at its edge, or a transfer is done."""
        if isinstance(item, Carried):
            transfer = item.completion.transfer
            found = self.under_way.get((transfer.edge, FRESH))
            if found is not None and found.number == transfer.number:
                self._end(found, item.finished_ns)
        elif isinstance(item.message, Started):
            found = self.under_way.get((item.edge, TASK))
            if found is not None and found.message.number == item.message.task:
                self._end(found, item.now)

    def open(self, tasks: Mapping[int, OpenTask]) -> list[ModelDownload]:
        """The downloads for tasks that are still open, in the order of their numbers."""
        found = [each for each in self.under_way.values() if each.message.number in tasks]
        return sorted(found, key=_number)

    def _end(self, download: ModelDownload, at_ns: int) -> None:
        del self.under_way[download.edge, download.message.kind]
        told = self.delivered.setdefault(download.edge, OrderedDict())
        told[download.number] = at_ns
        while len(told) > REMEMBERED:
            told.popitem(last=False)


def _number(download: ModelDownload) -> Any:
    return download.number
