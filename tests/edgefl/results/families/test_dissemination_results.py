"""Cost and effect of asking for fresher models, from rows by hand; table, CSV and figure."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgefl.results.families import dissemination


def joined(edge: str) -> dict[str, Any]:
    return {
        "t": 0.0,
        "event": "edge_joined",
        "version": 0,
        "edge": edge,
        "samples": 9,
        "decisions": [],
    }


def asked(
    t: float, edge: str, task: int, base: int, version: int, sent: int | None
) -> dict[str, Any]:
    answer = {"do": "send_fresh", "edge": edge, "task": task, "version": sent}
    return {
        "t": t,
        "event": "fresh_requested",
        "version": version,
        "edge": edge,
        "task": task,
        "base_version": base,
        "step": 4,
        "decisions": [answer],
    }


def arrived(
    t: float,
    task: int,
    base: int,
    version: int,
    report: dict[str, float] | None = None,
    **numbers: float,
) -> dict[str, Any]:
    decisions: list[dict[str, Any]] = (
        [{"do": "report", "values": report, "edge": "a"}] if report else []
    )
    event = {
        "t": t,
        "event": "update_arrived",
        "version": version,
        "edge": "a",
        "task": task,
        "base_version": base,
        "numbers": {"samples": 9.0, **numbers},
    }
    return event | {"decisions": [*decisions, {"do": "publish", "version": version + 1}]}


def link(
    edge: str, direction: str, kind: str, size: int, offered_s: float, finished_s: float
) -> dict[str, str]:
    moments = dict(
        zip(
            ("offered_s", "scheduled_s", "finished_s"),
            (f"{offered_s:.9f}", f"{finished_s:.9f}", f"{finished_s:.9f}"),
        )
    )
    return {"edge": edge, "direction": direction, "kind": kind, "bytes": str(size), **moments}


# Two edges, ten seconds. Edge a asks at 2 and gets version 3 at 2.5. It asks again for another task
# at 6, when there is no newer model. Edge b asks at 4 and gets version 5 at 5.5.
EVENTS = [
    joined("a"),
    joined("b"),
    asked(2.0, "a", 0, base=0, version=3, sent=3),
    asked(4.0, "b", 1, base=1, version=5, sent=5),
    arrived(
        5.0,
        0,
        base=0,
        version=6,
        report={"alpha": 0.5, "xi": 1.0, "lambda": 1.0, "sigma": 0.5, "iota": 0.03},
        asked=1.0,
        merged=1.0,
        refresh_point=2.0,
        fresh_version=3.0,
        beta=0.25,
        gamma=1.0,
        upsilon=0.5,
        reward=0.125,
        baseline=0.0,
    ),
    asked(6.0, "a", 2, base=7, version=7, sent=None),
    arrived(
        8.0,
        1,
        base=1,
        version=9,
        asked=1.0,
        merged=1.0,
        refresh_point=3.0,
        fresh_version=5.0,
        beta=0.75,
        gamma=1.0,
        upsilon=0.5,
        reward=-0.125,
        baseline=0.0,
    ),
    arrived(9.0, 2, base=7, version=10, asked=1.0, merged=0.0, refresh_point=2.0),
]
LINKS = [
    link("a", "down", "task", 1000, 0.0, 1.0),
    link("a", "down", "fresh", 1010, 2.0, 2.5),
    link("b", "down", "task", 1000, 3.5, 4.5),
    link(
        "b", "down", "fresh", 1010, 4.0, 5.5
    ),  # queued behind the task: the link is busy from 3.5 to 5.5
    link("a", "up", "update", 1000, 4.0, 5.0),
    link("b", "up", "update", 1000, 5.0, 8.0),
]


@pytest.fixture
def section() -> dict[str, Any]:
    found = dissemination.section(EVENTS, LINKS, 10.0)
    assert found is not None
    return found


def test_requests_answers_and_merges_are_counted(section: dict[str, Any]) -> None:
    assert (section["requests"], section["newer"], section["merges"]) == (3, 2, 2)
    assert section["refresh_points"] == {"2": 2, "3": 1}


def test_waiting_is_from_the_request_to_the_model(section: dict[str, Any]) -> None:
    assert section["waiting_total_s"] == pytest.approx(0.5 + 1.5)
    assert section["waiting_mean_s"] == pytest.approx(
        1.0
    )  # mean of the two requests that got a model


def test_extra_bytes_are_the_fresh_models_and_the_notes(section: dict[str, Any]) -> None:
    # msgpack: [code, 0, 0, task] and [code, 0, 0, task, version, step, until_ns]; one byte per
    # small number and one for the array's head
    assert section["extra_bytes_down"] == 2 * 1010 + 5
    assert section["extra_bytes_up"] == 3 * 8


def test_link_use_is_the_share_of_time_in_which_links_were_busy(section: dict[str, Any]) -> None:
    assert section["use_down"] == pytest.approx((1.0 + 0.5 + 2.0) / (2 * 10.0))
    assert section["use_up"] == pytest.approx((1.0 + 3.0) / (2 * 10.0))


def test_staleness_before_and_after_the_merge(section: dict[str, Any]) -> None:
    assert section["staleness_before"] == {"mean": 7.0, "median": 7.0}  # 6 - 0, 9 - 1
    assert section["staleness_after"] == {"mean": 3.5, "median": 3.5}  # 6 - 3, 9 - 5


def test_inside_a_round_staleness_counts_aggregations() -> None:
    """In FedSSMU the version is constant in a round. The third update of round 5 (gap 2) had merged
    the model that the first update made (5 + 1).
    """
    events = [
        asked(1.0, "a", 0, 5, 5, 6),
        arrived(
            2.0,
            0,
            5,
            5,
            report={"alpha": 0.5, "gap": 2.0},
            asked=1.0,
            merged=1.0,
            refresh_point=1.0,
            fresh_version=6.0,
            beta=0.5,
        ),
    ]
    found = dissemination.section(events, [], 3.0)
    assert found is not None and (
        found["staleness_before"]["mean"],
        found["staleness_after"]["mean"],
    ) == (2.0, 1.0)


@pytest.mark.parametrize(
    ("betas", "note"),
    [
        ((0.02, 0.03, 0.9), "merging was negligible (median beta 0.03)"),
        ((0.05, 0.1, 0.2), None),
        ((0.25,), None),
    ],
)
def test_negligible_merging_is_said(betas: tuple[float, ...], note: str | None) -> None:
    events = [
        row
        for n, beta in enumerate(betas)
        for row in (asked(1.0, "a", n, 0, 1, 1), arrived(2.0, n, 0, 1, beta=beta))
    ]
    found = dissemination.section(events, [], 3.0)
    assert found is not None and found["note"] == note


def request(t: float, task: int, until_s: float) -> dict[str, Any]:
    until_ns = round(until_s * 1e9)
    return asked(t, "a", task, 0, 2, 2) | {"until_ns": until_ns, "decisions": []}


def answered(t: float, task: int, version: int | None) -> dict[str, Any]:
    """An alarm at which the strategy answers the request of a task."""
    answer = {"do": "send_fresh", "edge": "a", "task": task, "version": version}
    return {"t": t, "event": "alarm_rang", "version": 5, "name": "x", "decisions": [answer]}


def test_what_became_of_each_request() -> None:
    """One task after the other; the rule reports nothing, and no answer comes with its request."""
    events = [
        joined("a"),
        *(request(1.0, 0, until_s=9.0), answered(2.0, 0, 5), arrived(9.5, 0, 0, 6)),
        *(request(11.0, 1, until_s=19.0), arrived(19.5, 1, 0, 6, too_late=1.0)),
        *(request(21.0, 2, until_s=29.0), answered(22.0, 2, 5)),
        arrived(29.5, 2, 0, 6, too_late=1.0),
        *(request(31.0, 3, until_s=39.0), answered(39.0, 3, 5)),
        *(request(41.0, 4, until_s=49.0), answered(42.0, 4, None), arrived(49.5, 4, 0, 6)),
        {"t": 51.0, "fact": "request_too_late", "edge": "a", "task": 5},
        request(61.0, 6, until_s=69.0),
        *(request(71.0, 7, until_s=79.0), answered(72.0, 7, 5)),
    ]
    links = [
        link("a", "down", "fresh", 10, 2.0, 5.0),
        link("a", "down", "dropped", 10, 22.0, 29.0),
        link("a", "down", "fresh", 10, 72.0, 74.0),
    ]
    outcomes = {
        task: one.outcome.value
        for task, (one,) in dissemination.requests_of(events).by_task.items()
    }
    assert outcomes == {
        0: "merged",
        1: "unanswered",
        2: "too late",
        3: "too late",
        4: "nothing newer",
        5: "too late",
        6: "unanswered",
        7: "open",
    }
    found = dissemination.section(events, links, 80.0)
    assert found is not None and found["contradictions"] == []
    numbers = ("requests", "newer", "merges", "too_late", "unanswered", "waiting_total_s")
    assert [found[name] for name in numbers] == [8, 4, 1, 3, 2, 4.0 + 3.0]
    assert found["staleness_after"] == {"mean": 1.0, "median": 1.0}, "6 - 5, without fresh_version"


def test_a_run_without_requests_has_no_such_section() -> None:
    assert dissemination.section([joined("a"), arrived(1.0, 0, 0, 1)], LINKS, 10.0) is None


# ------------------------------------------------------------------ table, CSV, figure
def run_directory(run: Path, events: list[dict[str, Any]], seed: int = 1) -> Path:
    run.mkdir(parents=True)
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found = dissemination.section(events, LINKS, 10.0)
    facts = {"strategy": "fedasmu", "seed": seed, "bytes_down": 4025} | (
        {"dissemination": found} if found else {}
    )
    (run / "summary.json").write_text(json.dumps(facts))
    return run


def shown(renderable: Any) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_seeds_are_averaged_in_the_table_and_apart_in_the_csv(tmp_path: Path) -> None:
    weak = [
        (
            event | {"numbers": event["numbers"] | {"beta": 0.01}}
            if event.get("numbers", {}).get("merged")
            else event
        )
        for event in EVENTS
    ]
    for seed in (1, 2):
        run_directory(tmp_path / "fedasmu" / f"seed{seed}", weak, seed)
    costs = dissemination.FAMILY.rows([tmp_path])
    assert "fedasmu: merging was negligible (median beta 0.01)" in shown(dissemination.table(costs))
    dissemination.FAMILY.write_csv(costs, tmp_path / "dissemination.csv")
    with (tmp_path / "dissemination.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [
        (
            row["name"],
            row["seed"],
            row["requests"],
            row["refresh_points"],
            row["staleness_after_mean"],
        )
        for row in rows
    ] == [
        ("fedasmu", "1", "3", "2:2 3:1", "3.5"),
        ("fedasmu", "2", "3", "2:2 3:1", "3.5"),
    ]
    assert rows[0]["waiting_total_s"] == "2.000000000"
