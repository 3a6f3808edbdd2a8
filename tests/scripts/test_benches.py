"""Messages and comparisons of the benchmarks, and the gaps between arrivals in agreement.toml."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import orjson
import pytest
from paths import BENCHMARKS, ROOT

from edgefl.errors import UserError
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.loading.file import load


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("table")


@pytest.fixture
def agreement(common: ModuleType) -> ModuleType:
    return importlib.import_module("agreement")


@pytest.fixture
def machines(common: ModuleType) -> ModuleType:
    return importlib.import_module("machines")


@pytest.mark.parametrize(
    ("value", "goal", "passed"),
    [
        (6.0, "<= 6", True),
        (6.1, "<= 6", False),
        (0.9, ">= 0.9", True),
        (None, "<= 6", False),
        (float("nan"), "<= 6", False),
        ("faithful", None, None),
    ],
)
def test_a_goal_is_reached_or_not(
    common: ModuleType, value: float | str | None, goal: str | None, passed: bool | None
) -> None:
    assert common.Row("speed", value, "s", goal).passed is passed


def test_the_file_holds_every_row(
    common: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common.report(
        "Two",
        "a machine",
        [common.Row("slow", 7.0, "s", "<= 6"), common.Row("verdict", "faithful")],
        tmp_path / "rows.json",
    )
    assert orjson.loads((tmp_path / "rows.json").read_bytes()) == [
        {"name": "slow", "value": 7.0, "unit": "s", "goal": "<= 6", "pass": False},
        {"name": "verdict", "value": "faithful", "unit": "", "goal": None, "pass": None},
    ]
    shown = capsys.readouterr().out
    assert shown.startswith("a machine\n") and "FAIL" in shown


def test_versions_are_compared_in_both_ways(agreement: ModuleType) -> None:
    weights = np.zeros(3, np.float32)
    virtual = agreement.Trace(
        {1: 2.0, 2: 4.0, 3: 6.0},
        [1.0, 2.0, 2.015],
        [["a"], ["b"]],
        {},
        weights,
        "faithful",
        [("a", 0, 0), ("b", 1, 0), ("a", 2, 1)],
    )
    wall = agreement.Trace(
        {1: 2.1, 2: 4.0},
        [1.0, 2.1],
        [["a"], ["c"], ["a"]],
        {1: 1.05, 2: 2.01},
        weights,
        "faithful",
        [("a", 0, 0), ("b", 1, 1)],
    )
    found = agreement.moments(
        wall, virtual, speed=2.0
    )  # 1.05 real s are 2.1 emulated ones, 2.01 are 4.02
    assert [moment.between_percent for moment in found] == pytest.approx([5.0, 0.0])
    assert [moment.real_percent for moment in found] == pytest.approx([0.0, 0.5])
    rows = {
        row.name.removeprefix("x: "): (row.value, row.passed)
        for row in agreement.rows_of("x", wall, virtual, found)
    }
    assert rows["smallest gap between arrivals, virtual clock"] == (pytest.approx(15.0), False)
    assert rows["emulated moment of a version, wall against virtual, median"] == (
        pytest.approx(2.5),
        False,
    )
    assert rows["real against emulated moment of a version, worst"] == (pytest.approx(0.5), True)
    assert rows["difference in the number of versions"] == (1, True)
    assert rows["selections compared"] == (2, None)
    assert rows["selections that differ"] == (1, False)
    assert rows["updates (edge, version, staleness) that differ"] == (1, False)
    assert rows["final weights"] == ("bit-equal", None)


def test_a_launch_is_compared_with_a_run_on_one_machine(
    agreement: ModuleType, machines: ModuleType
) -> None:
    weights = np.zeros(3, np.float32)
    here = agreement.Trace(
        {1: 2.0, 2: 4.0},
        [1.0, 2.0, 4.0],
        [["a"], ["b"]],
        {1: 2.001, 2: 4.0},
        weights,
        "faithful",
        [("a", 0, 0), ("b", 0, 0), ("a", 1, 1)],
    )
    launched = agreement.Trace(
        {1: 2.0, 2: 4.0},
        [1.0, 2.003, 4.03],
        [["a"], ["b"]],
        {1: 2.0, 2: 4.007},
        weights + 1,
        "strained: late",
        [("a", 0, 0), ("b", 0, 0), ("a", 1, 0)],
    )
    rows = {
        row.name.removeprefix("x: "): (row.value, row.passed)
        for row in machines.rows_of("x", launched, here)
    }
    assert rows["the launch is faithful (strained: late)"] == (0, False)
    assert rows["the run here is faithful (faithful)"] == (1, True)
    assert rows["selections that differ"] == (0, True)
    assert rows["updates (edge, version, staleness) that differ"] == (1, False)
    assert rows["final weights"] == ("differ", None)
    name = "emulated moment of an update: difference"
    assert rows[f"{name}, median"] == (pytest.approx(3.0), True)
    assert rows[f"{name}, worst"] == (pytest.approx(30.0), False)
    name = "real moment of a version: difference"
    assert rows[f"{name}, median"] == (pytest.approx(4.0), True)
    assert rows[f"{name}, worst"] == (pytest.approx(7.0), True)


def test_a_launch_on_native_machines_is_not_compared(machines: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "lab.toml").write_text(
        "[defaults]\nvia = 'local'\nedges = 8\n[[hosts]]\nhost = 'pi'\nlinks = 'native'\n"
    )
    with pytest.raises(UserError, match=r"lab.toml: expected emulated links and devices"):
        machines.compared(tmp_path / "lab.toml", ROOT / "configs" / "agreement.toml", [], tmp_path)


def test_arrivals_of_the_agreement_config_keep_their_distance(
    agreement: ModuleType, tmp_path: Path
) -> None:
    config = ROOT / "configs" / "agreement.toml"
    experiment = load(config, ["evaluation.every_versions=0"])
    learned = learning(experiment, config.parent)
    for index, entry in enumerate(experiment.strategies):
        run_virtual(learned, index, tmp_path / entry.name)
        arrived_s = np.array(agreement.trace(tmp_path / entry.name).arrived_s)
        assert len(arrived_s) > 20 and np.diff(arrived_s).min() >= 0.020
