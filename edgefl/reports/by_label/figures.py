"""figures/runtimes.png: accuracy over time on the data that each runtime class of devices holds.

It has one panel per class and one line per scheme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from edgefl.errors import UserError
from edgefl.reports.by_label.section import Points, by_runtime
from edgefl.results import rundirs
from edgefl.results.drawing import legend_above
from edgefl.results.plots import STYLE, look, save, unit_of_time

# order of the panels, by the first word of a runtime class
SLOWER = {"short": 1, "medium": 2, "long": 3}


def runtimes(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw the figure for the first seed of each scheme in ``dirs``; return the two files.

    UserError if no run has accuracies by label.
    """
    found = {name: by_runtime(runs[0]) for name, runs in rundirs.find(dirs).items()}
    found = {name: values for name, values in found.items() if values}
    if not found:
        raise UserError(
            f"no labels.csv in any run of {', '.join(str(path) for path in dirs)}: run with"
            " evaluation.by_label = true"
        )
    with matplotlib.rc_context(STYLE):
        figure = _draw(found)
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def _draw(found: Mapping[str, Mapping[str, Points]]) -> Figure:
    classes = sorted(
        {name for values in found.values() for name in values},
        key=lambda name: (SLOWER.get(name.split()[0], 0), name),
    )
    figure = Figure(figsize=(2.3 * max(len(classes), 2) + 0.4, 2.7), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    seconds, unit = unit_of_time(
        max(t for values in found.values() for points in values.values() for t, _ in points)
    )
    panels = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for axes, runtime in zip(panels, classes):
        for place, (scheme, values) in enumerate(found.items()):
            points = values.get(runtime, [])
            axes.plot(
                [t / seconds for t, _ in points],
                [share for _, share in points],
                label=scheme,
                **look(place),
                linewidth=0.9,
            )
        axes.set_title(f"what {runtime} devices hold", fontsize=7)
        axes.set_xlabel(f"Emulated time ({unit})")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.grid(color="0.9", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("Accuracy by label, weighted")
    legend_above(figure, panels[0])
    return figure
