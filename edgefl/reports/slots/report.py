"""The reports about slots: how slotted strategies used a TDMA channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgefl.record.files import EVENTS, METRICS
from edgefl.reports.family import Family, draw, pictures
from edgefl.reports.slots import section as slots
from edgefl.reports.slots.figures import SlotLossPlot, SlotsPlot, SlotStalenessPlot
from edgefl.results.figures.base import Plot
from edgefl.results.rundirs import runs_of
from edgefl.results.tail import read_csv, read_events


class Slots(Family):
    """A line per scheme, and figures: timeline, staleness over rounds, loss over slots."""

    ORDER = 30
    MARK = slots.MARK
    FILES = pictures("timeline", "staleness", "loss_over_slots")

    def section(self, run: Path, emulated_s: float) -> dict[str, Any] | None:
        return slots.section(slots.rounds(read_events(run / EVENTS)))

    def plots(self) -> Mapping[str, Plot]:
        return {
            "slots": SlotsPlot(),
            "slot-staleness": SlotStalenessPlot(),
            "slot-loss": SlotLossPlot(),
        }

    def leave(self, directories: Sequence[Path], folder: Path) -> list[str]:
        first = {each: runs[0] for each in directories if (runs := runs_of(each))}
        sections = {each: self.section(run, 0.0) for each, run in first.items()}
        played = {each: section for each, section in sections.items() if section is not None}
        if not played:
            return []
        names = {"slots": "timeline", "slot-staleness": "staleness"}
        if any(row.get("train_loss") for each in played for row in read_csv(first[each] / METRICS)):
            names["slot-loss"] = "loss_over_slots"
        lines = [_line(each.name, section) for each, section in played.items()]
        return lines + draw(self, list(played), folder, names)


def _line(name: str, counted: Mapping[str, int]) -> str:
    return (
        f"{name}: {counted['rounds']} rounds by slot {counted['end_slot']},"
        f" {counted['uploads']} uploads, {counted['lost']} lost, {counted['missed']} devices"
        f" not ready at their turn, {counted['wasted_slots']} slots wasted"
    )


FAMILY = Slots()
