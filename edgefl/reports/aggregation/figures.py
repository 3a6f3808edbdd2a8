"""figures/aggregation.png: predominant gradients of a step, and staleness over gradients used.

See WKAFL, arXiv 2203.01214, figure 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from edgefl.reports.aggregation.section import MARK, predominant, steps
from edgefl.results import rundirs
from edgefl.results.drawing import legend_above
from edgefl.results.plots import COLOURS, DASHES, MARKERS, STYLE, save
from edgefl.results.tail import read_events

Steps = list[dict[str, float]]


def aggregation(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw the figure for the first seed of each scheme in ``dirs``.

    Return the two files written, or [] if no run has such steps.
    """
    found = {
        name: [step for _, step in steps(read_events(runs[0] / "events.jsonl"))]
        for name, runs in rundirs.find(dirs).items()
    }
    found = {name: values for name, values in found.items() if values}
    if not found:
        return []
    with matplotlib.rc_context(STYLE):
        figure = _draw(found)
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def by_count(values: Steps) -> list[tuple[float, float]]:
    """Return (aggregated gradients, mean weighted staleness of those steps), as in figure 2b."""
    counts = sorted({step["aggregated"] for step in values})
    of = {count: [step[MARK] for step in values if step["aggregated"] == count] for count in counts}
    return [(count, sum(of[count]) / len(of[count])) for count in counts]


def _draw(found: Mapping[str, Steps]) -> Figure:
    figure = Figure(figsize=(7.0, 2.6), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    width = 0.8 / len(found)
    for place, (name, values) in enumerate(found.items()):
        # colours repeat from the eighth scheme on, hatched and dashed
        lap, at = divmod(place, len(COLOURS))
        colour, dashes, hatch = COLOURS[at], DASHES[lap % len(DASHES)], "/////" if lap % 2 else None
        shares = [
            (int(count) + (place - (len(found) - 1) / 2) * width, number / len(values))
            for count, number in predominant(values).items()
        ]
        left.bar(
            [x for x, _ in shares],
            [share for _, share in shares],
            width,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0,
            label=name,
        )
        points = by_count(values)
        line = {
            "color": colour,
            "linestyle": dashes,
            "marker": MARKERS[place % len(MARKERS)],
            "markerfacecolor": "white" if lap % 2 else colour,
        }
        right.plot(
            [x for x, _ in points], [y for _, y in points], markersize=3, linewidth=0.8, **line
        )
    _label(left, "Predominant gradients (weight > 0.1)", "Share of the steps")
    _label(right, "Aggregated gradients", "Weighted staleness (versions)")
    legend_above(figure, left)
    return figure


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))  # numbers of gradients
    axes.grid(color="0.9", linewidth=0.5)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
