"""A small recorded run with numbers that are easy to check by hand.

Edge a trains for 2 s and edge b for 5 s; a model takes 1 s down and 1 s up. So a sends updates at
3 s and 7 s, and b at 6 s:

    a: down 0-1, train 1-3, up 3-4 (version 1), down 4-5, train 5-7, up 7-8 (version 3)
    b: down 0-1, train 1-6, up 6-7 (version 2)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

UP, DOWN = 500, 1000  # bytes of an update and of a model
END_S = 8.0


def _assign(*pairs: tuple[str, int]) -> dict[str, Any]:
    return {"do": "assign", "edges": [e for e, _ in pairs], "tasks": [t for _, t in pairs]}


def _joined(edge: str) -> dict[str, Any]:
    return {"t": 0.0, "event": "edge_joined", "version": 0, "edge": edge, "samples": 9} | {
        "decisions": []
    }


def _fact(t: float, fact: str, edge: str, task: int) -> dict[str, Any]:
    return {"t": t, "fact": fact, "edge": edge, "task": task}


def _arrived(
    t: float, edge: str, task: int, version: int, base: int, *decisions: Any
) -> dict[str, Any]:
    told = {"version": version, "edge": edge, "task": task, "base_version": base, "numbers": {}}
    return {"t": t, "event": "update_arrived", **told, "decisions": list(decisions)}


def _publish(version: int) -> dict[str, Any]:
    return {"do": "publish", "version": version}


EVENTS: list[dict[str, Any]] = [
    _joined("a"),
    _joined("b"),
    {"t": 0.0, "event": "run_started", "version": 0, "decisions": [_assign(("a", 0), ("b", 1))]},
    _fact(1.0, "task_started", "a", 0),
    _fact(1.0, "task_started", "b", 1),
    _fact(3.0, "update_ready", "a", 0),
    _arrived(4.0, "a", 0, 0, 0, _publish(1), _assign(("a", 2))),
    _fact(5.0, "task_started", "a", 2),
    _fact(6.0, "update_ready", "b", 1),
    _fact(7.0, "update_ready", "a", 2),
    _arrived(7.0, "b", 1, 1, 0, _publish(2)),
    _arrived(8.0, "a", 2, 2, 1, _publish(3)),
    {"t": END_S, "fact": "finished", "reason": "versions"},
]
LINKS = [
    ("a", "down", "task", DOWN, 0.0, 1.0),
    ("b", "down", "task", DOWN, 0.0, 1.0),
    ("a", "up", "update", UP, 3.0, 4.0),
    ("a", "down", "task", DOWN, 4.0, 5.0),
    ("b", "up", "update", UP, 6.0, 7.0),
    ("a", "up", "update", UP, 7.0, 8.0),
]
# version, emulated s, train loss, test loss, accuracy, bytes up, bytes down
METRICS = [
    (0, 0.0, 2.1, 2.0, 0.1, 0, 0),
    (1, 4.0, 1.1, 1.0, 0.5, UP, 2 * DOWN),
    (2, 7.0, 0.6, 0.5, 0.8, 2 * UP, 3 * DOWN),
    (3, 8.0, 0.45, 0.4, 0.9, 3 * UP, 3 * DOWN),
]


def record(
    folder: Path,
    seed: int = 1,
    target: float | None = 0.8,
    metrics: Iterable[tuple[Any, ...]] = METRICS,
    events: Iterable[dict[str, Any]] = EVENTS,
    slower: float = 1.0,
) -> Path:
    """Write the run into ``folder`` and return it; ``slower``: a factor of all evaluations' times.

    With a target, the summary has it, too.
    """
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in events))
    links = "".join(f"{e},{d},{k},{n},{a},{z},{z}\n" for e, d, k, n, a, z in LINKS)
    (folder / "links.csv").write_text(
        "edge,direction,kind,bytes,offered_s,scheduled_s,finished_s\n" + links
    )
    (folder / "metrics.csv").write_text(
        "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
        + "".join(
            f"{v},{t * slower},{t},{train},{test},{share},{up},{down}\n"
            for v, t, train, test, share, up, down in metrics
        )
    )
    wanted = "" if target is None else f"target_accuracy = {target}\n"
    (folder / "config.toml").write_text(f"seed = {seed}\n[evaluation]\n{wanted}")
    (folder / "summary.json").write_bytes(orjson.dumps({"seed": seed, "target_accuracy": target}))
    return folder


def killed(run: Path) -> Path:
    """Leave the run as kill -9 does: no summary, and a torn last line in each file."""
    (run / "summary.json").unlink()
    for name, torn in (
        ("events.jsonl", '{"t": 9.0, "event": "update_arr'),
        ("links.csv", "a,down,ta"),
        ("metrics.csv", "4,9.0,9"),
    ):
        with (run / name).open("a") as file:
            file.write(torn)
    return run
