"""The numbers behind the figures of each family, from recorded runs, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drawn import of_runs
from recorded import killed, record

from edgefl.reports import gallery
from edgefl.reports.family import families
from edgefl.results.figures.base import PlotData, open_runs

ASSIGN = {"do": "assign", "edges": ["a", "b"], "tasks": [0, 1], "broadcast": [0, 1]}
GRANT = {"do": "grant", "edge": "a", "task": 0, "slots": [3]}
ROUND = {"uploads": 1.0, "lost": 0.0, "missed": 0.0, "wasted_slots": 0.0}
STALE = {"staleness_least": 1.0, "staleness_most": 3.0}
STEP = {"gradients": 3.0, "aggregated": 2.0, "weighted_staleness": 1.5, "predominant": 1.0}
REPORTED: list[tuple[float, list[dict[str, Any]]]] = [  # emulated s, decisions
    (0.0, [ASSIGN]),
    (1.5, [GRANT]),
    (2.0, [{"do": "report", "values": ROUND | {"end_slot": 4.0}}]),
    (3.0, [{"do": "report", "values": STEP}]),
    (4.0, [{"do": "report", "values": STEP | {"weighted_staleness": 2.5, "predominant": 2.0}}]),
    (5.0, [{"do": "report", "values": {"teachers": 3.0, "alpha": 0.4, "logits_age": 2.0}}]),
    (6.0, [{"do": "report", "values": ROUND | {"end_slot": 12.0} | STALE}]),
]
EVENTS: list[dict[str, Any]] = [
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "a", "samples": 1, "decisions": []},
    {"t": 0.0, "event": "fresh_requested", "version": 0, "edge": "a", "task": 0}
    | {"base_version": 0, "step": 1, "until_ns": 0}
    | {"decisions": [{"do": "send_fresh", "edge": "a", "task": 0, "version": 1}]},
    *(
        {"t": t, "event": "alarm_rang", "version": 0, "key": "k", "decisions": decisions}
        for t, decisions in REPORTED
    ),
    {"t": 0.5, "fact": "task_started", "edge": "a", "task": 0},
    {"t": 1.25, "fact": "update_ready", "edge": "a", "task": 0},
    {"t": 6.5, "event": "update_arrived", "version": 1, "edge": "a", "task": 0, "base_version": 0}
    | {"numbers": {"asked": 1.0, "refresh_point": 2.0, "merged": 1.0, "beta": 0.25}}
    | {"decisions": [{"do": "report", "edge": "a", "values": {"alpha": 0.75}}]},
]
# kind -> rows without the name
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "controls": [("alpha", 6.5, 0.75), ("beta", 6.5, 0.25)],
    "refresh-points": [(2, 1, 1.0)],
    "aggregation": [("share", 1, 0.5), ("share", 2, 0.5), ("staleness", 2.0, 2.0)],
    "slots": [
        ("a", "receive", 0, 2),
        ("b", "receive", 0, 2),
        ("a", "transmit", 3, 4),
        ("a", "compute", 1.0, 2.5),
        (None, "round", 4, 4),
        (None, "round", 12, 12),
    ],
    "slot-staleness": [(1, 1.0, 3.0)],
    "slot-loss": [
        (1, 0.0, 2.1, None),
        (1, 8.0, 1.1, None),
        (1, 14.0, 0.6, None),
        (1, 16.0, 0.45, None),
    ],
    "distillation": [("alpha", 5.0, 0.4), ("teachers", 5.0, 3.0), ("logits_age", 5.0, 2.0)],
    "runtimes": [("long", 2.0, 0.2), ("short", 2.0, 0.6)],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = record(tmp_path / "all", events=EVENTS)
    with (run / "config.toml").open("a") as file:
        file.write("[medium]\nslot_ms = 500.0\n")
    (run / "labels.csv").write_text("version,emulated_s,label_0,label_1\n1,2.0,0.8,0.2\n")
    (run / "edges.csv").write_text("edge,runtime,label_0,label_1\na,short,2,1\nb,long,0,4\n")
    return tmp_path


def numbers(kind: str, folder: Path) -> PlotData:
    return gallery.data(kind, open_runs([folder]))


def test_every_family_s_figure_is_here() -> None:
    assert set(EXPECTED) == {kind for family in families().values() for kind in family.plots()}


@pytest.mark.parametrize("kind", EXPECTED)
def test_the_numbers(kind: str, folder: Path) -> None:
    rows = [row[1:] for row in numbers(kind, folder).rows]
    assert rows == [pytest.approx(row) if None not in row else row for row in EXPECTED[kind]]


@pytest.mark.parametrize("kind", EXPECTED)
def test_the_figure_of_a_killed_run(kind: str, folder: Path) -> None:
    before = numbers(kind, folder)
    killed(folder / "all")
    assert numbers(kind, folder) == before
    for width in ("column", "page"):
        figure = of_runs(kind, folder, width=width)
        figure.draw_without_rendering()
        assert any(axes.lines or axes.patches for axes in figure.axes)


def test_slots_are_bars_and_rounds_are_lines(folder: Path) -> None:
    (axes,) = of_runs("slots", folder).axes
    boxes = [(patch.get_x(), patch.get_width()) for patch in axes.patches[1:]]
    assert boxes == [(0, 2), (0, 2), (3, 1), (1.0, 1.5)]
    assert [line.get_xdata()[0] for line in axes.get_lines()] == [4, 12]


def test_labels_of_a_run(folder: Path) -> None:
    assert numbers("labels", folder).rows == [
        ("a", 0, 2),
        ("a", 1, 1),
        ("b", 0, 0),
        ("b", 1, 4),
    ]
