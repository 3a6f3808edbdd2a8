"""The display of a running run: its hosts, and the edges that it waits for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from host_reports import FACTS, REPORT
from rich.console import Console

from edgefl.config.experiment import Stop
from edgefl.record.files import HOST_COLUMNS
from edgefl.record.record import Record
from edgefl.results.progress import LiveView
from emulator.units import NS_PER_S

HEADING = ",".join(HOST_COLUMNS) + "\n"


def row(edge: str, host: str, cpu: str = "", celsius: str = "", throttled: str = "") -> str:
    return f"1.0,{edge},{host},of-{host},{cpu},{celsius},{throttled},,,3.0,1000000,,\n"


def shown(view: LiveView, width: int = 100, height: int = 40) -> str:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print(view.update())
    return capture.get()


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Write these rows of hosts.csv, and return the view of edges a, b and c."""
    view = LiveView(tmp_path, ["a", "b", "c"])
    (tmp_path / "hosts.csv").write_text(HEADING)

    def write(*rows: str) -> LiveView:
        with (tmp_path / "hosts.csv").open("a") as file:
            file.writelines(rows)
        return view

    return write


def test_several_hosts_have_columns(run: Any) -> None:
    rows = (row("a", "pi-1", "97.5", "71.2", "no"), row("b", "pi-1"), row("c", "pi-2", "3.0"))
    lines = shown(run(*rows)).splitlines()
    heading, a, b, c = lines[-4:]
    assert heading.split()[-4:] == ["host", "cpu", "%", "°C"]
    assert a.split()[-3:] == b.split()[-3:] == ["pi-1", "97.5", "71.2"]
    assert c.split()[-2:] == ["pi-2", "3.0"]


def test_hosts_that_are_slowed_down_are_named_as_long_as_they_are(run: Any) -> None:
    view = run(
        row("a", "pi-1", "9.0", "", "no"), row("b", "pi-2", throttled="under-voltage+throttled")
    )
    line = "slowed down: pi-2 (under-voltage, throttled)"
    assert line in shown(view).splitlines() and line in view.plain()
    run(row("b", "pi-2"))  # no news
    assert line in shown(view)
    run(row("b", "pi-2", throttled="no"))
    assert "slowed down" not in shown(view) + view.plain()


def test_paths_slower_than_their_links_are_named_from_the_start(tmp_path: Path) -> None:
    view, record = LiveView(tmp_path, ["a", "b"]), Record(tmp_path, lambda: 0.0, None)
    rates = {"measured_bit_s": 441_689, "needed_bit_s": 2_000_000}
    record.fact(0, {"fact": "slow_path", "edge": "b", **rates})
    record.flush()
    line = "real paths slower than their links: b (442 kbit/s of 2.00 Mbit/s)"
    assert line in shown(view).splitlines() and line in view.plain()
    record.fact(0, {"fact": "session_ended", "edge": "b", "reason": "silent"})
    record.flush()
    assert "real paths" not in shown(view), "the next session measures it again"


def test_the_display_reads_what_the_record_writes(tmp_path: Path) -> None:
    record = Record(tmp_path, lambda: 0.0, None)
    record.host(NS_PER_S, "a", FACTS, REPORT)
    record.flush()
    assert "host cpu 42.2 %, 64.2 °C" in LiveView(tmp_path, ["a"]).plain()


def test_a_launch_shows_its_own_names_of_hosts(tmp_path: Path) -> None:
    view = LiveView(tmp_path, ["a", "b"], places={"a": "pi-1", "b": "pi-2"})
    lines = shown(view).splitlines()
    assert "host" in lines[-3]
    assert [line.split()[0:2] + line.split()[-1:] for line in lines[-2:]] == [
        ["a", "awaited", "pi-1"],
        ["b", "awaited", "pi-2"],
    ]


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
    found = view(tmp_path, join_timeout_s=60.0, join="edgefl edge --connect tcp://192.0.2.1:7700")
    found.plain(3.0)
    line = found.plain(12.0)
    assert line.startswith(
        f"{tmp_path.name}  waiting for edges for 9 s (60 s at most): 0 of 2 connected, missing: a,"
        " b; start those that do not run: edgefl edge --connect tcp://192.0.2.1:7700 --id a  0.0 s"
    )
    write(tmp_path, fact(0.0, "edge_waits", edge="a"))
    assert ": 1 of 2 connected, missing: b; start those" in found.plain(13.0)
    write(tmp_path, fact(0.0, "edge_waits", edge="b"))
    assert "(60 s at most): 2 of 2 connected  0.0 s" in found.plain(14.0)
    write(tmp_path, *BEGUN)
    assert "waiting" not in found.plain(15.0)


def test_after_all_edges_have_died(tmp_path: Path) -> None:
    write(tmp_path, *BEGUN)
    found = view(tmp_path, speed=2.0, stop=Stop(emulated_s=50), join="edgefl edge")
    assert "waiting" not in found.plain(100.0)
    write(tmp_path, event(9.0, "edge_lost", edge="a"))
    assert "waiting" not in found.plain(101.0), "the other one is connected"
    # an edge says early when its emulated device will be ready, and may be lost before that
    write(
        tmp_path, event(10.0, "edge_lost", edge="b"), fact(11.0, "update_ready", edge="a", task=0)
    )
    text = "waiting for edges for {} s: 0 of 2 connected, missing: a, b; the run's clock goes on"
    assert text.format(0) in found.plain(102.0)
    # twice as fast as the wall clock: 1 s from 10.0 to 11.0 emulated is 0.5 s, and 9 have passed
    line = found.plain(111.0)
    assert text.format(10) in line and "--id a" in line
    assert " left" not in line, "a time left would look like progress"
    console = Console(width=200, color_system=None)
    with console.capture() as screen:
        console.print(found.update(111.0))
    title, waits, *_ = screen.get().splitlines()
    assert title.startswith(tmp_path.name) and waits.startswith(text.format(10))
    assert " left" not in screen.get()
    write(tmp_path, joined(29.0, "a"))
    assert "waiting" not in found.plain(112.0) and " left" in found.plain(113.0)


def test_a_resumed_run_waits_and_its_clock_stands_still(tmp_path: Path) -> None:
    write(tmp_path, *BEGUN, fact(4.5, "resumed", outage_s=1.0), joined(5.0, "a"))
    heading = "edge,direction,kind,bytes,offered_s,scheduled_s,finished_s\n"
    (tmp_path / "links.csv").write_text(f"{heading}a,up,update,1000,0,1,5\n")
    found = view(tmp_path, resumed=True, join_timeout_s=60.0, stop=Stop(emulated_s=20))
    assert "5.0 s emulated" in found.plain(100.0)
    line = found.plain(112.0)
    assert (
        "waiting for edges to come back for 12 s (60 s at most): 0 of 2 connected, missing: a, b"
        in line
    )
    assert "5.0 s emulated" in line and "2 awaited" in line
    assert "up 0 bit/s" in line, "what was sent before the break is not sent now"
    console = Console(width=200, color_system=None)
    with console.capture() as screen:
        console.print(found.update(112.0))
    assert " 25%" in screen.get(), "5 of 20 s are done"
    # the run had ended 2 s after its latest row, so its clock stands still there
    write(tmp_path, fact(7.0, "edge_waits", edge="a"), joined(7.0, "a"))
    assert "for 20 s (60 s at most): 1 of 2 connected, missing: b" in found.plain(120.0)
    line = found.plain(130.0)
    assert "for 30 s" in line and "7.0 s emulated" in line and " left" not in line
    write(tmp_path, fact(7.0, "edge_waits", edge="b"), fact(7.0, "resumed", outage_s=60.0))
    line = found.plain(131.0)
    assert "waiting" not in line and "resumed after 60.0 s" in line
    assert "11.0 s emulated" in found.plain(134.0), "since it was last seen to wait"


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
