"""What the shell completes: keys and values of a config, kinds of figures, strategies of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import CONFIGS
from typer.testing import CliRunner

from edgefl.cli import app

QUICKSTART = str(CONFIGS / "quickstart.toml")


def bash(*words: str) -> list[str]:
    """Return what bash gets for these words; the last one has been begun."""
    asked = {
        "_EDGEFL_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(["edgefl", *words]),
        "COMP_CWORD": str(len(words)),
    }
    told = CliRunner().invoke(app, [], prog_name="edgefl", env=asked)
    assert told.stderr == ""
    return told.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([QUICKSTART, "training.epo"], ["training.epochs=", "training.epochs=1"]),
        # bash splits words at "="
        ([QUICKSTART, "training.optimizer", "=", "ad"], ["adamw"]),
        ([QUICKSTART, "training.drop_last", "="], ["true", "false"]),
        (
            [QUICKSTART, "seed", "=", "3", "partition.al"],
            ["partition.alpha=", "partition.alpha=number"],
        ),
        (
            [QUICKSTART, "strategies.fedasync.al"],
            ["strategies.fedasync.alpha=", "strategies.fedasync.alpha=0.6"],
        ),
        ([QUICKSTART, "strategies.fedasync.selection", "=", "oo"], ["oort"]),
        (
            [str(CONFIGS / "heterogeneous.toml"), "groups.dsl.links.up"],
            ["groups.dsl.links.up_mbit_s=", "groups.dsl.links.up_mbit_s=number"],
        ),
        ([QUICKSTART, "nope."], []),
    ],
)
def test_keys_and_their_values(words: list[str], found: list[str]) -> None:
    assert bash("run", *words) == found


def test_without_a_beginning_there_are_the_basic_keys() -> None:
    found = bash("run", QUICKSTART, "")
    assert "training.epochs=" in found and "training.micro_batch_size=" not in found
    assert "training.micro_batch_size=" in bash("run", QUICKSTART, "training.")


def test_a_packaged_config_and_a_broken_one_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bash("check", "configs/quickstart.toml", "strategies.fedbuff.buffer")
    for text in ("x = ", "strategies = 3\ngroups = [1]\nmodel = 'x'", "extends = 'none.toml'"):
        Path("bad.toml").write_text(text)
        assert bash("check", "bad.toml", "seed") == ["seed=", "seeds="]


def test_kinds_of_figures_and_names() -> None:
    assert bash("plot", "runs/x", "--kind", "time") == ["time-to-target", "timeline"]
    assert bash("strategies", "wkafl-no") == [
        "wkafl-no-noniid",
        "wkafl-no-selection",
        "wkafl-no-staleness",
    ]
    assert bash("datasets", "cif") == bash("data", "get", "cif") == ["cifar10", "cifar100"]
    assert bash("configs", "configs/q") == ["configs/quickstart.toml"]


def test_a_baseline_is_a_strategy_of_the_runs(tmp_path: Path) -> None:
    for name in ("fedavg", "fedasync"):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text("")
        (folder / "events.jsonl").write_text("")
    runs = str(tmp_path / "runs")
    assert bash("compare", runs, "--baseline", "feda") == ["fedasync", "fedavg"]
    assert bash("report", runs, "--baseline", "fedav") == ["fedavg"]
    assert bash("compare", str(tmp_path / "none"), "--baseline", "f") == []
