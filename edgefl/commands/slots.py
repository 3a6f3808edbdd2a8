"""What became of the slots, behind the comparison: only for runs of slotted strategies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefl.commands import show
from edgefl.results import rundirs


def tell(schemes: Sequence[Path], folder: Path) -> None:
    """A line for each scheme; timeline, staleness and loss into ``folder``/figures."""
    from edgefl.reports.slots import figures as slots_plot
    from edgefl.reports.slots import section as slots
    from edgefl.results.tail import read_csv, read_events

    played = [
        scheme
        for scheme in schemes
        if (runs := rundirs.runs_of(scheme)) and slots.is_slotted(runs[0])
    ]
    for scheme in played:
        counted = (
            slots.section(slots.rounds(read_events(rundirs.runs_of(scheme)[0] / "events.jsonl")))
            or {}
        )
        show.line(
            f"{scheme.name}: {counted['rounds']} rounds by slot {counted['end_slot']},"
            f" {counted['uploads']} uploads, {counted['lost']} lost, {counted['missed']} devices"
            f" not ready at their turn, {counted['wasted_slots']} slots wasted"
        )
    if not played:
        return
    drawn = [
        draw(played, folder / "figures" / f"{name}.png")[0]
        for name, draw in (("timeline", slots_plot.timeline), ("staleness", slots_plot.staleness))
    ]
    if any(
        row.get("train_loss")
        for scheme in played
        for row in read_csv(rundirs.runs_of(scheme)[0] / "metrics.csv")
    ):
        drawn += slots_plot.loss(played, folder / "figures" / "loss_over_slots.png")[:1]
    show.line(f"figures: {', '.join(map(str, drawn))}")
