"""Content of figures, read from their axes: no line without data, whole legends, no empty panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from drawn import of_rows
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from edgefl.reports import by_label as by_label
from edgefl.reports import dissemination as dissemination
from edgefl.reports import distillation as distillation
from edgefl.reports import slots as slots

LONG = "a-name-as-long-as-a-directory-may-have-{}-in-a-folder-with-another-long-name"
POINTS = [(0.0, 0.4), (50.0, 0.6)]


def curves(sizes: dict[str, float], seeds: int = 1, target: float | None = None) -> Figure:
    """Accuracies of 10 % before the first byte, then 50 % and 90 %; ``sizes``: bytes of a step."""
    deviation = None if seeds == 1 else 0.1
    rows = [
        (name, seeds, target, x, step * (1.0 if x == "emulated_s" else size), share, deviation)
        for x in ("emulated_s", "bytes")
        for name, size in sizes.items()
        for step, share in enumerate((0.1, 0.5, 0.9))
    ]
    columns = ("name", "runs", "target", "x", "at", "accuracy", "deviation")
    return of_rows("accuracy", columns, rows)


def controls(schemes: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("controls", dissemination.CONTROLS, _of_panels(schemes))


def distilled(schemes: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("distillation", distillation.COLUMNS, _of_panels(schemes))


def runtimes(schemes: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("runtimes", by_label.COLUMNS, _of_panels(schemes))


def _of_panels(schemes: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> list[Any]:
    return [
        (scheme, panel, *point)
        for scheme, panels in schemes.items()
        for panel, points in panels.items()
        for point in points
    ]


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_point_at_no_bytes_is_not_drawn_on_a_logarithmic_axis(seeds: int) -> None:
    """matplotlib draws it as a horizontal line at the accuracy of the next point."""
    over_time, over_bytes = curves({"few": 1e6, "many": 1e8}, seeds).axes
    assert over_bytes.get_xscale() == "log"
    for line in over_bytes.get_lines():
        assert line.get_xdata()[0] > 0 and line.get_ydata()[0] == 0.5
    assert all(line.get_ydata()[0] == 0.1 for line in over_time.get_lines())
    bands = [path.vertices[:, 0].min() for each in over_bytes.collections for path in each._paths]
    assert len(bands) == (2 if seeds > 1 else 0) and all(least > 0 for least in bands)


def test_it_is_drawn_on_a_linear_axis() -> None:
    _, over_bytes = curves({"one": 1e6, "other": 2e6}).axes
    assert [line.get_ydata()[0] for line in over_bytes.get_lines()] == [0.1, 0.1]


def staleness(schemes: list[str]) -> Figure:
    rows = [(scheme, at, 0, at) for scheme in schemes for at in (0, 1)]
    return of_rows("slot-staleness", slots.STALENESS, rows)


FIGURES: dict[str, Callable[[list[str]], Figure]] = {
    "accuracy": lambda schemes: curves(dict.fromkeys(schemes, 1e6), target=0.8),
    "controls": lambda schemes: controls(
        {scheme: dict.fromkeys(dissemination.PANELS, POINTS) for scheme in schemes}
    ),
    "distillation": lambda schemes: distilled(
        {scheme: dict.fromkeys(distillation.PANELS, POINTS) for scheme in schemes}
    ),
    "runtimes": lambda schemes: runtimes({scheme: {"long": POINTS} for scheme in schemes}),
    "staleness": staleness,
}


@pytest.mark.parametrize("name", [LONG, f"{LONG}/{LONG}/{LONG}", "short{}"])
@pytest.mark.parametrize("kind", FIGURES)
def test_a_legend_is_whole(kind: str, name: str) -> None:
    names = [name.replace("{}", str(number)) for number in range(7)]
    figure = FIGURES[kind](names)
    figure.draw_without_rendering()
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    (legend,) = figure.legends
    box = legend.get_window_extent(canvas.get_renderer())
    width, height = figure.get_size_inches() * figure.dpi
    assert 0 <= box.x0 < box.x1 <= width and 0 <= box.y0 < box.y1 <= height
    shown = ["".join(text.get_text().split()) for text in legend.get_texts()]
    assert shown[:7] == names
    assert all(axes.get_position().height * figure.get_figheight() > 0.7 for axes in figure.axes)


@pytest.mark.parametrize(
    ("draw", "panels"),
    [(controls, dissemination.PANELS), (distilled, distillation.PANELS), (runtimes, ("long",))],
)
def test_no_two_of_fourteen_schemes_look_alike(draw: Any, panels: Sequence[str]) -> None:
    """There are seven colours, but configs with nine and with fourteen such schemes."""
    figure = draw({f"scheme {number}": dict.fromkeys(panels, POINTS) for number in range(14)})
    lines = [line for line in figure.axes[0].get_lines() if not line.get_label().startswith("_")]
    looks = {
        (line.get_color(), line.get_linestyle(), line.get_marker(), line.get_markerfacecolor())
        for line in lines
    }
    assert len(lines) == len(looks) == 14
    assert all(line.get_marker() not in ("", "None", None) for line in lines), "for grey prints"


def test_parameters_without_values_have_no_panel() -> None:
    figure = controls({"a": {"alpha": POINTS}, "b": {"gamma": POINTS, "alpha": POINTS}})
    assert [axes.get_title() for axes in figure.axes] == ["alpha, weight of an update", "gamma"]
    assert all(axes.get_xlabel() for axes in figure.axes)


def test_every_column_of_panels_has_its_x_axis() -> None:
    figure = controls({"a": dict.fromkeys(list(dissemination.PANELS)[:5], POINTS)})
    labelled = [bool(axes.get_xlabel()) for axes in figure.axes]
    assert labelled == [False, False, True, True, True]  # 3 and 2


@pytest.mark.parametrize(
    ("value", "limits"), [(0.25, (0.0, 0.5)), (-2.0, (-4.0, 0.0)), (0.0, (-1.0, 1.0))]
)
def test_a_constant_has_an_axis_from_zero(value: float, limits: tuple[float, float]) -> None:
    points = [(0.0, value), (9.0, value * (1 + 1e-15))]
    (axes,) = controls({"a": {"lambda": points}}).axes
    assert axes.get_ylim() == pytest.approx(limits) and axes.get_title() == "lambda"


def test_distillation_leaves_out_what_has_no_values() -> None:
    of = {"teachers": [(0.0, 4.0), (5.0, 4.0)], "server_s": [(0.0, 0.0), (5.0, 0.0)]}
    teachers, server_s = distilled({"a": of}).axes
    assert teachers.get_ylim() == (0.0, 8.0) and server_s.get_ylim() == (-1.0, 1.0)


def test_panels_go_from_the_fastest_devices_to_the_slowest() -> None:
    figure = runtimes({"a": dict.fromkeys(("long (mild)", "medium", "short"), POINTS)})
    assert [axes.get_title() for axes in figure.axes] == [
        f"what {name} devices hold" for name in ("short", "medium", "long (mild)")
    ]
