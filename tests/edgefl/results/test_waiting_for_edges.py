"""What the display of a run says while nothing can happen before edges connect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from edgefl.results.live import LiveView


def event(t: float, name: str, **values: Any) -> dict[str, Any]:
    return {"t": t, "event": name, "version": 0, **values, "decisions": []}


def fact(t: float, name: str, **values: Any) -> dict[str, Any]:
    return {"t": t, "fact": name, **values}


def joined(t: float, edge: str) -> dict[str, Any]:
    return event(t, "edge_joined", edge=edge, samples=1)


BEGUN = [
    joined(0.0, "a"),
    joined(0.0, "b"),
    fact(1.0, "task_started", edge="a", task=0),
    fact(4.0, "task_started", edge="b", task=1),
]


def write(run: Path, *rows: dict[str, Any]) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))


def view(run: Path, **options: Any) -> LiveView:
    return LiveView(run, ["a", "b"], **options)


def test_before_the_first_edge_joins(tmp_path: Path) -> None:
    found = view(tmp_path)
    assert "waiting for edges: 0 of 2 connected" in found.plain(3.0)
    write(tmp_path, fact(0.0, "edge_waits", edge="b"))
    assert "waiting for edges: 1 of 2 connected" in found.plain(5.0)
    write(tmp_path, *BEGUN)
    assert "waiting" not in found.plain(6.0)


def test_after_all_edges_have_died(tmp_path: Path) -> None:
    write(tmp_path, *BEGUN)
    found = view(tmp_path, speed=2.0)
    assert "waiting" not in found.plain(100.0)
    write(tmp_path, event(9.0, "edge_lost", edge="a"))
    assert "waiting" not in found.plain(101.0), "the other one is connected"
    write(tmp_path, event(10.0, "edge_lost", edge="b"))
    assert "waiting for edges: 0 of 2 connected, b last seen 3 s ago" in found.plain(102.0)
    # twice as fast as the wall clock: 6 s from 4.0 to 10.0 emulated are 3, and 9 have passed since
    assert "waiting for edges: 0 of 2 connected, b last seen 12 s ago" in found.plain(111.0)
    console = Console(width=80, color_system=None)
    with console.capture() as screen:
        console.print(found.update(111.0))
    assert "\nwaiting for edges: 0 of 2 connected, b last seen 12 s ago" in screen.get()
    write(tmp_path, joined(29.0, "a"))
    assert "waiting" not in found.plain(112.0)


def test_a_resumed_run_waits_and_its_clock_stands_still(tmp_path: Path) -> None:
    write(tmp_path, *BEGUN, fact(4.5, "resumed", outage_s=1.0), joined(5.0, "a"))
    found = view(tmp_path, resumed=True)
    assert "5.0 s emulated" in found.plain(100.0)
    line = found.plain(112.0)
    assert "waiting for edges to come back: 0 of 2 connected, for 12 s" in line
    assert "5.0 s emulated" in line and "2 awaited" in line
    write(tmp_path, fact(5.0, "edge_waits", edge="a"))
    assert "to come back: 1 of 2 connected, for 20 s" in found.plain(120.0)
    write(tmp_path, fact(5.0, "resumed", outage_s=60.0))
    line = found.plain(121.0)
    assert "waiting" not in line and "resumed after 60.0 s" in line
    assert "9.0 s emulated" in found.plain(124.0), "since it was last seen to wait"


def test_a_run_that_had_gone_on_before_it_was_first_read(tmp_path: Path) -> None:
    """Rows of a later moment tell it, too."""
    write(tmp_path, *BEGUN, fact(4.0, "resumed", outage_s=1.0))
    found = view(tmp_path, resumed=True)
    assert "waiting" in found.plain(100.0)
    write(tmp_path, fact(4.5, "update_ready", edge="a", task=0))
    assert "waiting" not in found.plain(101.0)


def test_edges_that_are_away_by_the_config_are_connected(tmp_path: Path) -> None:
    away = [(event(7.0, "edge_lost", edge=e), fact(7.0, "edge_away", edge=e)) for e in "ab"]
    write(tmp_path, *BEGUN, *(row for rows in away for row in rows))
    assert "waiting" not in view(tmp_path).plain(50.0)


def test_a_run_that_is_over_waits_for_nothing(tmp_path: Path) -> None:
    lost = [event(9.0, "edge_lost", edge=edge) for edge in "ab"]
    write(tmp_path, *BEGUN, *lost, fact(10.0, "finished", reason="interrupted"))
    assert "waiting" not in view(tmp_path).plain(50.0)
