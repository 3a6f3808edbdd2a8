"""Whole runs of FedASMU, its ablations and FedSSMU on both hosts, with a tiny model.

Merges happen, traces are equal, and journals replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import small_run

from edgefl.results.read import read_csv, read_events

SECTIONS: dict[str, Any] = {
    "devices": {"samples_per_s": 100.0, "slowest_ratio": 5.0},
    "stop": {"versions": 15},
    "training": {"epochs": 4},
    "record": {"payloads": True},
}
ASYNC: dict[str, Any] = {"dispatch": "replace", "concurrency": 3}
ENTRIES: list[dict[str, Any]] = [
    {"strategy": "fedasmu", **ASYNC, "epsilon": 0.5},
    {
        "strategy": "fedasmu",
        "label": "shared",
        **ASYNC,
        "controls": "shared",
        "subtract_merge": True,
        "selector": "h2",
    },
    {
        "strategy": "fedasmu",
        "label": "trigger",
        "period_s": 1.0,
        "clients_per_trigger": 1,
        "concurrency": 2,
        "tau": 2,
        "selector": "fixed",
        "refresh_point": 9,
    },
    {"strategy": "fedasmu-da", **ASYNC},
    {"strategy": "fedasmu-fa", **ASYNC},
    {"strategy": "fedasmu-0", **ASYNC},
    {"strategy": "fedssmu", "clients_per_round": 3, "subtract_merge": True, "epsilon": 0.5},
    {
        "strategy": "fedssmu",
        "label": "counting",
        "clients_per_round": 3,
        "index": "aggregation",
        "controls": "shared",
    },
]


def updates(directory: Path) -> list[dict[str, Any]]:
    return [
        event
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "update_arrived"
    ]


@pytest.mark.parametrize("entry", [ENTRIES[0], ENTRIES[6]], ids=["fedasmu", "fedssmu"])
@pytest.mark.slow
def test_requests_merges_and_downloads_agree(tmp_path: Path, entry: dict[str, Any]) -> None:
    """Each model that a request found was downloaded, and the device reports a merge of this
    version.
    """
    _, directory = small_run(tmp_path, **SECTIONS | {"stop": {"versions": 40}}, strategies=[entry])
    asked = {
        event["task"]: event
        for event in read_events(directory / "events.jsonl")
        if event.get("event") == "fresh_requested"
    }
    merged = 0
    for update in updates(directory):
        request, numbers = asked[update["task"]], update["numbers"]
        found = request["decisions"][0]["version"]
        assert (
            numbers["asked"] == 1
            and numbers["merged"] == (found is not None)
            and numbers.get("fresh_version") == found
        )
        assert request["step"] == numbers["refresh_point"] * numbers["steps"] / 4
        assert 1 <= numbers["refresh_point"] <= 3
        assert found is None or (
            numbers["merge_step"] == request["step"] and found > update["base_version"]
        )
        merged += found is not None
    downloads = [row for row in read_csv(directory / "links.csv") if row["kind"] == "fresh"]
    assert (
        9
        < merged
        <= len(downloads)
        <= sum(event["decisions"][0]["version"] is not None for event in asked.values())
    )
