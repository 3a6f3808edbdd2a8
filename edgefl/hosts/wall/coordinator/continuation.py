"""Where a run that was broken off goes on, for the pacing thread."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edgefl.coordinator.coordinator import Coordinator
from edgefl.hosts.wall.coordinator.downloads import ModelDownload
from edgefl.hosts.wall.coordinator.run_logic import RunLogic
from edgefl.protocol.transfers import Outgoing


@dataclass(frozen=True, slots=True)
class Continuation:
    """``at_ns``: the latest emulated moment in the journal, ``ended_unix_s``: its time.

    ``present``: edges that were connected then. ``downloads`` were under way. ``delivered``: for
    each edge, moments of its latest deliveries, by transfer.
    """

    at_ns: int
    ended_unix_s: float
    present: Collection[str]
    downloads: tuple[tuple[ModelDownload, Outgoing], ...]
    delivered: Mapping[str, Mapping[int, int]]


def continuation(core: RunLogic, ended_unix_s: float) -> Continuation:
    """Return where the run of a core goes on whose inputs were repeated."""
    coordinator: Coordinator = core.coordinator
    judged_ns = 0 if core.judged is None else core.judged.now
    return Continuation(
        min(max(core.now, judged_ns), coordinator.stop_ns),
        ended_unix_s,
        frozenset(coordinator.present),
        tuple(
            (each, core.packed(each.number, each.message))
            for each in core.downloads.open(coordinator.tasks.open)
        ),
        core.downloads.delivered,
    )
