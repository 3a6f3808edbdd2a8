"""Whole runs under the virtual clock: the same seed gives the same bytes, and times match closed
forms.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import S, experiment, small_run
from paths import GOLDEN, ROOT, SUPPORT
from run_bytes import bytes_of, trace

from edgefl.clocks.setup.network import Builder, devices
from edgefl.edges.edge import Edge
from edgefl.errors import UserError
from edgefl.results.read import read_csv, read_events
from emulator.units import to_ns

SPREAD: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 12},
}
ASYNC: dict[str, Any] = SPREAD | {"strategies": [{"strategy": "fedasync", "concurrency": 2}]}
FRESHER: dict[str, Any] = {"strategies": [{"strategy": "../support/own_strategies.py:Fresher"}]}


# ------------------------------------------------------------------ same seed, same trace
@pytest.mark.processes
def test_the_same_seed_leaves_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """Times, trained numbers and weights are equal bytes, although hash(str) differs in the other
    process.
    """
    _, here = small_run(tmp_path / "here", **ASYNC)
    code = (
        "import pathlib, test_virtual, builders;"
        f" builders.small_run(pathlib.Path({str(tmp_path / 'there')!r}), **test_virtual.ASYNC)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(SUPPORT), str(ROOT)])
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "12345", "PYTHONPATH": path},
    )
    assert bytes_of(here) == bytes_of(tmp_path / "there" / "fedasync")


def test_a_second_run_in_the_same_place_leaves_nothing_of_the_first(tmp_path: Path) -> None:
    _, first = small_run(tmp_path, **ASYNC, record={"payloads": True})
    before = bytes_of(first)
    assert (first / "journal" / "journal-000000.bin").stat().st_size > 0
    summary, second = small_run(tmp_path, **ASYNC)
    assert second == first and bytes_of(second) == before and summary["finished"] == "versions"
    assert not (first / "journal" / "journal-000000.jsonl").exists(), (
        "it would be replayed as this run's"
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedbuff", {"concurrency": 2, "buffer_size": 2}),
        (
            "fedasync",
            {
                "dispatch": "periodic",
                "concurrency": 2,
                "clients_per_trigger": 1,
                "period_s": 1.0,
                "max_staleness": 0,
            },
        ),
    ],
)
def test_the_trace_is_the_golden_one(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    """After an intended change, write the file again with EDGEFL_GOLDEN=1 pytest, and read the
    difference.
    """
    _, directory = small_run(
        tmp_path,
        **SPREAD | {"stop": {"versions": 3}, "strategies": [{"strategy": name, **options}]},
    )
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("EDGEFL_GOLDEN"):
        golden.write_text(trace(directory))
    assert trace(directory) == golden.read_text()


# ------------------------------------------------------------------ closed forms
def carried_ns(size: int, mbit_s: float, latency_ns: int) -> int:
    return -(-size * 8 * S // round(mbit_s * 1e6)) + latency_ns


def test_a_round_takes_download_compute_upload_and_two_latencies(tmp_path: Path) -> None:
    """Exact to the ns: the slowest of three edges with different data and speed sets the time.

    The next round begins at that moment.
    """
    sections = SPREAD | {
        "stop": {"versions": 3},
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "training": {"epochs": 2},
    }
    _, directory = small_run(tmp_path, **sections)
    events, links = read_events(directory / "events.jsonl"), read_csv(directory / "links.csv")
    samples = {
        event["edge"]: event["samples"] for event in events if event.get("event") == "edge_joined"
    }
    device = devices(experiment(**sections))
    began_ns = 0
    for version in range(3):
        ends = []
        for edge in "abc":
            down, up = (
                next(
                    int(row["bytes"])
                    for row in links
                    if (row["edge"], row["direction"]) == (edge, way)
                    and to_ns(float(row["offered_s"])) >= began_ns
                )
                for way in ("down", "up")
            )
            assert up > 24 and 24 < down < 60, "six float32 and a short header"
            compute_ns = device[edge].duration_ns(2 * samples[edge])
            assert compute_ns is not None
            ends.append(
                began_ns
                + carried_ns(down, 0.04, 10_000_000)
                + compute_ns
                + carried_ns(up, 0.01, 10_000_000)
            )
        (published,) = [
            e for e in events if {"do": "publish", "version": version + 1} in e.get("decisions", ())
        ]
        assert to_ns(published["t"]) == max(ends)
        began_ns = max(ends)
    assert len(set(samples.values())) > 1


# ------------------------------------------------------------------ a fresher model
def moments(directory: Path, task: int) -> dict[str, int]:
    """The moments (ns) of all events of one task."""
    events = [
        event for event in read_events(directory / "events.jsonl") if event.get("task") == task
    ]
    return {event.get("event") or event["fact"]: to_ns(event["t"]) for event in events}


def requests(directory: Path) -> list[dict[str, Any]]:
    return [
        event
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "fresh_requested"
    ]


def test_a_fresher_model_is_downloaded_merged_and_trained_on_from(tmp_path: Path) -> None:
    _, directory = small_run(tmp_path, **SPREAD | FRESHER)
    sent = [event for event in requests(directory) if event["decisions"][0]["version"] is not None]
    assert sent and all(
        event["decisions"][0]["version"] == event["version"] > event["base_version"]
        for event in sent
    )
    rows = [row for row in read_csv(directory / "links.csv") if row["kind"] == "fresh"]
    device = devices(experiment(**SPREAD))
    checked = 0
    for event in sent:
        row = next(
            (
                row
                for row in rows
                if row["edge"] == event["edge"]
                and to_ns(float(row["offered_s"])) == to_ns(event["t"])
            ),
            None,
        )
        at = moments(directory, event["task"])
        if row is None or "update_ready" not in at:
            continue  # not finished at the end of the run
        fresh_ns = to_ns(float(row["scheduled_s"]))
        assert fresh_ns == to_ns(event["t"]) + carried_ns(int(row["bytes"]), 0.04, 10_000_000)
        samples = next(
            e["samples"]
            for e in read_events(directory / "events.jsonl")
            if e.get("event") == "edge_joined" and e["edge"] == event["edge"]
        )
        assert at["update_ready"] == fresh_ns + device[event["edge"]].duration_ns(
            samples - 32 * event["step"]
        )
        checked += 1
    assert checked > 1


# ------------------------------------------------------------------ a task that is called off
@pytest.mark.parametrize(
    ("after_s", "heard_of_it", "carried"),
    [
        (0.005, [], []),  # being downloaded: the remaining bytes are not carried
        (1.0, ["task_started"], ["task"]),  # in training
        (2.05, ["task_started", "update_ready"], ["task"]),  # being uploaded
    ],
)
def test_nothing_of_a_cancelled_task_moves_any_more(
    tmp_path: Path, after_s: float, heard_of_it: list[str], carried: list[str]
) -> None:
    """It does not delay the next task."""
    hasty = {"strategy": "../support/own_strategies.py:Hasty", "period_s": after_s}
    sections = {
        "edges": {"names": ["a"]},
        "devices": {"samples_per_s": 100.0},
        "stop": {"versions": 1},
        "strategies": [hasty],
    }
    summary, directory = small_run(tmp_path, **sections)
    assert list(moments(directory, 0)) == heard_of_it
    assert [row["kind"] for row in read_csv(directory / "links.csv")] == [
        *carried,
        "task",
        "update",
    ]
    at, began_ns = moments(directory, 1), to_ns(after_s)
    assert (
        at["task_started"] == began_ns + 17_800_000
        and at["update_arrived"] == at["task_started"] + 2 * S + 78_000_000
    )
    assert (summary["updates_applied"], summary["updates_discarded"]) == (1, {})


def test_what_arrives_at_the_moment_of_its_cancelling_has_arrived(tmp_path: Path) -> None:
    """Edges a and b have as many samples and the same device.

    The coordinator gets the update of a first; that of b has arrived as well.
    """
    summary, directory = small_run(
        tmp_path,
        devices={"samples_per_s": 100.0},
        stop={"versions": 9},
        strategies=[{"strategy": "../support/own_strategies.py:First"}],
    )
    assert moments(directory, 0)["update_arrived"] == moments(directory, 1)["discarded"]
    assert summary["updates_discarded"] == {"task closed": 1}


# ------------------------------------------------------------------ ends


def test_a_run_in_which_nothing_can_happen_any_more_ends(tmp_path: Path) -> None:
    summary, directory = small_run(
        tmp_path, strategies=[{"strategy": "edgefl.strategies.base.strategy:Strategy"}]
    )
    assert (summary["finished"], summary["emulated_s"], summary["versions"]) == (
        "nothing left to do",
        0.0,
        0,
    )
    assert len(read_csv(directory / "metrics.csv")) == 1


def test_native_devices_and_links_need_the_wall_clock(tmp_path: Path) -> None:
    for section in ("devices", "links"):
        with pytest.raises(UserError, match=f'{section}.kind = "native" needs the wall clock'):
            small_run(tmp_path, **{section: {"kind": "native"}})


# ------------------------------------------------------------------ the run's own config


def test_an_idle_device_has_neither_actor_nor_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    link, edge = Builder.link, Edge.__init__

    def counted_link(self: Builder, name: str, direction: str) -> Any:
        made.append(f"{name} {direction}")
        return link(self, name, direction)

    def counted_edge(self: Edge, name: str, *others: Any) -> None:
        made.append(name)
        edge(self, name, *others)

    monkeypatch.setattr(Builder, "link", counted_link)
    monkeypatch.setattr(Edge, "__init__", counted_edge)
    few = {"strategies": [{"strategy": "fedasync", "concurrency": 2}], "stop": {"updates": 4}}
    _, directory = small_run(tmp_path, **few, edges={"count": 200})
    worked = {row["edge"] for row in read_csv(directory / "links.csv")}
    assert len(worked) >= 2 and len(made) == len(set(made))
    # two more are at work at the end, and the first edge's links are made for a check
    assert worked <= {each.partition(" ")[0] for each in made} and len(made) <= 3 * 6 + 2
    rows = [
        row for row in read_events(directory / "events.jsonl") if row.get("event") == "edge_joined"
    ]
    assert [row["edge"] for row in rows] == sorted(f"e{number:03d}" for number in range(200))
