"""training.engine: what is computed by the compiled step, and that it gives torch's results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import torch
from pools import learned_of
from safetensors.numpy import load_file

from edgefl.clocks.setup.learning import Learning
from edgefl.clocks.virtual.run import run_virtual
from edgefl.clocks.virtual.run_batch import open_pool
from edgefl.errors import UserError
from edgefl.results.read import read_csv

DIGITS: dict[str, Any] = {
    "task": None,
    "data": {"name": "digits"},
    "model": {"name": "mlp", "hidden": [8]},
    "edges": {"count": 6},
    "devices": {"samples_per_s": 400.0, "slowest_ratio": 4.0},
    "links": {"up_mbit_s": 1.0, "down_mbit_s": 3.0, "latency_ms": 10.0},
    "stop": {"updates": 12},
    "evaluation": {"every_versions": 3},
}
ASYNC = {"strategy": "fedasync", "concurrency": 4}
ASKING = {"strategy": "fedasmu", "period_s": 1.0, "clients_per_trigger": 3}
NOISY = {"strategy": "../support/merged_strategies.py:Noisy", "clients_per_round": 4}
MOON = {"strategy": "moon"}


def learned(strategy: dict[str, Any], engine: str, **more: Any) -> Learning:
    training = {"epochs": 2, "batch_size": 16, "engine": engine, **more.pop("training", {})}
    return learned_of(**{**DIGITS, "training": training, "strategies": [strategy], **more})


def played(folder: Path, of: Learning, workers: int = 1) -> dict[str, Any]:
    with open_pool(of, workers) as pool:
        return run_virtual(of, 0, folder, None, pool)


def losses(folder: Path) -> list[float]:
    return [float(row["test_loss"]) for row in read_csv(folder / "metrics.csv")]


@pytest.mark.parametrize(
    ("strategy", "more"),
    [
        (ASYNC, {}),
        ({"strategy": "fedavg"}, {"training": {"optimizer": "adamw", "learning_rate": 0.01}}),
        ({"strategy": "feddyn"}, {}),
        (ASKING, {}),
        (ASYNC, {"model": {"name": "cnn"}, "stop": {"updates": 4}}),
    ],
    ids=["plain", "adamw", "gradient-hook", "merges", "convolutions"],
)
@pytest.mark.slow
def test_both_engines_give_the_same_run_but_for_the_last_bits(
    tmp_path: Path, strategy: dict[str, Any], more: dict[str, Any]
) -> None:
    told = [played(tmp_path / name, learned(strategy, name, **more)) for name in ("torch", "auto")]
    assert [summary["engine"].partition(":")[0] for summary in told] == ["torch", "compiled"]
    assert losses(tmp_path / "torch") == pytest.approx(losses(tmp_path / "auto"), rel=2e-3)
    found, wanted = (load_file(tmp_path / name / "model.safetensors") for name in ("auto", "torch"))
    assert found.keys() == wanted.keys()
    for name in found:
        assert np.linalg.norm(found[name] - wanted[name]) <= 2e-3 * np.linalg.norm(wanted[name])
    # times do not depend on weights
    links = [(tmp_path / name / "links.csv").read_bytes() for name in ("auto", "torch")]
    assert links[0] == links[1]


@pytest.mark.slow
def test_what_needs_torch_runs_in_torch_and_says_why(tmp_path: Path) -> None:
    summary = played(tmp_path / "run", learned(MOON, "auto"))
    assert summary["engine"] == "torch: its local rule adds a term to the loss"
    stored = orjson.loads((tmp_path / "run/summary.json").read_bytes())
    assert stored["engine"] == summary["engine"]


@pytest.mark.parametrize(
    ("strategy", "more", "why"),
    [
        (MOON, {}, "moon needs torch: its local rule adds a term to the loss"),
        (ASYNC, {"model": {"name": "cnn", "norm": "batch"}}, "layer norm1 is a BatchNorm2d"),
        (ASYNC, {"training": {"tasks_at_once": 3}}, "training.tasks_at_once = 3"),
    ],
)
def test_a_compiled_step_that_cannot_be_had_is_refused(
    tmp_path: Path, strategy: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why) as told:
        run_virtual(learned(strategy, "compiled", **more), 0, tmp_path / "run")
    assert "\n" not in str(told.value) and 'training.engine = "compiled"' in str(told.value)
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_rules_that_compute_with_torch_have_one_thread_of_it(tmp_path: Path) -> None:
    """Sums of long vectors depend on the number of threads, and workers have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        played(tmp_path / "run", learned(NOISY, "compiled"))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


WITHOUT_TORCH = """
import sys
from edgefl.cli import main
sys.argv[1:] = ["run", sys.argv[1], "--clock", "virtual", "--out", sys.argv[2]]
try:
    main()
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.processes
def test_a_run_of_a_small_network_does_not_load_torch(tmp_path: Path) -> None:
    config = tmp_path / "small.toml"
    config.write_text(
        'data.name = "digits"\nmodel.name = "mlp"\nedges.count = 3\nstop.versions = 2\n'
        '[[strategies]]\nstrategy = "fedasync"\n[[strategies]]\nstrategy = "fedavg"\n'
    )
    command = [sys.executable, "-c", WITHOUT_TORCH, str(config), str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines()[-1] == "False", done.stdout + done.stderr
