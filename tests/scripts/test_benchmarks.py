"""Each benchmark runs in its smallest form, as a user starts it. No test asserts a speed."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from contextlib import nullcontext
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
from emulator.errors import BadValue, Unavailable

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
AGREEMENT = str(ROOT / "configs" / "agreement.toml")  # with several strategies
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
        ("pacing.py", ["--busy", "--rate", "0"], "--rate 0: expected a number above 0"),
        ("pacing.py", ["--busy", "--csv", "none/rates.csv"], "none is no folder"),
        ("agreement.py", ["--config", "none.toml"], "none.toml"),
        ("edges.py", ["--json", "none/rows.json"], "none is no folder"),
        ("edges.py", ["--against", "none"], "none: expected a checkout"),
        ("edges.py", ["--config", AGREEMENT], "expected one strategy and one seed, found"),
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
    config = Path(AGREEMENT)
    experiment = load(config, ["evaluation.every_versions=0"])
    learned = learning(experiment, config.parent)
    for index, entry in enumerate(experiment.strategies):
        run_virtual(learned, index, tmp_path / entry.name)
        arrived_s = np.array(module("agreement").trace(tmp_path / entry.name).arrived_s)
        assert len(arrived_s) > 20 and np.diff(arrived_s).min() >= 0.020


# ------------------------------------------------------------------ what is divided by what
def test_the_cpu_of_all_rounds_is_that_of_the_warm_up_too(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = module("protocol")
    raw, ours = protocol.RawRounds(1.0, 1.0), protocol.Outcome([1.0, 1.0], 6.0)
    monkeypatch.setattr(protocol, "raw_rounds", lambda *words: raw)
    monkeypatch.setattr(protocol, "measured", lambda *words: ours)
    monkeypatch.setattr(protocol, "settings", lambda *words: [])
    rows = {row.name: row.value for row in protocol.measure("2x0.25", 3)}
    assert rows["coordinator CPU 2x0.25 MB"] == 2000


def test_the_last_piece_counts_though_it_is_shorter(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 kB are two pieces of 300 kB, on two links, down and up: eight in 4 s."""
    pacing = module("pacing")
    raw = module("reference").RawRounds(1.0, 4.0)
    monkeypatch.setattr(pacing, "piece_bytes", lambda *words: 300_000)
    monkeypatch.setattr(pacing, "raw_rounds", lambda *words: raw)
    monkeypatch.setattr(pacing, "paced", lambda *words: pacing.Cost(4.0, 8, 1.0, 0.0))
    rows, _ = pacing.measure("2x2", 1, 1, None)
    assert [row.value for row in rows[:3]] == [500_000, 500_000, 1]


# ------------------------------------------------------------------ what cannot be measured
def test_a_carrier_that_this_user_may_not_use_is_a_row(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(cell: object) -> bool:
        raise Unavailable("lab: needs root")

    pacing = module("pacing")
    carriers = {"few": {"few": lambda cell: cell.links < 9}, "tc": {"tc": refused}}
    monkeypatch.setattr(pacing, "CARRIERS", carriers)
    monkeypatch.setattr(pacing, "busy_cores", lambda extent: nullcontext())
    rows = [row.value for row in pacing.busy_rows(list(carriers), [2.0], None)]
    assert (rows[0], rows[2:]) == (5, ["not measured: lab: needs root"])


@pytest.mark.processes
def test_a_proxy_that_does_not_start_is_one_line(module: Callable[[str], ModuleType]) -> None:
    proxies = module("emulator_proxy")
    with pytest.raises(BadValue, match="--up no: ended with status 2"):
        proxies.running(["--up", "no"]).__enter__()


@pytest.mark.processes
def test_the_other_checkout_runs_its_own_code(
    module: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summary = (
        "{'began_unix_s': 0, 'fidelity': {'verdict': 'theirs', 'reasons': [], 'transfers': 1,"
        " 'transfer_lag_ms': {'p99': 0}}}"
    )
    program = (
        "import json, pathlib, sys",
        "folder = pathlib.Path(sys.argv[sys.argv.index('--out') + 1], 'name', 'label')",
        "folder.mkdir(parents=True)",
        f"(folder / 'summary.json').write_text(json.dumps({summary}))",
    )
    (tmp_path / "edgefl").mkdir()
    (tmp_path / "edgefl" / "__init__.py").touch()
    (tmp_path / "edgefl" / "cli.py").write_text("\n".join(program))
    monkeypatch.chdir(ROOT)
    edges = module("edges")
    monkeypatch.setattr(edges, "WATCH_S", 0.05)
    rows = edges.measured(tmp_path, Path("x.toml"), [], "")
    assert rows[0].value == "theirs"
