"""``edgefl check``: its estimates agree with a real run."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import CONFIGS
from typer.testing import CliRunner

from edgefl.cli import app
from edgefl.commands import check
from edgefl.errors import UserError
from edgefl.hosts import processes
from edgefl.hosts.setup.learning import learning
from edgefl.hosts.virtual.run import run_virtual
from edgefl.loading.file import load

QUICKSTART = CONFIGS / "quickstart.toml"
SHORT = ["stop.emulated_s=3", "edges.count=4"]


@pytest.mark.parametrize("index", [0, 1, 2])
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
