"""Content of figures, read from their axes: no line without data, whole legends, no empty panel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from edgefl.reports.by_label import figures as by_label
from edgefl.reports.dissemination import figures as dissemination
from edgefl.reports.distillation import figures as distillation
from edgefl.reports.slots import figures as slots
from edgefl.results import plots

LONG = "a-name-as-long-as-a-directory-may-have-{}-in-a-folder-with-another-long-name"
POINTS = [(0.0, 0.4), (50.0, 0.6)]


def curve(bytes_each: float) -> plots.Curve:
    """A curve: 10 % before the first byte, then 50 %, then 90 %."""
    return plots.Curve([0.0, 1.0, 2.0], [0.0, bytes_each, 2 * bytes_each], [0.1, 0.5, 0.9])


def of_panels(names: dict[str, str], schemes: list[str]) -> dict[str, dict[str, list]]:
    return {scheme: dict.fromkeys(names, POINTS) for scheme in schemes}


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_point_at_no_bytes_is_not_drawn_on_a_logarithmic_axis(seeds: int) -> None:
    """matplotlib draws it as a horizontal line at the accuracy of the next point."""
    schemes = {name: [curve(size)] * seeds for name, size in (("few", 1e6), ("many", 1e8))}
    over_time, over_bytes = plots._draw(schemes, []).axes
    assert over_bytes.get_xscale() == "log"
    for line in over_bytes.get_lines():
        assert line.get_xdata()[0] > 0 and line.get_ydata()[0] == 0.5
    assert all(line.get_ydata()[0] == 0.1 for line in over_time.get_lines())
    bands = [path.vertices[:, 0].min() for each in over_bytes.collections for path in each._paths]
    assert len(bands) == (2 if seeds > 1 else 0) and all(least > 0 for least in bands)


def test_it_is_drawn_on_a_linear_axis() -> None:
    _, over_bytes = plots._draw({"one": [curve(1e6)], "other": [curve(2e6)]}, []).axes
    assert [line.get_ydata()[0] for line in over_bytes.get_lines()] == [0.1, 0.1]


def staleness(schemes: list[str]) -> Figure:
    figure, axes = slots._one("Round", "Staleness")
    for scheme in schemes:
        axes.plot([0, 1], [1, 2], label=scheme)
    slots._legend(figure, axes)
    return figure


FIGURES: dict[str, Callable[[list[str]], Figure]] = {
    "accuracy": lambda schemes: plots._draw({name: [curve(1e6)] for name in schemes}, [0.8]),
    "controls": lambda schemes: dissemination._draw(of_panels(dissemination.PANELS, schemes)),
    "distillation": lambda schemes: distillation._draw(of_panels(distillation.PANELS, schemes)),
    "runtimes": lambda schemes: by_label._draw({name: {"long": POINTS} for name in schemes}),
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


def test_parameters_without_values_have_no_panel() -> None:
    none = {name: [] for name in dissemination.PANELS}
    figure = dissemination._draw(
        {"a": {**none, "alpha": POINTS}, "b": {**none, "alpha": POINTS, "gamma": POINTS}}
    )
    assert [axes.get_title() for axes in figure.axes] == ["alpha, weight of an update", "gamma"]
    assert all(axes.get_xlabel() for axes in figure.axes)


def test_every_column_of_panels_has_its_x_axis() -> None:
    names = list(dissemination.PANELS)[:5]
    figure = dissemination._draw(
        {"a": {name: POINTS if name in names else [] for name in dissemination.PANELS}}
    )
    labelled = [bool(axes.get_xlabel()) for axes in figure.axes]
    assert labelled == [False, False, True, True, True]  # 3 and 2


@pytest.mark.parametrize(
    ("value", "limits"), [(0.25, (0.0, 0.5)), (-2.0, (-4.0, 0.0)), (0.0, (-1.0, 1.0))]
)
def test_a_constant_has_an_axis_from_zero(value: float, limits: tuple[float, float]) -> None:
    none = {name: [] for name in dissemination.PANELS}
    points = [(0.0, value), (9.0, value * (1 + 1e-15))]
    (axes,) = dissemination._draw({"a": {**none, "lambda": points}}).axes
    assert axes.get_ylim() == pytest.approx(limits) and axes.get_title() == "lambda"


def test_distillation_leaves_out_what_has_no_values() -> None:
    none = {name: [] for name in distillation.PANELS}
    of = {**none, "teachers": [(0.0, 4.0), (5.0, 4.0)], "server_s": [(0.0, 0.0), (5.0, 0.0)]}
    teachers, server_s = distillation._draw({"a": of}).axes
    assert teachers.get_ylim() == (0.0, 8.0) and server_s.get_ylim() == (-1.0, 1.0)
