"""A small run on disk, row by row: two edges, two updates, one version each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import tomli_w

CONFIG: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "edges": {"names": ["a", "b"]},
    "links": {"up_mbit_s": 1.0, "down_mbit_s": 2.0},
    "stop": {"versions": 4},
    "evaluation": {"target_accuracy": 0.6},
    "strategies": [{"strategy": "fedasync"}],
    "run": {"strategy": "fedasync", "clock": "virtual"},
}


def assigned(edge: str, task: int) -> dict[str, Any]:
    return {"do": "assign", "edges": [edge], "numbers": {}, "tasks": [task]}


def arrived(t: float, edge: str, task: int, version: int, base: int) -> dict[str, Any]:
    return {
        "t": t,
        "event": "update_arrived",
        "version": version,
        "edge": edge,
        "task": task,
        "base_version": base,
        "numbers": {"samples": 5.0, "alpha": 0.5},
        "decisions": [
            {"do": "report", "values": {"alpha": 0.5 / (version + 1)}, "edge": edge},
            {"do": "publish", "version": version + 1},
            assigned(edge, task + 2),
        ],
    }


BEGIN: list[dict[str, Any]] = [
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "a", "samples": 5, "decisions": []},
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "b", "samples": 7, "decisions": []},
    {
        "t": 0.0,
        "event": "run_started",
        "version": 0,
        "decisions": [assigned("a", 0), assigned("b", 1)],
    },
    {"t": 1.0, "fact": "task_started", "edge": "a", "task": 0},
    {"t": 1.0, "fact": "task_started", "edge": "b", "task": 1},
    {"t": 2.0, "fact": "update_ready", "edge": "a", "task": 0},
]
MIDDLE = [
    arrived(3.0, "a", 0, 0, 0),
    {"t": 3.5, "fact": "update_ready", "edge": "b", "task": 1},
    {"t": 3.6, "fact": "fault", "kind": "corrupt", "edge": "b"},
]
END = [arrived(4.5, "b", 1, 1, 0), {"t": 5.0, "fact": "finished", "reason": "versions"}]
LINKS = ["edge,direction,kind,bytes,offered_s,scheduled_s,finished_s"]
LINKS_BEGIN = ["a,down,task,125000,0.0,1.0,1.0", "b,down,task,125000,0.0,1.0,1.0"]
LINKS_END = ["a,up,update,125000,2.0,3.0,3.0", "b,up,update,125000,3.5,4.5,4.5"]
METRICS = ["version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down"]


def write(run: Path, config: dict[str, Any] | None = None) -> Path:
    """Write the beginning of the run."""
    run.mkdir(parents=True)
    (run / "config.toml").write_text(tomli_w.dumps(CONFIG | (config or {})))
    add_events(run, BEGIN)
    add(run / "links.csv", LINKS + LINKS_BEGIN)
    add(run / "metrics.csv", [*METRICS, "0,0.0,0.1,2.0,2.1,0.1,0,0"])
    return run


def go_on(run: Path) -> None:
    """Write the rows in the middle."""
    add_events(run, MIDDLE)
    add(run / "links.csv", LINKS_END[:1])
    add(run / "metrics.csv", ["1,3.0,0.2,1.0,1.1,0.7,125000,250000"])


def end(run: Path) -> None:
    """Write the last rows, and the summary."""
    add_events(run, END)
    add(run / "links.csv", LINKS_END[1:])
    fidelity = {"verdict": "faithful", "reasons": []}
    summary = {"finished": "versions", "warnings": ["one"], "fidelity": fidelity}
    (run / "summary.json").write_bytes(orjson.dumps(summary))


def add_events(run: Path, rows: list[dict[str, Any]]) -> None:
    add(run / "events.jsonl", [orjson.dumps(row).decode() for row in rows])


def add(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
