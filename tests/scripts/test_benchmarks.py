"""Each benchmark runs in its smallest form, as a user starts it. No test asserts a speed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import orjson
import pytest
from paths import BENCHMARKS, ROOT
from processes import SMALL
from script_runs import ran

from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.config.file import load

pytestmark = [pytest.mark.rest, pytest.mark.alone]

SMALLEST = {
    "agreement.py": ["--quick"],
    "edges.py": ["--config", "small.toml"],
    "emulator_accuracy.py": ["--tiny"],
    "evil_edges.py": ["--seconds", "0.5", "--attack", "offers"],
    "house.py": ["--no-walks"],
    "pacing.py": [
        *("--case", "2x2", "--case", "2x2", "--rounds", "1", "--turns", "1"),
        *("--against", str(ROOT)),
    ],
    "protocol.py": ["--case", "2x0.25", "--rounds", "3"],
    "training.py": ["--quick"],
    "virtual.py": ["--quick", "--turns", "1"],
}
CHILDREN = {"emulator_watch.py"}  # started by another program


def test_every_benchmark_has_a_smallest_form() -> None:
    programs = {
        path.name
        for path in BENCHMARKS.glob("*.py")
        if 'if __name__ == "__main__"' in path.read_text()
    }
    assert programs - CHILDREN == SMALLEST.keys()


@pytest.mark.processes
@pytest.mark.parametrize("name", sorted(SMALLEST))
def test_a_benchmark_leaves_its_rows(name: str, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    done = ran(BENCHMARKS / name, [*SMALLEST[name], "--json", "rows.json"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "rows: rows.json" in done.stderr
    rows = orjson.loads((tmp_path / "rows.json").read_bytes())
    assert any(isinstance(row["value"], int | float) for row in rows)
    for row in rows:
        assert row.keys() == {"name", "value", "unit", "goal", "pass"}
        if isinstance(row["value"], int | float):
            assert math.isfinite(row["value"])
        else:  # a word, or a number that this machine cannot measure, has no goal
            assert row["goal"] is None


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("training.py", ["--turns", "0"], "--turns 0: expected 1 or more"),
        ("pacing.py", ["--against", "none"], "none: expected a checkout"),
        ("agreement.py", ["--config", "none.toml"], "none.toml"),
    ],
)
def test_wrong_input_is_one_line(
    name: str, words: list[str], expected: str, tmp_path: Path
) -> None:
    done = ran(BENCHMARKS / name, words, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and expected in done.stderr


# ------------------------------------------------------------------ what decides about a goal
@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


def test_a_goal_is_reached_or_not(module: Callable[[str], ModuleType]) -> None:
    row = module("table").Row
    assert [row("speed", value, "s", "<= 6").passed for value in (6.0, 6.1, None, math.nan)] == [
        *(True, False, False, False)
    ]
    assert row("verdict", "faithful").passed is None


def test_versions_are_compared_in_both_ways(module: Callable[[str], ModuleType]) -> None:
    agreement = module("agreement")
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
    # 1.05 real s are 2.1 emulated ones, 2.01 are 4.02
    found = agreement.moments(wall, virtual, speed=2.0)
    rows = {
        row.name.removeprefix("x: "): row for row in agreement.rows_of("x", wall, virtual, found)
    }
    emulated = rows["emulated moment of a version, wall against virtual, median"]
    assert emulated.value == pytest.approx(2.5) and not emulated.passed
    real = rows["real against emulated moment of a version, worst"]
    assert real.value == pytest.approx(0.5) and real.passed
    assert rows["selections that differ"].value == 1
    assert rows["updates (edge, version, staleness) that differ"].value == 1
    assert rows["final weights"].value == "bit-equal"


def test_arrivals_of_the_agreement_config_keep_their_distance(
    module: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    config = ROOT / "configs" / "agreement.toml"
    experiment = load(config, ["evaluation.every_versions=0"])
    learned = learning(experiment, config.parent)
    for index, entry in enumerate(experiment.strategies):
        run_virtual(learned, index, tmp_path / entry.name)
        arrived_s = np.array(module("agreement").trace(tmp_path / entry.name).arrived_s)
        assert len(arrived_s) > 20 and np.diff(arrived_s).min() >= 0.020
