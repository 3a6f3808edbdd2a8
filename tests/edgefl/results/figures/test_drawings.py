"""What is drawn: the data, in a width for print, with the user's options, readable in grey."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import available, of_rows, of_runs
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from recorded import killed, record

from edgefl.errors import UserError
from edgefl.results.families import by_label as by_label
from edgefl.results.families import dissemination as dissemination
from edgefl.results.families import distillation as distillation
from edgefl.results.families import slots as slots
from edgefl.results.figures import base, timeline


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


# ------------------------------------------------------------------ for print
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


@pytest.mark.slow
def test_a_killed_run_is_drawn(folder: Path) -> None:
    killed(folder / "slow")
    for kind in available(folder):
        figure = of_runs(kind, folder)
        assert figure.axes and base.rendered(figure, "svg")


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
        ("accurac", {}, r"kind accurac: no such figure \(nearest: 'accuracy'\)"),
        (
            "accuracy",
            {"x": "byte"},
            r"^--x byte: no such x \(nearest: 'bytes'\) \(kind accuracy\)$",
        ),
        ("timeline", {"x": "bytes"}, "--x bytes: this figure has no choice of x"),
        ("timeline", {"log": "x"}, "--log x: the x axis of kind timeline is always linear"),
        ("time-to-target", {"xlim": (0, 1)}, "--xlim: no limits for the x axis of kind time-to"),
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
