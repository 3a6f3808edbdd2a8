"""Runs for the worker pools, and their bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from builders import EXAMPLES, experiment

from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.pool.engine import Engine
from edgefl.clocks.virtual.run import run_virtual
from edgefl.results.read import read_csv

SPREAD: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 12},
}
KINDS = ("kill", "freeze", "slow")
FAULTS = [
    {"kind": kind, "every_s": 8.0, "for_s": 2.0, "for_random": True}
    | ({"factor": 0.3} if kind == "slow" else {})
    for kind in KINDS
]
RUNS: dict[str, dict[str, Any]] = {
    "plain": SPREAD | {"strategies": [{"strategy": "fedbuff", "concurrency": 3, "buffer_size": 2}]},
    "rich": (
        SPREAD
        | {
            "strategies": [{"strategy": "../support/pool_strategies.py:Rich", "concurrency": 3}],
            "training": {"momentum": 0.5},
        }
    ),
    "images in channels-last order": (
        SPREAD
        | {
            "task": "../support/image_task.py:build",
            "strategies": [{"strategy": "moon", "clients_per_round": 3}],
            "stop": {"versions": 4},
        }
    ),
    "two vectors and a memory": (
        SPREAD | {"strategies": [{"strategy": "fedac", "concurrency": 3, "buffer_size": 2}]}
    ),
    "called off": {
        "edges": {"names": ["a"]},
        "devices": {"samples_per_s": 100.0},
        "stop": {"versions": 3},
        "strategies": [{"strategy": "../support/own_strategies.py:Hasty", "period_s": 1.0}],
    },
    "faults": (
        SPREAD
        | {
            "strategies": [{"strategy": "../support/pool_strategies.py:Rich"}],
            "faults": FAULTS,
            "network": {"liveness_s": 1.5},
            "stop": {"versions": 30},
        }
    ),
}
LINKS = {"up_mbit_s": 0.01, "down_mbit_s": 0.04, "latency_ms": 10.0}


def learned_of(**sections: Any) -> Learning:
    return learning(experiment(**{"task": "my_task.py:build", "links": LINKS} | sections), EXAMPLES)


def bytes_of(directory: Path) -> list[Any]:
    """Return all results of a run except wall seconds."""
    rows = [
        {key: value for key, value in row.items() if key != "wall_s"}
        for row in read_csv(directory / "metrics.csv")
    ]
    return [
        *(
            (directory / name).read_bytes()
            for name in ("events.jsonl", "links.csv", "model.safetensors")
        ),
        rows,
    ]


def bytes_with(
    folder: Path,
    learned: Learning,
    pool: Engine | None,
    progress: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    run_virtual(learned, 0, folder, progress, pool)
    return bytes_of(folder)
