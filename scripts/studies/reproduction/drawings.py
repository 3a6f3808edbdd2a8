"""Lines of figures that show something else than curves over time: panel -> line -> its points.

A figure's ``lines`` is a table, as a judge is: the name of a drawing with its rows, and further
arguments by name. A row has the ``panel`` and ``line`` that it adds a point to, and ``which``: the
method, as in a judge. ``of`` names another entry that has the runs. A row without runs adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reproduction import dissemination, rules, tdma
from reproduction.entry import Point
from reproduction.results import NoResults, Results
from reproduction.rules import average

Row = Mapping[str, Any]
Panels = dict[str, dict[str, list[Point]]]


def lines_of(spec: Mapping[str, Any], results: Results) -> Panels:
    """Return what a figure's ``lines`` draws. NoResults without runs; KeyError: no drawing."""
    (name,) = [key for key in spec if key in DRAWINGS]
    more = {key: value for key, value in spec.items() if key != name}
    return DRAWINGS[name](results, *spec[name], **more)


def losses(results: Results, *rows: Row, x: str = "emulated_s", unit: float = 1.0) -> Panels:
    """Return lines of the mean train loss over ``x`` / ``unit``, with the seeds' range.

    There is no point where a seed has no finite loss, as after it has diverged.
    """
    panels: Panels = {}
    for row, runs, points in _with_runs(results, rows, panels):
        by_x: dict[float, list[float]] = {}
        curves = runs.curve(row["which"], "train_loss", x=x)
        for curve in curves.values():
            for at, value in curve:
                by_x.setdefault(at / unit, []).append(value)
        points += [
            Point(at, average(ys), min(ys), max(ys))
            for at, ys in sorted(by_x.items())
            if len(ys) == len(curves)
        ]
    return panels


def values(
    results: Results, *rows: Row, column: str = "", unit: float = 1.0, diverged: bool = False
) -> Panels:
    """Return a point at each row's ``x``: mean and range over the seeds of ``column`` / ``unit``.

    A row may have a ``column`` of its own. A run without the number leaves its row out, or, where
    runs may have ``diverged``, has the loss of a guess.
    """
    panels: Panels = {}
    for row, runs, points in _with_runs(results, rows, panels):
        found = runs.values(row["which"], row.get("column", column)).values()
        given = [tdma.GUESS if each is None and diverged else each for each in found]
        there = [each / unit for each in given if each is not None]
        if there and len(there) == len(given):
            points.append(Point(row["x"], average(there), min(there), max(there)))
    return panels


def gains(results: Results, *rows: Row, column: str) -> Panels:
    """Return a point at each row's ``x``: how much ``which`` is better ``than``, and the interval
    that its verdict has; before the first look there is none.
    """
    panels: Panels = {}
    for row, runs, points in _with_runs(results, rows, panels):
        try:
            found = rules.paired(runs, row["which"], row["than"], column)
        except NoResults:
            continue
        bounds = found.interval
        low, high = (None, None) if bounds is None else (bounds.low, bounds.high)
        points.append(Point(row["x"], found.mean, low, high))
    return panels


def seeds(results: Results, *rows: Row, x: str, y: str) -> Panels:
    """Return a point for each seed: two columns of its run."""
    panels: Panels = {}
    for row, runs, points in _with_runs(results, rows, panels):
        pairs = [(each.numbers[x], each.numbers[y]) for each in runs.runs(row["which"])]
        points += [Point(a, b) for a, b in pairs if a is not None and b is not None]
    return panels


def _with_runs(
    results: Results, rows: tuple[Row, ...], panels: Panels
) -> Iterator[tuple[Row, Results, list[Point]]]:
    """Yield each row that has runs, the results that have them, and the points of its line."""
    for row in rows:
        points = panels.setdefault(row.get("panel", ""), {}).setdefault(row["line"], [])
        try:
            runs = results.of(row["of"]) if "of" in row else results
        except NoResults:
            continue
        if runs.has(row["which"]):
            yield row, runs, points


DRAWINGS: dict[str, Callable[..., Panels]] = {
    drawing.__name__: drawing
    for drawing in (losses, values, gains, seeds, dissemination.best_gains, *tdma.DRAWINGS)
}
