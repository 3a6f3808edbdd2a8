"""Several seeds as a user runs them: the same bytes as one by one, with any number of workers;
Ctrl-C; a killed run; bad input.
"""

from __future__ import annotations

import csv
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import processes
import psutil
import pytest
from builders import EXAMPLES
from processes import PATIENCE_S, happened, wait_for

from edgefl import cli

pytestmark = pytest.mark.alone

TASK = f"""
name = "s"
task = "{EXAMPLES / "my_task.py"}:build"
partition = {{name = "dirichlet", alpha = 0.5}}
edges = {{count = 3}}
devices = {{samples_per_s = 200.0, slowest_ratio = 3.0}}
links = {{up_mbit_s = 0.01, down_mbit_s = 0.04}}
stop = {{versions = 6}}
evaluation = {{target_accuracy = 0.6}}
strategies = [{{strategy = "fedasync", concurrency = 3}}, {{strategy = "fedavg"}}]
"""
LONG = ("stop.versions=100000000", "evaluation.every_versions=1000")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "s.toml").write_text(TASK)
    return tmp_path


def start(
    started: list[subprocess.Popen[str]],
    *words: str,
    command: tuple[str, ...] = ("run", "s.toml", "--clock", "virtual"),
) -> subprocess.Popen[str]:
    return processes.start(started, *command, *words)


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def here(*words: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The exit status of `edgefl run s.toml --clock virtual WORDS` in this process, which must not
    fork.
    """
    monkeypatch.setattr(sys, "argv", ["edgefl", "run", "s.toml", "--clock", "virtual", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def summary(directory: Path) -> dict[str, Any]:
    return orjson.loads((directory / "summary.json").read_bytes())


def told(folder: Path) -> dict[str, tuple[bytes, ...]]:
    """What must be equal, by run directory."""
    names = ("events.jsonl", "links.csv", "model.safetensors", "config.toml")
    return {
        str(path.parent.relative_to(folder)): tuple(
            (path.parent / name).read_bytes() for name in names
        )
        for path in folder.rglob("events.jsonl")
    }


# ------------------------------------------------------------------ layout and bytes
def test_a_seed_among_others_gives_the_same_bytes_as_alone(
    folder: Path,
    started: list[subprocess.Popen[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside = start(
        started, "seeds=[1, 4]", "--workers", "3", "--out", "beside"
    )  # three runs at once, then the three workers train for the fourth run
    assert here("seeds=[4]", "--out", "alone", monkeypatch=monkeypatch) == 0
    alone = told(folder / "alone" / "s")
    assert set(alone) == {"fedasync", "fedavg"}, "a single seed lies where it always lay"
    assert (
        not (folder / "alone" / "s" / "comparison_seeds.csv").exists()
        and "±" not in capsys.readouterr().out
    )
    assert here("seeds=[1, 4]", "--out", "serial", monkeypatch=monkeypatch) == 0
    serial = told(folder / "serial" / "s")
    assert set(serial) == {f"{name}/seed{seed}" for name in alone for seed in (1, 4)}
    assert {name: serial[f"{name}/seed4"] for name in alone} == alone
    assert serial["fedasync/seed1"][0] != serial["fedasync/seed4"][0]
    printed = capsys.readouterr().out
    assert "fedasync seed 1: 6 versions" in printed and "2 seeds" in printed and "±" in printed
    status, out, err = end(beside)
    assert (status, err) == (0, "") and "fedavg seed 4: 6 versions" in out
    assert told(folder / "beside" / "s") == serial
    with (folder / "beside" / "s" / "comparison.csv").open(newline="") as file:
        assert [(row["name"], row["seed"]) for row in csv.DictReader(file)] == [
            (name, seed) for name in ("fedasync", "fedavg") for seed in ("1", "4")
        ]
    assert (folder / "beside" / "s" / "comparison_seeds.csv").exists() and (
        folder / "beside" / "s" / "figures" / "accuracy.png"
    ).exists()


@pytest.mark.processes
def test_a_new_run_takes_the_place_of_the_old_one_whatever_its_seeds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = folder / "runs" / "s"
    for words, left in (
        (("seed=3",), {"fedasync", "fedavg"}),
        (("seeds=[1, 2]",), {"fedasync/seed1", "fedasync/seed2", "fedavg/seed1", "fedavg/seed2"}),
        (("seeds=[2, 3]",), {"fedasync/seed2", "fedasync/seed3", "fedavg/seed2", "fedavg/seed3"}),
        (("seed=3",), {"fedasync", "fedavg"}),
    ):
        assert here(*words, "stop.versions=2", monkeypatch=monkeypatch) == 0
        assert set(told(runs)) == left
    assert not (runs / "comparison_seeds.csv").exists()
    assert [path.name for path in (runs / "fedavg").iterdir() if path.is_dir()] == []


# ------------------------------------------------------------------ the end, asked for or not
def test_ctrl_c_keeps_what_there_is(folder: Path, started: list[subprocess.Popen[str]]) -> None:
    process = start(started, "seeds=[1, 2, 3]", "--workers", "2", *LONG)
    runs = [
        folder / "runs" / "s" / name / "seed1" for name in ("fedasync", "fedavg")
    ]  # seed by seed
    wait_for(lambda: all(happened(run, event="update_arrived") for run in runs))
    forks = psutil.Process(process.pid).children()
    assert len(forks) == 2, "both cores are used"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, out, err = end(process)
    assert (
        (status, "Traceback" in err) == (130, False)
        and "next: edgefl run --resume runs/s" in out
        and "2 seeds" not in out
    )
    assert [summary(run)["finished"] for run in runs] == ["interrupted"] * 2
    assert set(told_dirs(folder)) == {"fedasync/seed1", "fedavg/seed1"}, "no other was begun"
    assert wait_for(lambda: not any(fork.is_running() for fork in forks))


def test_after_a_bug_no_other_run_is_begun(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    (folder / "broken.py").write_text(
        "from edgefl.strategies.fedavg import FedAvg\n\n\nclass Broken(FedAvg):\n    def"
        " aggregate(self, updates):\n        return updates[99 if self.version else 0].weights\n"
    )
    status, out, err = end(
        start(
            started,
            "seeds=[1, 2, 3, 4]",
            "--workers",
            "2",
            "strategies=[{strategy='broken.py:Broken'}]",
        )
    )
    assert (
        status == 1
        and "IndexError" in err
        and "broken seed 1 died (exit status 1)" in err
        and "unfinished" in out
    )
    assert (
        "edgefl: not run because of this: " in err
        and "broken seed 4" in err.rpartition("not begun")[2]
    )
    assert len(told_dirs(folder)) <= 3, "one more may have begun beside the first"


def told_dirs(folder: Path) -> list[str]:
    runs = folder / "runs" / "s"
    return [str(path.parent.relative_to(runs)) for path in runs.rglob("events.jsonl")]


# ------------------------------------------------------------------ the wall clock
def test_edges_elsewhere_stay_for_every_seed(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    """One edge takes the coordinator's config and only allows its own task. The other compares the
    coordinator's config with its own.
    """
    text = (
        TASK.replace("count = 3", "count = 2")
        .replace("versions = 6", "versions = 2")
        .replace("samples_per_s = 200.0", "samples_per_s = 1000.0")
    )
    (folder / "s.toml").write_text("seeds = [1, 2]\n" + text)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    coordinator = start(
        started,
        f"network.port={port}",
        "strategies=[{strategy='fedavg'}]",
        command=("coordinator", "s.toml"),
    )
    join = ("edge", "--connect", f"tcp://127.0.0.1:{port}", "--id")
    edges = [
        start(started, command=(*join, "e000", "--allow-task", f"{EXAMPLES / 'my_task.py'}:build")),
        start(started, command=(*join, "e001", "--config", "s.toml")),
    ]
    status, out, err = end(coordinator)
    assert (status, err) == (0, "") and "fedavg seed 2: 2 versions" in out and "2 seeds" in out
    for edge in edges:
        status, out, err = end(edge)
        assert (status, err) == (0, "") and out.count("the run is over (versions)") == 2
    assert [
        summary(folder / "runs" / "s" / "fedavg" / f"seed{seed}")["seed"] for seed in (1, 2)
    ] == [1, 2]
    assert sorted(path.name for path in (folder / "runs" / "s").glob("*.log")) == [
        "edges_seed1.log",
        "edges_seed2.log",
    ]


# ------------------------------------------------------------------ bad input
@pytest.mark.parametrize(
    ("words", "line"),
    [
        pytest.param(
            "--clock wall --workers 2",
            "--workers, --engine and --ray-address are for --clock virtual",
            marks=pytest.mark.processes,
        ),
        (
            "--clock virtual --ray-address auto",
            "--ray-address auto: expected --engine ray with it",
        ),
        (
            "--clock virtual --engine ray --ray-address here",
            "--ray-address here: expected auto or HOST:PORT",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_begun(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    line: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["edgefl", "run", "s.toml", *words.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    out, err = capsys.readouterr()
    assert (
        (ended.value.code, out) == (2, "")
        and line in err
        and err.startswith("edgefl: ")
        and err.count("\n") == 1
    )
    assert [path.name for path in folder.iterdir()] == ["s.toml"]
