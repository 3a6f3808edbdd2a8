"""figures/controls.png: a scheme's learned parameters, and the weights they give, over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from edgefl.reports.dissemination.section import reported, updates
from edgefl.results import rundirs
from edgefl.results.drawing import fit_constant, is_constant, legend_above, panels
from edgefl.results.plots import COLOURS, MARKERS, STYLE, save, unit_of_time
from edgefl.results.tail import read_events

# from the server's "report" decisions: number -> title
SERVER = {
    "alpha": "alpha, weight of an update",
    "lambda": "lambda",
    "sigma": "sigma",
    "iota": "iota",
}
# from updates that merged a fresh model: number -> title
DEVICE = {
    "beta": "beta, weight of a fresh model",
    "gamma": "gamma",
    "upsilon": "upsilon",
    "reward": "reward, loss before - after",
}
PANELS = {**SERVER, **DEVICE}
SLIGHT = 0.01
MOST_COLUMNS = 4

Points = list[tuple[float, float]]  # (emulated s, value)


def controls(dirs: Sequence[Path], out_png: Path) -> list[Path]:
    """Draw the figure for the first seed of each scheme in ``dirs``.

    Return the two files written, or [] if no run has such parameters.
    """
    found = {
        name: series(read_events(runs[0] / "events.jsonl"))
        for name, runs in rundirs.find(dirs).items()
    }
    found = {name: values for name, values in found.items() if any(values.values())}
    if not found:
        return []
    with matplotlib.rc_context(STYLE):
        figure = _draw(found)
        return [save(figure, out_png, "png"), save(figure, out_png.with_suffix(".pdf"), "pdf")]


def series(events: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    """Return for each parameter its values over the arrival times of updates.

    The server's values are those at the arrival, a device's those of the merge in that update.
    """
    found: dict[str, Points] = {name: [] for name in PANELS}
    for event in updates(events):
        _add(found, SERVER, event["t"], reported(event))
        if event["numbers"].get("merged"):
            _add(found, DEVICE, event["t"], event["numbers"])
    return found


def _add(
    found: dict[str, Points], names: Mapping[str, str], t: float, values: Mapping[str, Any]
) -> None:
    for name in names:
        if values.get(name) is not None:
            found[name].append((t, float(values[name])))


def _draw(found: Mapping[str, Mapping[str, Points]]) -> Figure:
    titles = {
        name: title
        for name, title in PANELS.items()
        if any(values[name] for values in found.values())
    }
    rows = -(-len(titles) // MOST_COLUMNS)
    figure = Figure(figsize=(7.0, 0.2 + 1.6 * rows), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    seconds, unit = unit_of_time(
        max(t for values in found.values() for points in values.values() for t, _ in points)
    )
    drawn = panels(figure, len(titles), MOST_COLUMNS, f"Emulated time ({unit})")
    for axes, (name, title) in zip(drawn, titles.items()):
        shown = [value for values in found.values() for _, value in values[name]]
        base = _base(shown)
        for place, values in enumerate(found.values()):
            _scatter(axes, place, [(t / seconds, value - base) for t, value in values[name]])
        axes.set_title(f"{name} - {base:.12g}" if base else title, fontsize=7)
        axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 4))
        axes.yaxis.get_offset_text().set_fontsize(6)
        axes.grid(color="0.9", linewidth=0.5)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        fit_constant(axes, shown)
    for place, name in enumerate(found):  # invisible lines, for the legend only
        figure.axes[0].plot([], [], label=name, linewidth=0, **_marker(place), markersize=4.5)
    legend_above(figure, figure.axes[0])
    return figure


def _base(values: Sequence[float]) -> float:
    """Return what to subtract from a panel's values so that its axis shows small differences.

    It is the first value, rounded, if the values differ by less than SLIGHT; else 0.
    """
    spread = max(values) - min(values)
    return (
        round(values[0], math.ceil(-math.log10(spread)))
        if not is_constant(values) and spread < SLIGHT * abs(values[0])
        else 0.0
    )


def _scatter(axes: Axes, place: int, points: Points) -> None:
    """Draw dots, not a line, because values next to each other are from different devices."""
    axes.plot(
        [t for t, _ in points],
        [value for _, value in points],
        linewidth=0,
        **_marker(place),
        markersize=1.8,
        alpha=0.6,
    )


def _marker(place: int) -> dict[str, Any]:
    # colours and markers repeat from the eighth scheme on, with hollow markers
    lap, at = divmod(place, len(COLOURS))
    return {
        "color": COLOURS[at],
        "marker": MARKERS[at],
        **(
            {"markerfacecolor": "none", "markeredgewidth": 0.4}
            if lap % 2
            else {"markeredgewidth": 0}
        ),
    }
