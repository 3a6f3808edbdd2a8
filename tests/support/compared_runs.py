"""Small run directories by hand for tests that compare: config, evaluations, summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builders import experiment

from edgefl.loading.file import dump
from edgefl.results.read import read_csv
from edgefl.results.summary import outcome

HEAD = "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
TARGET = 0.8


def evaluated_run(
    directory: Path,
    seed: int,
    accuracies: Sequence[float],
    step_s: float = 1.0,
    killed: bool = False,
    target: float | None = TARGET,
    config: dict[str, Any] | None = None,
    **facts: Any,
) -> Path:
    """Write a run with one evaluation per version, ``step_s`` apart, of 1 kB up and 2 kB down each.

    ``killed``: without a summary, and with a torn last line. ``facts``: of summary.json.
    """
    directory.mkdir(parents=True)
    rows = [
        f"{v},{v * step_s:.9f},{v * step_s:.3f},0.5,0.5,{accuracy},{1000 * v},{2000 * v}\n"
        for v, accuracy in enumerate(accuracies)
    ]
    (directory / "metrics.csv").write_text(HEAD + "".join(rows) + "99,9" * killed)
    evaluation = {} if target is None else {"target_accuracy": target}
    sections = {"seed": seed, "evaluation": evaluation} | (config or {})
    text = dump(experiment(**sections), {"run": {"strategy": "fedavg", "clock": "virtual"}})
    (directory / "config.toml").write_text(text)
    if killed:
        (directory / "events.jsonl").write_text('{"t": 1.0, "fact": "task_sta')
        return directory
    versions = len(accuracies) - 1
    summary = {
        "strategy": "fedavg",
        "clock": "virtual",
        "seed": seed,
        "finished": "versions",
        "versions": versions,
        "updates_received": versions,
        "updates_applied": versions,
        "updates_discarded": {},
        "emulated_s": versions * step_s,
        "wall_s": 1.0,
        **outcome(read_csv(directory / "metrics.csv"), target),
        "bytes_up": 1000 * versions,
        "bytes_down": 2000 * versions,
        "staleness": {"0": versions},
        "warnings": [],
        "fidelity": {"verdict": "faithful", "reasons": []},
    }
    (directory / "summary.json").write_text(json.dumps(summary | facts))
    return directory
