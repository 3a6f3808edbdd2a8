"""Readers of run directories: torn files, missing summaries, comparison, figure, live display."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgefl.errors import UserError
from edgefl.results import compare, summary
from edgefl.results.progress import LiveView
from edgefl.results.tables import table

METRICS = "version,emulated_s,wall_s,train_loss,test_loss,accuracy,bytes_up,bytes_down\n"
LINKS = "edge,direction,kind,bytes,offered_s,scheduled_s,finished_s\n"
EVENTS = [
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "e000", "samples": 9, "decisions": []},
    {"t": 0.0, "event": "edge_joined", "version": 0, "edge": "e001", "samples": 9, "decisions": []},
    {
        "t": 0.0,
        "event": "run_started",
        "version": 0,
        "decisions": [{"do": "assign", "edges": ["e000", "e001"], "tasks": [0, 1]}],
    },
    {"t": 1.0, "fact": "task_started", "edge": "e000", "task": 0},
    {"t": 2.0, "fact": "update_ready", "edge": "e000", "task": 0},
    {
        "t": 3.0,
        "event": "update_arrived",
        "version": 0,
        "edge": "e000",
        "task": 0,
        "base_version": 0,
        "numbers": {},
        "decisions": [
            {"do": "publish", "version": 1},
            {"do": "assign", "edges": ["e000"], "tasks": [2]},
        ],
    },
    {
        "t": 4.0,
        "event": "update_arrived",
        "version": 1,
        "edge": "e001",
        "task": 1,
        "base_version": 0,
        "numbers": {},
        "decisions": [{"do": "publish", "version": 2}],
    },
    {
        "t": 5.5,
        "event": "update_arrived",
        "version": 2,
        "edge": "e000",
        "task": 2,
        "base_version": 1,
        "numbers": {},
        "decisions": [{"do": "discard", "task": 2, "reason": "too stale"}],
    },
]


def write_events(run: Path, events: list[dict[str, Any]], torn: str = "") -> None:
    run.mkdir(parents=True, exist_ok=True)
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + torn)


def write_metrics(run: Path, points: list[tuple[float, float]], torn: str = "") -> None:
    run.mkdir(parents=True, exist_ok=True)
    rows = [
        f"{v},{t:.9f},{t:.9f},,0.5,{accuracy},{1000 * v},{2000 * v}\n"
        for v, (t, accuracy) in enumerate(points)
    ]
    (run / "metrics.csv").write_text(METRICS + "".join(rows) + torn)


def shown(renderable: Any, width: int = 80, height: int = 40) -> str:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_outcome() -> None:
    rows = [
        {"emulated_s": f"{t}", "accuracy": a}
        for t, a in ((0, "0.1"), (2, "0.95"), (1, "0.9"), (3, ""), (4, "nan"), (5, "0.85"))
    ]
    assert summary.outcome(rows, 0.9) == {
        "final_accuracy": 0.85,
        "convergence_accuracy": pytest.approx(0.95),  # until 5 s, the end of the window
        "convergence_window_s": [4.5, 5.0],
        "best_accuracy": 0.95,
        "stability": None,
        "target_accuracy": 0.9,
        "time_to_target_s": 1.0,
    }
    assert summary.outcome(rows, 0.96)["time_to_target_s"] is None
    assert summary.outcome(rows, None)["time_to_target_s"] is None
    assert set(summary.outcome([], 0.9).values()) == {None, 0.9}
    stuck = [{"emulated_s": t, "accuracy": a} for t, a in ((0, 0.1), (2, 0.9), (10, 0.1))]
    for version_s, expected in ((8.9, 0.1), (9.5, 0.9), (None, 0.9)):
        found = summary.outcome(stuck, None, end_s=10.0, version_s=version_s)
        assert found["convergence_accuracy"] == pytest.approx(expected)
    losses = [{"emulated_s": t, "accuracy": 0.1, "test_loss": loss} for t, loss in enumerate("295")]
    found = summary.outcome([*losses, {"emulated_s": 9, "accuracy": "", "test_loss": "7"}], None)
    assert [found[f"{which}_loss"] for which in ("initial", "highest", "final")] == [2, 9, 5]
    for not_finite in ("nan", "inf"):
        losses[2]["test_loss"] = not_finite
        found = summary.outcome(losses, None)
        assert [found[f"{which}_loss"] for which in ("highest", "final")] == [None, None]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "faithful"),
        ({"clock": "virtual"}, "virtual"),
        ({"fidelity": {"verdict": "strained"}}, "strained"),
        ({"versions": 0}, "failed"),
        ({"versions": 0, "finished": "interrupted"}, "faithful"),
        ({"diverged_at_version": 3}, "diverged"),
        ({"diverged_at_version": 3, "fidelity": {"verdict": "strained"}}, "diverged"),
        ({"diverged_at_version": 3, "clock": "virtual"}, "diverged"),
    ],
)
def test_the_verdict_names_failures_first(changes: dict[str, Any], told: str) -> None:
    facts = {"clock": "wall", "versions": 5, "finished": "versions", "final_accuracy": 0.9}
    facts["fidelity"] = {"verdict": "faithful"}
    assert summary.verdict(facts | changes) == told


@pytest.mark.parametrize("summary_text", [None, '{"strategy": "fed'])
def test_unfinished_run_is_read_as_far_as_it_got(tmp_path: Path, summary_text: str | None) -> None:
    run = tmp_path / "fedbuff"
    write_events(run, EVENTS, torn='{"t": 9')
    write_metrics(run, [(0.0, 0.1), (3.0, 0.8)], torn="2,4.0000")
    (run / "links.csv").write_text(LINKS + "e000,down,task,400,0,1,1\ne000,up,update,500,2,3,3\n")
    (run / "config.toml").write_text("[evaluation]\ntarget_accuracy = 0.75\n")
    if summary_text:
        (run / "summary.json").write_text(summary_text)
    (row,) = compare.load(run)
    assert (
        row.verdict == "unfinished" and "torn last line in events.jsonl, metrics.csv" in row.reasons
    )
    assert (
        row.versions,
        row.updates_applied,
        row.updates_discarded,
        row.bytes_up,
        row.bytes_down,
    ) == (2, 2, 1, 500, 400)
    assert (row.final_accuracy, row.target_accuracy, row.time_to_target_s, row.emulated_s) == (
        0.8,
        0.75,
        3.0,
        5.5,
    )
    assert "unfinished" in shown(table([row]))


def test_live_view_follows_the_run(tmp_path: Path) -> None:
    view = LiveView(tmp_path, ["e000", "e001", "e002"])
    assert "awaited" in shown(view.update())  # nothing written yet
    write_events(tmp_path, EVENTS[:5], torn='{"t": 3.0, "event": "upd')
    view.update()
    assert view.progress.states() == {"sending": 1, "receiving": 1, "awaited": 1}
    assert (view.progress.edges["e000"].task, view.progress.edges["e000"].since_s) == (0, 2.0)
    write_events(tmp_path, [*EVENTS, {"t": 6.0, "fact": "finished", "reason": "versions"}])
    write_metrics(tmp_path, [(0.0, 0.1), (3.0, 0.8)])
    assert not view.finished
    text = shown(view.update(), width=160)
    assert view.finished and view.progress.states() == {"idle": 2, "awaited": 1}
    assert (
        "6.0 s emulated  version 2  accuracy 0.8000 (of version 1)  3 updates, 2"
        " applied, 1 discarded  finished: versions" in text
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", b'{"fidelity": 3}'),
        ("summary.json", b'{"staleness": [1]}'),
        ("summary.json", b'{"updates_discarded": {"x": "y"}}'),
        ("metrics.csv", b"version,accuracy\n1\r2,0.5\n"),
    ],
)
def test_a_damaged_file_of_a_run_is_one_line(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "events.jsonl").touch()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match="is damaged") as caught:
        compare.load(tmp_path)
    assert str(caught.value).startswith(str(tmp_path))
