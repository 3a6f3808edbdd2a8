"""What is drawn: the data, in a width for print, with the user's options, readable in grey."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import available, of_rows, of_runs
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from recorded import METRICS, killed, record

from edgefl.errors import UserError
from edgefl.results.families import by_label as by_label
from edgefl.results.families import dissemination as dissemination
from edgefl.results.families import distillation as distillation
from edgefl.results.families import slots as slots
from edgefl.results.figures import base, timeline
from edgefl.results.figures.base import WIDTHS
from edgefl.results.figures.edges import of_counts

# deuteranopia: Machado, Oliveira and Fernandes, 2009, for linear RGB
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
GREY = np.array([0.2126, 0.7152, 0.0722])  # of linear RGB, IEC 61966-2-1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment with two strategies: "fast", with two seeds, and "slow"."""
    record(tmp_path / "fast" / "seed1", 1)
    record(tmp_path / "fast" / "seed2", 2, slower=1.5)
    record(tmp_path / "slow", slower=2.0)
    return tmp_path


def points(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (line,) = (line for line in axes.get_lines() if line.get_label() == label)
    return list(line.get_xdata()), list(line.get_ydata())


def test_the_lines_are_the_data(folder: Path) -> None:
    over_time, over_bytes = of_runs("accuracy", folder).axes
    assert points(over_time, "slow") == ([0.0, 8.0, 14.0, 16.0], [0.1, 0.5, 0.8, 0.9])
    assert points(over_bytes, "slow") == ([0.0, 2.5, 4.0, 4.5], [0.1, 0.5, 0.8, 0.9])
    assert points(over_time, "target 80%")[1] == [0.8, 0.8]
    assert len(over_time.collections) == 1, "the band of the two seeds"
    test, train = of_runs("loss", folder, x="version").axes
    assert points(test, "slow") == ([0, 1, 2, 3], [2.0, 1.0, 0.5, 0.4])
    assert points(train, "slow") == ([0, 1, 2, 3], [2.1, 1.1, 0.6, 0.45])


def test_bars_have_the_mean_and_a_dot_for_each_seed(folder: Path) -> None:
    (axes,) = of_runs("time-to-target", folder).axes
    heights = [patch.get_height() for patch in axes.patches]
    assert heights == pytest.approx([8.75, 14.0])
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    assert [list(line.get_ydata()) for line in dots] == [[7.0, 10.5]]
    assert axes.get_ylabel() == "Time (s) to 80% accuracy"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["fast", "slow"]


def test_a_strategy_whose_seeds_do_not_all_reach_the_target_has_no_bar(tmp_path: Path) -> None:
    record(tmp_path / "x" / "seed1", 1)
    record(tmp_path / "x" / "seed2", 2, metrics=METRICS[:2])
    (axes,) = of_runs("time-to-target", tmp_path).axes
    assert not axes.patches and [text.get_text() for text in axes.texts] == ["1 of 2"]


def test_a_long_run_s_timeline_is_its_beginning_unless_the_user_asks_for_another_part() -> None:
    rows = [
        ("x", f"e{edge:02d}", "compute", "training", float(at), at + 0.5, at, None)
        for at in range(100)
        for edge in range(30)
    ]
    (axes,) = of_rows("timeline", timeline.COLUMNS, rows).axes
    assert axes.get_title() == "x (the first 24 of 30 edges)"
    assert axes.get_xlim()[1] == pytest.approx(timeline.MOST_SLICES[1] / 24, abs=1)
    (axes,) = of_rows("timeline", timeline.COLUMNS, rows, xlim=(90.0, None)).axes
    assert axes.get_xlim() == (90.0, 99.5)
    assert len(axes.collections[0].get_paths()) == 24 * 100


def test_a_histogram_has_bars_or_their_outline() -> None:
    columns = ("name", "staleness", "updates", "share")
    (axes,) = of_rows("staleness-histogram", columns, [("x", 0, 3, 0.75), ("x", 1, 1, 0.25)]).axes
    assert [bar.get_height() for bar in axes.patches] == [0.75, 0.25]
    (axes,) = of_rows("staleness-histogram", columns, [("x", 3, 1, 1.0)]).axes
    assert [tick for tick in axes.get_xticks() if 2.4 < tick < 3.6] == [3.0], "no fractions"
    wide = [("x", gap, 1, 0.02) for gap in range(50)] + [("y", 0, 9, 1.0)]
    (axes,) = of_rows("staleness-histogram", columns, wide).axes
    assert not axes.patches
    assert points(axes, "y") == ([-0.5, -0.5, 0.5, 0.5], [0.0, 1.0, 1.0, 0.0])


def test_the_partition_is_a_map_with_totals() -> None:
    numbers = of_counts({"a": [3, 0], "b": [1, 5]})
    assert numbers.rows == [("a", 0, 3), ("a", 1, 0), ("b", 0, 1), ("b", 1, 5)]
    figure = of_rows("labels", numbers.columns, numbers.rows)
    totals, grid, bar = figure.axes
    assert [patch.get_height() for patch in totals.patches] == [3, 6]
    assert grid.get_images()[0].get_array().tolist() == [[3, 1], [0, 5]]
    assert bar.get_ylabel() == "Samples of the label"


# ------------------------------------------------------------------ for print
def fonts(figure: Figure) -> set[float]:
    texts = [
        text for axes in figure.axes for text in axes.get_xticklabels() + axes.get_yticklabels()
    ]
    labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    legends = [text for legend in figure.legends for text in legend.get_texts()]
    return {text.get_fontsize() for text in (*texts, *labels, *legends)}


@pytest.mark.parametrize("kind", ["accuracy", "loss", "staleness", "timeline", "link-use"])
def test_a_width_for_print_changes_no_font(kind: str, folder: Path) -> None:
    column, page = (of_runs(kind, folder, width=width) for width in WIDTHS)
    assert (column.get_figwidth(), page.get_figwidth()) == (3.33, 7.0)
    assert fonts(column) == fonts(page) and max(fonts(page)) == 8
    one_below_the_other = {axes.get_subplotspec().colspan.start for axes in column.axes}
    assert one_below_the_other == {0}


@pytest.mark.parametrize(
    ("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
@pytest.mark.slow
def test_a_figure_has_the_same_bytes_each_time(form: str, start: bytes, folder: Path) -> None:
    first, again = (base.rendered(of_runs("accuracy", folder), form) for _ in range(2))
    assert first == again and first.startswith(start)


# ------------------------------------------------------------------ grey, and colour-blind readers
def linear(colour: Any) -> np.ndarray:
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lightness(rgb: np.ndarray) -> float:
    """CIE L*, from 0 (black) to 100 (white)."""
    return float(116 * np.cbrt(max(GREY @ rgb, 0.008856)) - 16)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(np.maximum(to_xyz @ rgb / np.array([0.9505, 1.0, 1.089]), 0.008856))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def least_distance(colours: Iterable[Any], seen: np.ndarray) -> float:
    labs = [lab(np.clip(seen @ linear(colour), 0, 1)) for colour in colours]
    return min(
        float(np.linalg.norm(one - other)) for at, one in enumerate(labs) for other in labs[:at]
    )


def test_colours_differ_for_colour_blind_readers() -> None:
    """A difference of 10 is seen at a glance. Matplotlib's own colours have 3.7."""
    assert least_distance(base.COLOURS, DEUTERANOPIA) > 10
    solid = [colour for colour, hatch, _ in timeline.LOOKS.values() if not hatch]
    assert least_distance(solid, DEUTERANOPIA) > 10


def test_what_edges_do_differs_in_grey() -> None:
    greys = [lightness(linear(colour)) for colour, hatch, _ in timeline.LOOKS.values() if not hatch]
    gaps = [high - low for low, high in zip(sorted(greys), sorted(greys)[1:])]
    assert min(gaps) > 12


def test_strategies_differ_without_their_colours() -> None:
    lines = [(base.marked(place)["marker"], base.look(place)["linestyle"]) for place in range(14)]
    bars = [base.filled(place)["hatch"] for place in range(7)]
    assert len(set(lines)) == 14 and len(set(bars)) == 7


# ------------------------------------------------------------------ the user's options
def test_limits_scales_title_and_labels(folder: Path) -> None:
    style = {"x": "emulated_s", "xlim": (1.0, 20.0), "ylim": (0.05, None), "log": "y"}
    names = {"slow": "Slow and steady", "x": "Time", "y": "Share"}
    figure = of_runs("accuracy", folder, **style, title="Two strategies", labels=names)
    (axes,) = figure.axes
    assert axes.get_xlim() == (1.0, 20.0) and axes.get_ylim()[0] == 0.05
    assert (axes.get_yscale(), axes.get_xscale()) == ("log", "linear")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("Time", "Share")
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "Two strategies"
    assert "Slow and steady" in [text.get_text() for text in legend.get_texts()]


def test_a_logarithmic_x_begins_at_the_first_point_above_zero(folder: Path) -> None:
    (axes, _) = of_runs("loss", folder / "slow", x="version", log="x").axes
    assert axes.get_xscale() == "log" and axes.get_xlim()[0] == 1.0
    assert points(axes, "slow") == ([1, 2, 3], [1.0, 0.5, 0.4])


def test_logarithmic_bars_begin_a_decade_below(folder: Path) -> None:
    """Bars of 8.75 and 14 s, and a seed of 7 s."""
    (axes,) = of_runs("time-to-target", folder, log="y").axes
    assert axes.get_yscale() == "log" and axes.get_ylim()[0] == pytest.approx(1.0)
    assert axes.get_ylim()[1] > 14.0 and axes.get_xlim() == pytest.approx((-0.55, 1.55))


def test_a_timeline_of_many_strategies_says_how_many_it_shows() -> None:
    rows = [(f"s{n}", "a", "compute", "training", 0.0, 1.0, 0, None) for n in range(8)]
    figure = of_rows("timeline", timeline.COLUMNS, rows)
    assert len(figure.axes) == base.MOST_PANELS == 6
    assert figure.axes[-1].get_xlabel() == "Emulated time (s) (the first 6 of 8 strategies)"


@pytest.mark.slow
def test_a_killed_run_is_drawn(folder: Path) -> None:
    killed(folder / "slow")
    for kind in available(folder):
        figure = of_runs(kind, folder)
        assert figure.axes and base.rendered(figure, "svg")


def test_a_pdf_has_its_fonts_and_an_svg_needs_none(folder: Path) -> None:
    figure = of_runs("time-to-target", folder)
    assert b"/FontFile2" in base.rendered(figure, "pdf")
    assert b"<text" not in base.rendered(figure, "svg")


def test_nothing_above_zero_has_no_logarithm(tmp_path: Path) -> None:
    record(tmp_path / "x", metrics=[(0, 0.0, 0.0, 0.0, 0.0, 0, 0)])
    with pytest.raises(UserError, match="--log y: nothing in this figure is above 0"):
        of_runs("loss", tmp_path, log="y")


def test_mathematics_is_for_the_user_s_texts_only(tmp_path: Path) -> None:
    record(tmp_path / "cost_5$_a$" / "seed1")
    record(tmp_path / "_own")
    figure = of_runs("accuracy", tmp_path, title=r"Loss $\alpha_1$", labels={"_own": r"$\beta$"})
    base.rendered(figure, "svg")
    (legend,) = figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == [r"$\beta$", r"cost_5\$_a\$", "target 80%"]
    assert of_runs("loss", tmp_path / "_own").legends[0].get_texts()[0].get_text() == " _own"
    with pytest.raises(
        UserError, match=r"title=\$\\frac\$: expected TeX mathematics between dollar"
    ):
        of_runs("accuracy", tmp_path, title=r"$\frac$")


def test_a_damaged_row_is_one_line(folder: Path) -> None:
    (folder / "slow" / "links.csv").write_text("edge,direction,bytes\na,up,x\n")
    with pytest.raises(UserError, match="slow: is damaged"):
        of_runs("link-use", folder / "slow")
    assert "link-use" not in available(folder) and "loss" in available(folder)


@pytest.mark.parametrize(
    ("kind", "style", "line"),
    [
        ("accurac", {}, r"--kind accurac: no such figure \(nearest: 'accuracy'\)"),
        ("accuracy", {"x": "byte"}, r"--x byte: expected one of emulated_s.*nearest: 'bytes'"),
        ("timeline", {"x": "bytes"}, "--x bytes: this figure has no choice of x"),
        ("timeline", {"log": "x"}, "--log x: the x axis of --kind timeline is always linear"),
        ("time-to-target", {"xlim": (0, 1)}, "--xlim: no limits for the x axis of --kind time-to"),
        ("accuracy", {"xlim": (0, 1)}, "two x axes: choose one with --x"),
        ("loss", {"ylim": (0, 1), "log": "y"}, "--ylim: a logarithmic axis begins above 0"),
        ("loss", {"labels": {"slwo": "Slow"}}, r"--label slwo: .*nearest: 'slow'"),
        ("runtimes", {}, "nothing to draw in fast, slow; it is of runs with evaluation"),
    ],
)
def test_bad_input(kind: str, style: dict[str, Any], line: str, folder: Path) -> None:
    with pytest.raises(UserError, match=line):
        of_runs(kind, folder, **style)


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


def controls(strategies: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("controls", dissemination.CONTROLS, _of_panels(strategies))


def distilled(strategies: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("distillation", distillation.COLUMNS, _of_panels(strategies))


def runtimes(strategies: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> Figure:
    return of_rows("runtimes", by_label.COLUMNS, _of_panels(strategies))


def _of_panels(strategies: dict[str, dict[str, Sequence[tuple[float, float]]]]) -> list[Any]:
    return [
        (strategy, panel, *point)
        for strategy, panels in strategies.items()
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


def staleness(strategies: list[str]) -> Figure:
    rows = [(strategy, at, 0, at) for strategy in strategies for at in (0, 1)]
    return of_rows("slot-staleness", slots.STALENESS, rows)


FIGURES: dict[str, Callable[[list[str]], Figure]] = {
    "accuracy": lambda strategies: curves(dict.fromkeys(strategies, 1e6), target=0.8),
    "controls": lambda strategies: controls(
        {strategy: dict.fromkeys(dissemination.PANELS, POINTS) for strategy in strategies}
    ),
    "distillation": lambda strategies: distilled(
        {strategy: dict.fromkeys(distillation.PANELS, POINTS) for strategy in strategies}
    ),
    "runtimes": lambda strategies: runtimes(
        {strategy: {"long": POINTS} for strategy in strategies}
    ),
    "staleness": staleness,
}


@pytest.mark.parametrize("name", [LONG, f"{LONG}/{LONG}/{LONG}", "short{}"])
@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.slow
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
def test_no_two_of_fourteen_strategies_look_alike(draw: Any, panels: Sequence[str]) -> None:
    """There are seven colours, but configs with nine and with fourteen such strategies."""
    figure = draw({f"strategy {number}": dict.fromkeys(panels, POINTS) for number in range(14)})
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


@pytest.mark.parametrize(
    ("value", "limits"), [(0.25, (0.0, 0.5)), (-2.0, (-4.0, 0.0)), (0.0, (-1.0, 1.0))]
)
def test_a_constant_has_an_axis_from_zero(value: float, limits: tuple[float, float]) -> None:
    points = [(0.0, value), (9.0, value * (1 + 1e-15))]
    (axes,) = controls({"a": {"lambda": points}}).axes
    assert axes.get_ylim() == pytest.approx(limits) and axes.get_title() == "lambda"


def test_panels_go_from_the_fastest_devices_to_the_slowest() -> None:
    figure = runtimes({"a": dict.fromkeys(("long (mild)", "medium", "short"), POINTS)})
    assert [axes.get_title() for axes in figure.axes] == [
        f"what {name} devices hold" for name in ("short", "medium", "long (mild)")
    ]
