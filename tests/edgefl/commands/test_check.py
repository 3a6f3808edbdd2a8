"""``edgefl check``, ``jobs`` and ``profile``: what they say about a run before or after it."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import CONFIGS
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.clocks import processes
from edgefl.clocks.setup.learning import learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.commands import check
from edgefl.config.file import load
from edgefl.errors import UserError
from emulator.calibrate import Timing

QUICKSTART = CONFIGS / "quickstart.toml"
SHORT = ["stop.emulated_s=3", "edges.count=4"]


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.slow
def test_the_estimate_has_the_times_and_bytes_of_the_run(index: int, tmp_path: Path) -> None:
    learned = learning(load(QUICKSTART, SHORT), None)
    found = check.estimate(learned, index)
    done = run_virtual(learned, index, tmp_path)
    assert (found.emulated_s, found.versions, found.updates, found.share) == (
        done["emulated_s"],
        done["versions"],
        done["updates_applied"],
        1.0,
    )
    assert (found.bytes_up, found.bytes_down) == (done["bytes_up"], done["bytes_down"])


def test_an_estimate_that_takes_too_long_says_how_far_it_got(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check, "LONGEST_S", 0.0)
    learned = learning(load(QUICKSTART, ["stop.emulated_s=1000"]), None)
    found = check.estimate(learned, 0)
    assert 0 <= found.share < 1 and found.share == found.emulated_s / 1000


@pytest.mark.processes
def test_the_command_tells_all_and_leads_on() -> None:
    told = CliRunner().invoke(app, ["check", str(QUICKSTART), *SHORT], env={"COLUMNS": "120"})
    assert told.exit_code == 0, told.output
    for part in ("3 strategies, 4 edges, 1 seed", "1438 training samples", "4810 parameters"):
        assert part in told.output
    assert "memory: about" in told.output and "samples/s; speed" in told.output
    words = " ".join(SHORT)
    assert told.output.splitlines()[-1] == f"next: edgefl run {QUICKSTART} {words}"


def test_edges_that_do_not_fit_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "forked_bytes", lambda work: 10**15)
    with pytest.raises(UserError, match=r"fewer edges \(edges.count\)"):
        check.memory_line(learning(load(QUICKSTART, SHORT), None))


CONFIG = """
name = "timed"
seeds = [3, 4]
model = {name = "mlp", hidden = [16]}
edges = {count = 3}
unlabelled = {data = "held_out", size = 50}
stop = {versions = 2}
strategies = [
    {strategy = "fedecho", concurrency = 3, buffer_size = 2, distil_s = 0.0},
    {strategy = "zeno-plus-plus"},
    {strategy = "fedavg"},
]
"""


def test_each_sort_of_job_is_timed_and_its_cost_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timed.toml").write_text(CONFIG)
    ticks = iter(range(10**6))
    monkeypatch.setattr(check.psutil, "getloadavg", lambda: (2.25, 0.0, 0.0))
    monkeypatch.setattr(
        check,
        "measure",
        lambda run, repeat, warm_up: (run(), next(ticks), (10_000_000,) * repeat)[2],
    )
    said = CliRunner().invoke(app, ["jobs", str(tmp_path / "timed.toml"), "speed=0.5"])
    assert said.exit_code == 0, said.output
    assert said.output.splitlines()[:6] == [
        "fedecho, at speed 0.5:",
        "  predict: 10.0 ms, p90 10.0 ms (11 times); predict_s = 0.25 is enough",
        (
            "  distill: 10.0 ms, p90 10.0 ms (11 times); distil_s = 0 is too short for this host,"
            " at least 0.01"
        ),
        "  to paste: predict_s = 0.01, distil_s = 0.01",
        "zeno-plus-plus, at speed 0.5:",
        "  gradient: 10.0 ms, p90 10.0 ms (11 times); gradient_s = 0.1 is enough",
    ]
    assert (
        "other programs were running (load 2.2): on an idle host jobs may take less" in said.output
    )


@pytest.mark.parametrize(
    ("p90_ns", "speed", "cost_s"),
    [
        (50_000_001, 1.0, 0.11),
        (60_250_000, 2.0, 0.25),
    ],
)
def test_the_cost_is_twice_the_90th_percentile_rounded_up(
    p90_ns: int, speed: float, cost_s: float
) -> None:
    assert check.honest_s(Timing(1.0, (p90_ns,) * 10), speed) == pytest.approx(cost_s)


def test_a_config_without_jobs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text(
        'name = "plain"\nedges = {count = 3}\nstop = {versions = 2}\nstrategies = [{strategy ='
        ' "fedavg"}]\n'
    )
    with pytest.raises(UserError, match="none of its strategies has jobs"):
        check.jobs(tmp_path / "plain.toml")
