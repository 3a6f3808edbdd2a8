"""Each family of reports has the same interface, no list names it; the numbers of its figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from drawn import of_runs
from matplotlib.figure import Figure
from paths import ROOT
from recorded import killed, record

from edgefl.record.counters import Counters
from edgefl.results import families as package
from edgefl.results.families import families, files, pushes, sections
from edgefl.results.figures import gallery
from edgefl.results.figures.base import PlotData, open_runs
from edgefl.results.read import read_events

FAMILIES = families()
REPORTS: list[dict[str, float]] = [
    {"alpha": 0.5, "gap": 0.0},
    {"gradients": 2.0, "weighted_staleness": 1.0, "aggregated": 2.0, "predominant": 1.0},
    {"end_slot": 6.0, "staleness_least": 0.0, "staleness_most": 1.0}
    | {"uploads": 1.0, "lost": 0.0, "missed": 0.0, "wasted_slots": 0.0},
    {"teachers": 2.0, "alpha": 0.4},
]
ASSIGN = {"do": "assign", "edges": ["a"], "tasks": [0], "broadcast": [0, 1]}
EVENTS: list[dict[str, Any]] = [
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "a", "samples": 1, "decisions": []},
    {"t": 0.0, "event": "run_started", "version": 0, "decisions": [ASSIGN]},
    {"t": 1.0, "event": "fresh_requested", "version": 0, "edge": "a", "task": 0}
    | {"base_version": 0, "step": 1, "until_ns": 0}
    | {"decisions": [{"do": "push", "edges": ["a"], "tasks": [0], "version": 0}]},
    {"t": 2.0, "event": "update_arrived", "version": 0, "edge": "a", "task": 0, "base_version": 0}
    | {"numbers": {"merged": 1.0, "beta": 0.5}}
    | {"decisions": [{"do": "report", "values": values, "edge": "a"} for values in REPORTS]},
]
TABLES = {
    "links.csv": "edge,direction,kind,bytes,offered_s,scheduled_s,finished_s\n",
    "metrics.csv": "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
    "0,0.0,0.0,1.0,1.0,0.1,0,0\n1,2.0,2.0,0.5,0.5,0.6,0,0\n",
    "labels.csv": "version,emulated_s,label_0\n0,0.0,0.1\n1,2.0,0.6\n",
    "clients.csv": "version,emulated_s,edge,loss,accuracy,samples\n1,2.0,a,0.5,0.6,3\n",
    "measured.csv": "what,edge,number,began_s,ended_s,amount\nup,a,1,0.0,1.0,1000\n",
    "edges.csv": "edge,runtime,label_0\na,short,3\n",
    "config.toml": "[medium]\nslot_ms = 500.0\n",
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with data for each family."""
    directory = tmp_path / "experiment" / "all"
    directory.mkdir(parents=True)
    (directory / "events.jsonl").write_bytes(b"".join(orjson.dumps(e) + b"\n" for e in EVENTS))
    for name, text in TABLES.items():
        (directory / name).write_text(text)
    found = sections(directory, marks(directory), 2.0)
    (directory / "summary.json").write_bytes(orjson.dumps({"seed": 1, **found}))
    return directory


def marks(directory: Path) -> set[str]:
    counters = Counters()
    for event in read_events(directory / "events.jsonl"):
        counters.take(event)
    return counters.marks


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose figures without rendering them, to save time."""
    monkeypatch.setattr(Figure, "savefig", lambda self, data, **options: data.write(b"figure"))


@pytest.fixture
def own_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Add a file to the families."""
    (tmp_path / "own_energy.py").write_text(
        "from edgefl.results.families import Family\n\n\n"
        "class Own(Family):\n"
        "    def section(self, run, emulated_s):\n"
        '        return {"joules": 2 * emulated_s}\n\n\n'
        'FAMILY = Own("own_energy", 15, "run_started", csv="energy.csv")\n'
    )
    (tmp_path / "no_family.py").touch()
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    yield "own_energy"
    for name in [name for name in sys.modules if "own_energy" in name]:
        del sys.modules[name]


def test_orders_marks_files_and_kinds_are_unique() -> None:
    for values in (
        [family.order for family in FAMILIES.values()],
        [family.mark for family in FAMILIES.values()],
        list(files()),
        [kind for family in FAMILIES.values() for kind in family.plots],
    ):
        assert len(values) == len(set(values))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_leaves_the_files_that_it_names(name: str, run: Path, quick_figures: None) -> None:
    """A rerun removes only FILES, so any other file would stay."""
    lines = FAMILIES[name].leave([run], run.parent)
    left = {
        path.relative_to(run.parent).as_posix()
        for path in run.parent.rglob("*")
        if path.is_file() and run not in path.parents
    }
    assert left == set(FAMILIES[name].files) and lines


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_says_nothing_of_a_run_without_its_mark(name: str, run: Path) -> None:
    (run / "events.jsonl").write_bytes(orjson.dumps(EVENTS[0]) + b"\n")
    for table in ("labels.csv", "clients.csv", "measured.csv", "summary.json"):
        (run / table).unlink()
    assert sections(run, marks(run), 2.0) == {}
    assert FAMILIES[name].table([run]) is None
    assert FAMILIES[name].leave([run], run.parent) == [] and list(run.parent.iterdir()) == [run]


def test_sections_are_of_the_families_whose_mark_is_there(run: Path, own_family: str) -> None:
    assert list(sections(run, marks(run), 2.0)) == [
        "dissemination",
        "pushes",
        own_family,
        "aggregation",
        "slots",
        "edge_scores",
        "native",
    ]
    for table in ("clients.csv", "measured.csv"):
        (run / table).unlink()
    assert list(sections(run, {"end_slot"}, 2.0)) == ["slots"]


def test_a_family_of_ones_own_is_found(run: Path, own_family: str) -> None:
    assert list(families())[:4] == ["dissemination", "pushes", own_family, "aggregation"]
    assert "energy.csv" in files()
    assert sections(run, marks(run), 2.0)[own_family] == {"joules": 4.0}


@pytest.mark.processes
@pytest.mark.parametrize(
    "modules",
    [
        "edgefl.results.families",
        "edgefl.clocks.setup.rundir",
        "edgefl.cli",
        "edgefl.clocks.setup.learning",
    ],
)
def test_families_are_found_without_matplotlib(modules: str) -> None:
    code = (
        f"import sys, {modules}; from edgefl.results.families import families; families();"
        " sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


ASSIGNED = {"do": "assign", "edges": ["a", "b"], "tasks": [0, 1], "broadcast": [0, 1]}
GRANT = {"do": "grant", "edge": "a", "task": 0, "slots": [3]}
ROUND = {"uploads": 1.0, "lost": 0.0, "missed": 0.0, "wasted_slots": 0.0}
STALE = {"staleness_least": 1.0, "staleness_most": 3.0}
STEP = {"gradients": 3.0, "aggregated": 2.0, "weighted_staleness": 1.5, "predominant": 1.0}
REPORTED: list[tuple[float, list[dict[str, Any]]]] = [  # emulated s, decisions
    (0.0, [ASSIGNED]),
    (1.5, [GRANT]),
    (2.0, [{"do": "report", "values": ROUND | {"end_slot": 4.0}}]),
    (3.0, [{"do": "report", "values": STEP}]),
    (4.0, [{"do": "report", "values": STEP | {"weighted_staleness": 2.5, "predominant": 2.0}}]),
    (5.0, [{"do": "report", "values": {"teachers": 3.0, "alpha": 0.4, "logits_age": 2.0}}]),
    (6.0, [{"do": "report", "values": ROUND | {"end_slot": 12.0} | STALE}]),
]
RECORDED: list[dict[str, Any]] = [
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
    "clients": [(1, 0, 0.0, 2.0, "a", 0.25), (1, 3, 2.0, 2.0, "a", 0.75), (1, 3, 2.0, 2.0, "b", 1)],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = record(tmp_path / "all", events=RECORDED)
    with (run / "config.toml").open("a") as file:
        file.write("[medium]\nslot_ms = 500.0\n")
    (run / "labels.csv").write_text("version,emulated_s,label_0,label_1\n1,2.0,0.8,0.2\n")
    (run / "edges.csv").write_text("edge,runtime,label_0,label_1\na,short,2,1\nb,long,0,4\n")
    scored = ("0,0.0,a,2.0,0.25,4", "0,0.0,b,,,0", "3,2.0,a,0.5,0.75,4", "3,2.0,b,0.1,1.0,2")
    head = "version,emulated_s,edge,loss,accuracy,samples"
    (run / "clients.csv").write_text("\n".join((head, *scored, "")))
    return tmp_path


def numbers(kind: str, folder: Path) -> PlotData:
    return gallery.data(kind, open_runs([folder]))


@pytest.mark.parametrize("kind", EXPECTED)
def test_the_numbers(kind: str, folder: Path) -> None:
    rows = [row[1:] for row in numbers(kind, folder).rows]
    assert rows == [pytest.approx(row) if None not in row else row for row in EXPECTED[kind]]


@pytest.mark.parametrize("kind", EXPECTED)
@pytest.mark.slow
def test_the_figure_of_a_killed_run(kind: str, folder: Path) -> None:
    before = numbers(kind, folder)
    killed(folder / "all")
    assert numbers(kind, folder) == before
    for width in ("column", "page"):
        figure = of_runs(kind, folder, width=width)
        figure.draw_without_rendering()
        assert any(axes.lines or axes.patches for axes in figure.axes)


def test_what_became_of_pushes() -> None:
    """Of five: two arrived (one late), one was replaced, one cancelled, one is under way."""
    push = {"do": "push", "edges": ["a", "b"], "tasks": [0, 1], "version": 2}
    rows: list[dict[str, Any]] = [
        {"t": 1.0, "event": "alarm_rang", "decisions": [push, push, {**push, "tasks": [2]}]},
        {"t": 2.0, "fact": "push_replaced", "task": 0, "of_version": 2},
        {"t": 4.0, "fact": "push_arrived", "task": 0, "of_version": 2},
        {"t": 5.0, "fact": "push_arrived", "task": 1, "of_version": 2},
        {"t": 6.0, "event": "update_arrived", "task": 0, "numbers": {"pushes": 1.0}},
        {"t": 7.0, "event": "update_arrived", "task": 1}
        | {"numbers": {"pushes": -9.0, "pushes_late": 1.0}},
    ]
    kinds = ("task", "push", "push", "dropped push")
    links = [{"kind": kind, "bytes": "10"} for kind in kinds]
    assert pushes.section(rows, links) == {
        "sent": 5,
        "arrived": 2,
        "merged": 1,
        "late": 1,
        "replaced": 1,
        "cancelled": 1,
        "bytes": 30,
        "arrival_mean_s": 3.5,
    }
    assert pushes.section(rows[1:], links) is None
