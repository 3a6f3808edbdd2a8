"""Whole runs of the K-asynchronous family on both hosts, with a tiny model.

With one worker or two; with their summary, table and figure.
"""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from builders import small_run
from drawn import of_runs
from rich.console import Console

from edgefl.results.families import aggregation
from edgefl.results.figures import gallery
from edgefl.results.read import read_csv, read_events

SECTIONS: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 12},
    "training": {"batch_size": 8},
}


def entry(name: str, **options: Any) -> dict[str, Any]:
    return {"strategy": name, "server_learning_rate": 0.5, **options} | (
        {} if name == "zeno-plus-plus" else {"buffer_size": 2}
    )


def test_an_edge_takes_one_batch_and_sends_a_gradient_with_its_loss(tmp_path: Path) -> None:
    """100 samples per second and a batch of 8 take .08 s. The upload is one vector of the model's
    trainable size.
    """
    _, directory = small_run(
        tmp_path, **SECTIONS | {"devices": {"samples_per_s": 100.0}}, strategies=[entry("k-async")]
    )
    events = read_events(directory / "events.jsonl")
    arrived = [event for event in events if event.get("event") == "update_arrived"]
    assert arrived and all(
        event["numbers"]["batch"] == 8
        and event["numbers"]["steps"] == 1
        and event["numbers"]["loss"] > 0
        for event in arrived
    )
    began = {event["task"]: event["t"] for event in events if event.get("fact") == "task_started"}
    ready = {event["task"]: event["t"] for event in events if event.get("fact") == "update_ready"}
    assert all(ready[task] - began[task] == pytest.approx(0.08) for task in ready)
    sizes = {
        kind: {
            int(row["bytes"]) for row in read_csv(directory / "links.csv") if row["kind"] == kind
        }
        for kind in ("task", "update")
    }
    assert max(sizes["update"]) < max(sizes["task"]) + 150, "one model's length, and four numbers"


def test_edges_with_fewer_samples_than_a_batch_are_no_faster(tmp_path: Path) -> None:
    """128 samples at 100 per second take 1.28 s on each edge, also with fewer samples."""
    given = SECTIONS | {"devices": {"samples_per_s": 100.0}, "training": {"batch_size": 128}}
    _, directory = small_run(tmp_path, **given, strategies=[entry("k-async")])
    events = read_events(directory / "events.jsonl")
    samples = {e["edge"]: e["samples"] for e in events if e.get("event") == "edge_joined"}
    assert max(samples.values()) < 128
    began = {event["task"]: event["t"] for event in events if event.get("fact") == "task_started"}
    ready = {event["task"]: event["t"] for event in events if event.get("fact") == "update_ready"}
    assert ready and all(ready[task] - began[task] == pytest.approx(1.28) for task in ready)
    arrived = [event for event in events if event.get("event") == "update_arrived"]
    assert {event["numbers"]["batch"] for event in arrived} == {128}


# ------------------------------------------------------------------ what they come to
def stepped(t: float, version: int, **values: float) -> dict[str, Any]:
    report = {
        "do": "report",
        "values": {
            "gradients": 2.0,
            "weighted_staleness": 1.0,
            "aggregated": 2.0,
            "predominant": 2.0,
            **values,
        },
        "edge": None,
    }
    return {
        "t": t,
        "event": "update_arrived",
        "version": version,
        "decisions": [report, {"do": "publish", "version": version + 1}],
    }


EVENTS = [
    stepped(1.0, 0, weighted_staleness=0.0, stage=1.0, selected=2.0, clipped=2.0),
    {"t": 1.5, "event": "update_arrived", "version": 1, "decisions": []},
    stepped(
        2.0,
        1,
        weighted_staleness=3.0,
        aggregated=1.0,
        predominant=1.0,
        stage=2.0,
        selected=1.0,
        clipped=0.0,
    ),
    stepped(3.0, 2, weighted_staleness=0.0, stage=2.0, selected=0.0, clipped=1.0),
]


def test_the_section_by_hand() -> None:
    """tau_ave = (0 + 3 + 0) / 3; N_ave = (2 + 1 + 2) / 3; 3 of 6 gradients are clipped."""
    assert aggregation.section(aggregation.steps(EVENTS)) == {
        "steps": 3,
        "gradients": 6,
        "tau_ave": 1.0,
        "n_ave": pytest.approx(5 / 3),
        "predominant": {"1": 1, "2": 2},
        "selected_ave": 1.0,
        "clipped_share": 0.5,
        "stage_two_version": 1,
    }
    assert aggregation.section(aggregation.steps(EVENTS[1:2])) is None


def shared(**shares: float) -> dict[str, Any]:
    reports = [
        {"do": "report", "values": {"share": share}, "edge": edge} for edge, share in shares.items()
    ]
    return {"event": "update_arrived", "decisions": [*reports, {"do": "publish", "version": 1}]}


def test_the_effective_number_and_the_largest_label_by_hand() -> None:
    """Shares (1/2, 1/2): 2 effective gradients; (1, 0): 1. a has label 0, b has both in halves:
    label 0 has 1/2 + 1/4 of the first step and all of the second.
    """
    held = aggregation.labels_held(
        [
            {"edge": "a", "runtime": "", "label_0": "8", "label_1": "0"},
            {"edge": "b", "runtime": "", "label_0": "3", "label_1": "3"},
        ]
    )
    assert held == {"a": {"label_0": 1.0}, "b": {"label_0": 0.5, "label_1": 0.5}}
    found = aggregation.shares([shared(a=0.5, b=0.5), EVENTS[0], shared(a=1.0, b=0.0)])
    assert found == [{"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 0.0}]
    assert aggregation.of_shares(found, held) == {"effective_ave": 1.5, "largest_label_ave": 0.875}
    assert aggregation.of_shares(found, {})["largest_label_ave"] is None
    assert aggregation.of_shares([], held) == {}, "only with report_shares"


def test_reported_shares_change_the_record_alone(tmp_path: Path) -> None:
    """The model of a run is the same with and without them, and its record only grows."""
    given = SECTIONS | {"evaluation": {"by_label": True}}
    plain, without = small_run(tmp_path / "plain", **given, strategies=[entry("wkafl")])
    found, run = small_run(
        tmp_path / "shares", **given, strategies=[entry("wkafl", report_shares=True)]
    )
    assert (run / "model.safetensors").read_bytes() == (without / "model.safetensors").read_bytes()
    assert {**plain["aggregation"], **found["aggregation"]} == found["aggregation"]
    added = set(found["aggregation"]) - set(plain["aggregation"])
    assert added == {"effective_ave", "largest_label_ave"}
    assert 1 <= found["aggregation"]["effective_ave"] <= 2
    assert 0.1 <= found["aggregation"]["largest_label_ave"] <= 1
    for name, run in (("with.csv", tmp_path / "shares"), ("without.csv", tmp_path / "plain")):
        aggregation.FAMILY.write_csv(aggregation.FAMILY.rows([run]), tmp_path / name)
    columns = [
        (tmp_path / name).read_text().splitlines()[0] for name in ("with.csv", "without.csv")
    ]
    assert columns == [f"{columns[1]},effective_ave,largest_label_ave", columns[1]]


def test_eight_schemes_look_different_and_gradients_are_counted_in_whole_numbers(
    tmp_path: Path,
) -> None:
    for number in range(8):
        run = tmp_path / f"s{number}"
        run.mkdir()
        (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    left, right = of_runs("aggregation", tmp_path).axes
    looks = {(patches[0].get_facecolor(), patches[0].get_hatch()) for patches in left.containers}
    lines = {(line.get_color(), line.get_linestyle()) for line in right.lines}
    assert len(looks) == len(lines) == 8
    assert all(tick == round(tick) for axes in (left, right) for tick in axes.get_xticks())


@pytest.mark.slow
def test_summary_table_csv_and_figure_of_a_run(tmp_path: Path) -> None:
    found, directory = small_run(tmp_path, **SECTIONS, strategies=[entry("wkafl")])
    section = found["aggregation"]
    assert (
        section["steps"] == 12
        and section["gradients"] == 24
        and sum(section["predominant"].values()) == 12
    )
    assert (
        0 <= section["tau_ave"] <= 2
        and 1 <= section["n_ave"] <= 2
        and math.isfinite(found["stability"])
    )
    assert json.loads((directory / "summary.json").read_text())["aggregation"] == section
    loaded = aggregation.FAMILY.rows([tmp_path])
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(aggregation.FAMILY.table([tmp_path]))
    assert "wkafl" in (text := console.export_text()) and f"{section['tau_ave']:.1f}" in text
    aggregation.FAMILY.write_csv(loaded, tmp_path / "aggregation.csv")
    (row,) = csv.DictReader((tmp_path / "aggregation.csv").open())
    assert (
        row["name"] == "wkafl"
        and row["steps"] == "12"
        and row["predominant"].startswith(("1:", "2:"))
    )
    assert all(
        path.stat().st_size > 1000
        for path in gallery.write("aggregation", [directory], tmp_path / "a")
    )
