"""The numbers behind each figure of every run, from a recorded run, by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import available, of_runs
from recorded import EVENTS, killed, record

from edgefl.errors import UserError
from edgefl.results.compare import load_run
from edgefl.results.figures import gallery
from edgefl.results.figures.base import PlotData, PlotStyle, open_runs
from edgefl.results.figures.edges import Transfers, use
from edgefl.results.summary import AXES

RUN_FIGURES = (
    "accuracy",
    "age",
    "devices",
    "link-use",
    "loss",
    "staleness",
    "staleness-histogram",
    "time-to-target",
    "timeline",
    "update-age",
)


def numbers(kind: str, folder: Path, **style: Any) -> PlotData:
    return gallery.data(kind, open_runs([folder]), PlotStyle(**style))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An experiment with one run: "slow"."""
    record(tmp_path / "slow")
    return tmp_path


def test_a_run_has_the_figures_of_every_run(folder: Path) -> None:
    assert tuple(available(folder)) == RUN_FIGURES


def test_accuracy_over_time_and_bytes(folder: Path) -> None:
    found = numbers("accuracy", folder)
    assert found["accuracy"] == [0.1, 0.5, 0.8, 0.9] * 2
    assert found.where(x="emulated_s")["at"] == [0.0, 4.0, 7.0, 8.0]
    assert found.where(x="bytes")["at"] == [0.0, 2500.0, 4000.0, 4500.0]
    assert set(found["target"]) == {0.8} and set(found["deviation"]) == {None}
    assert found.csv().splitlines()[1] == "slow,1,0.8,emulated_s,0.0,0.1,"


@pytest.mark.parametrize(
    ("x", "at"),
    [
        ("version", [0.0, 1.0, 2.0, 3.0]),
        ("round", [0.0, 1.0, 2.0, 3.0]),
        ("bytes", [0.0, 2500.0, 4000.0, 4500.0]),
    ],
)
def test_another_x(folder: Path, x: str, at: list[float]) -> None:
    assert numbers("accuracy", folder, x=x)["at"] == at
    assert numbers("loss", folder, x=x).where(of="test")["at"] == at


def test_seeds_have_a_mean_and_a_deviation(tmp_path: Path) -> None:
    """At 8 s the first seed has 0.9. The second, twice as slow, has (0.5 + 0.5) / 2 = 0.5 there."""
    for seed, slower in ((1, 1.0), (2, 2.0)):
        record(tmp_path / "slow" / f"seed{seed}", seed, slower=slower)
    found = numbers("accuracy", tmp_path, x="emulated_s")
    assert set(found["runs"]) == {2} and max(found["at"]) == 8.0
    assert found["accuracy"][-1] == pytest.approx(0.7)
    assert found["deviation"][-1] == pytest.approx(0.4 / 2**0.5)


def test_a_loss_that_is_not_finite_at_the_end_holds_no_older_one(tmp_path: Path) -> None:
    for seed, last in ((1, "nan"), (2, "0.3")):
        run = record(tmp_path / "slow" / f"seed{seed}", seed)
        lines = (run / "metrics.csv").read_text().splitlines()
        fields = lines[-1].split(",")
        fields[lines[0].split(",").index("test_loss")] = last
        (run / "metrics.csv").write_text("\n".join([*lines[:-1], ",".join(fields)]) + "\n")
        (run / "summary.json").write_text('{"emulated_s": 10.0}')
    alone = numbers("loss", tmp_path / "slow" / "seed1", x="emulated_s").where(of="test")
    assert alone["at"] == [0.0, 4.0, 7.0], "the run goes on to 10 s without a loss"
    both = numbers("loss", tmp_path, x="emulated_s").where(of="test")
    assert max(both["at"]) == 7.0, "no mean of a loss and of one that is long over"


def test_staleness_over_time(folder: Path) -> None:
    """Updates arrive at 4, 7 and 8 s: in parts 20, 35 and 39 of 40, of 0.2 s each."""
    found = numbers("staleness", folder)
    assert found["at"] == pytest.approx([4.1, 7.1, 7.9])
    assert found["mean"] == found["low"] == found["high"] == [0.0, 1.0, 1.0]


def test_the_histogram_of_staleness_is_over_all_seeds(tmp_path: Path) -> None:
    for seed in (1, 2):
        record(tmp_path / "slow" / f"seed{seed}", seed)
    found = numbers("staleness-histogram", tmp_path)
    assert found.rows == [
        ("slow", 0, 2, pytest.approx(1 / 3)),
        ("slow", 1, 4, pytest.approx(2 / 3)),
    ]


def test_staleness_is_of_the_same_updates_as_in_the_table(tmp_path: Path) -> None:
    """The last of three is discarded on its arrival: staleness 0 and 1 are left."""
    discard = {"do": "discard", "task": 2, "reason": "too stale"}
    *others, last, finished = EVENTS
    events = [*others, last | {"decisions": [discard]}, finished]
    run = record(tmp_path / "slow", events=events)
    (run / "summary.json").unlink()
    found = numbers("staleness-histogram", run)
    assert found["staleness"] == [0, 1] and found["updates"] == [1, 1]
    assert numbers("staleness", run)["updates"] == [1, 1]
    assert load_run(run, "slow").staleness_mean == 0.5


@pytest.mark.parametrize(("x", "cost"), [("emulated_s", 7.0), ("bytes", 4000.0), ("version", 2.0)])
def test_the_cost_of_the_target(folder: Path, x: str, cost: float) -> None:
    assert numbers("time-to-target", folder, x=x).rows == [
        ("slow", 0.8, x, 1, cost, cost, None, None)
    ]


def test_the_interval_of_the_time_to_the_target(tmp_path: Path) -> None:
    """7 and 7.7 s: mean 7.35, deviation .7 / sqrt 2, and t = 12.706 with one degree of freedom."""
    for seed, slower in ((1, 1.0), (2, 1.1)):
        record(tmp_path / "slow" / f"seed{seed}", seed, slower=slower)
    found = numbers("time-to-target", tmp_path)
    assert found["at"] == pytest.approx([7.0, 7.7]) and found["mean"] == pytest.approx([7.35] * 2)
    assert found["low"][0] == pytest.approx(7.35 - 12.706 * 0.35, abs=0.001)
    assert found["high"][0] == pytest.approx(7.35 + 12.706 * 0.35, abs=0.001)


def test_without_a_common_target_one_is_asked_for(tmp_path: Path) -> None:
    record(tmp_path / "one", target=0.8)
    record(tmp_path / "other", target=None)
    with pytest.raises(UserError, match=r"no common target.*one: 0\.8, other: none.*--target 0\.9"):
        numbers("time-to-target", tmp_path)
    assert numbers("time-to-target", tmp_path, target=0.5)["at"] == [4.0, 4.0]
    with pytest.raises(
        UserError, match=r"no run reaches the accuracy 0\.95 \(the best one: 0\.9\): choose"
    ):
        numbers("time-to-target", tmp_path, target=0.95)


def transfers(*rows: tuple[float, ...]) -> Transfers:
    return Transfers(*(np.array(each) for each in zip(*rows)))


def test_link_use_by_hand() -> None:
    """Two transfers that overlap make their link busy once; a broadcast makes all links busy."""
    everyone = 9
    edges = transfers((0, 0.0, 2.0, 1e6), (0, 1.0, 3.0, 1e6))
    assert use(edges, everyone, 2, 4.0, parts=2) == [
        (1.0, pytest.approx(0.5), pytest.approx(6.0)),
        (3.0, pytest.approx(0.25), pytest.approx(2.0)),
    ]
    assert use(transfers((everyone, 0.0, 2.0, 1e6)), everyone, 2, 4.0, parts=2) == [
        (1.0, pytest.approx(1.0), pytest.approx(4.0)),
        (3.0, 0.0, 0.0),
    ]


def test_the_timeline_has_every_stretch(folder: Path) -> None:
    found = numbers("timeline", folder)
    assert [row[1:6] for row in found.where(edge="a").rows if row[2] != "instant"] == [
        ("a", "downlink", "receive", 0.0, 1.0),
        ("a", "compute", "training", 1.0, 3.0),
        ("a", "uplink", "send", 3.0, 4.0),
        ("a", "downlink", "receive", 4.0, 5.0),
        ("a", "compute", "training", 5.0, 7.0),
        ("a", "uplink", "send", 7.0, 8.0),
    ]
    assert [*found.by("lane")["instant"].rows] == found.where(lane="instant").rows
    assert found.rows[-1] == [*found.rows][-1] and found.csv().count("\n") == 1 + len(found.rows)
    merges = found.where(lane="instant", what="merge")
    assert list(zip(merges["edge"], merges["begin_s"])) == [("a", 4.0), ("b", 7.0), ("a", 8.0)]


@pytest.mark.parametrize("kind", RUN_FIGURES)
def test_a_killed_run_has_what_it_had_so_far(kind: str, folder: Path, tmp_path: Path) -> None:
    whole = numbers(kind, folder)
    run = killed(folder / "slow")
    assert numbers(kind, folder).csv() == whole.csv()
    with (run / "events.jsonl").open("rb+") as file:
        file.truncate(0)
    for name in ("links.csv", "metrics.csv"):
        (run / name).unlink()
    with pytest.raises(UserError, match="nothing to draw|no common target"):
        numbers(kind, folder)


ENERGY = (
    "edge,state,began_s,ended_s,joules,watts\n"
    "a,idle,0.0,,,2.0\nb,idle,0.0,,,2.0\na,compute,1.0,3.0,6.0,3.0\nb,send,6.0,7.0,1.0,1.0\n"
)


@pytest.fixture
def with_energy(folder: Path) -> Path:
    """Two edges idle at 2 W for 8 s; a computes with 6 J on top, b sends with 1 J."""
    (folder / "slow" / "energy.csv").write_text(ENERGY)
    return folder


def test_the_energy_of_the_edges(with_energy: Path) -> None:
    assert numbers("energy-use", with_energy).rows == [
        ("slow", 1, "idle", 32.0),
        ("slow", 1, "compute", 6.0),
        ("slow", 1, "send", 1.0),
        ("slow", 1, "receive", 0.0),
        ("slow", 1, "tail", 0.0),
    ]
    (axes,) = of_runs("energy-use", with_energy).axes
    bars = [(bar.get_y(), bar.get_height()) for bar in axes.patches]
    assert bars == [(0.0, 32.0), (32.0, 6.0), (38.0, 1.0)]


def test_joules_as_x(with_energy: Path) -> None:
    """At 0, 4, 7 and 8 s: 4 W, and 6 J from 4 s on, and 1 J from 7 s on."""
    assert numbers("accuracy", with_energy, x="joules")["at"] == [0.0, 22.0, 35.0, 39.0]
    assert numbers("time-to-target", with_energy, x="joules")["mean"] == [35.0]


def test_without_powers_there_are_no_joules(folder: Path) -> None:
    with pytest.raises(UserError, match=re.escape(f"--x joules: {AXES['joules'].missing}")):
        numbers("accuracy", folder, x="joules")
