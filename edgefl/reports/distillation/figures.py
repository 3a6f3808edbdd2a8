"""figures/distillation.png: the numbers that distilling schemes report per round, over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from edgefl.results import rundirs
from edgefl.results.drawing import fit_constant, legend_above, panels
from edgefl.results.plots import STYLE, look, save, unit_of_time
from edgefl.results.tail import read_events

PANELS = {  # reported number -> title
    "alpha": "alpha, weight of the divergence",
    "entropy": "entropy of the teachers",
    "teachers": "devices with logits",
    "logits_age": "age of the logits (versions)",
    "server_s": "server time (emulated s)",
    "checkpoints": "versions in use",
}

MOST_COLUMNS = 3
Points = list[tuple[float, float]]  # (emulated s, value)


def distillation(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw the figure for the first seed of each scheme in ``dirs``.

    Return the two files written, or [] if no scheme distils.
    """
    found = {
        name: series(read_events(runs[0] / "events.jsonl"))
        for name, runs in rundirs.find(dirs).items()
    }
    found = {name: values for name, values in found.items() if values["teachers"]}
    if not found:
        return []
    with matplotlib.rc_context(STYLE):
        figure = _draw(found)
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def series(events: Iterable[Mapping[str, Any]]) -> dict[str, Points]:
    """Return for each panel its values over time, from the reports that count teachers."""
    found: dict[str, Points] = {name: [] for name in PANELS}
    for event in events:
        for decision in event.get("decisions", ()):
            values = decision.get("values", {})
            if "teachers" in values:
                for name in PANELS.keys() & values.keys():
                    found[name].append((event["t"], float(values[name])))
    return found


def _draw(found: Mapping[str, Mapping[str, Points]]) -> Figure:
    titles = {
        name: title
        for name, title in PANELS.items()
        if any(values[name] for values in found.values())
    }
    rows = -(-len(titles) // MOST_COLUMNS)
    figure = Figure(figsize=(7.0, 0.2 + 1.7 * rows), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    seconds, unit = unit_of_time(max(t for values in found.values() for t, _ in values["teachers"]))
    drawn = panels(figure, len(titles), MOST_COLUMNS, f"Emulated time ({unit})")
    for axes, (name, title) in zip(drawn, titles.items()):
        for place, (scheme, values) in enumerate(found.items()):
            points = values[name]
            axes.plot(
                [t / seconds for t, _ in points],
                [value for _, value in points],
                label=scheme,
                **look(place),
                linewidth=0.8,
            )
        axes.set_title(title, fontsize=7)
        axes.grid(color="0.9", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if name in ("alpha", "entropy"):
            axes.set_ylim(0, 1)
        elif not fit_constant(
            axes, [value for values in found.values() for _, value in values[name]]
        ):
            axes.set_ylim(bottom=0)
        if name in ("teachers", "checkpoints"):
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(figure, figure.axes[0])
    return figure
